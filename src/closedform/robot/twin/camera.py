"""TwinCamera: pictures of the twin, with the flaws of real ones."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Any

import numpy as np

from closedform.errors import ConfigError
from closedform.robot.twin.place import CAMERA_SIZE, FIELD_OF_VIEW, true_camera
from closedform.robot.twin.scene import marker_corners
from closedform.robot.twin.world import TwinFrame, World, block_in_base
from closedform.vision.camera import Image, Intrinsics
from closedform.vision.opencv import import_cv2
from closedform.vision.pinhole import project, rays

_N_SMEARED = 3  # moments of an exposure that are averaged
_SLOW = 0.3  # pixels, below which smearing is not seen
_GLARE = (235, 236, 238)
_SPARE = 256  # pixels by which the noise is larger than the picture


class TwinCamera:
    """The tilted camera of the twin.

    A picture can be had `latency` after its exposure. Lens blur, motion blur, noise, and markers that are hidden by
    glare are those of the world's settings; noise and glare depend on the seed of the episode and the number of the
    picture only.

    Args:
        world: to look at.
        size: width and height of pictures.
        distortion: (5,) OpenCV's k1, k2, p1, p2, k3.
    """

    def __init__(self, world: World, size: tuple[int, int] = CAMERA_SIZE, distortion: np.ndarray | None = None):
        self.world = world
        self._intrinsics = twin_intrinsics(size, distortion)
        self._cv2 = import_cv2("the twin's camera")
        self._renderer = make_renderer(world, size)
        self._data = world.mujoco.MjData(world.model)
        self._maps = self._distorting_maps()
        width, height = size
        rng = np.random.default_rng(0)
        self._noise = rng.standard_normal((height + _SPARE, width + _SPARE), np.float32)
        self._last: tuple[int, float, Image] | None = None

    @property
    def intrinsics(self) -> Intrinsics:
        """Size, camera matrix and distortion."""
        return self._intrinsics

    def grab(self) -> Image:
        """The newest picture that can be had now."""
        world = self.world
        frame = world.frame(world.clock.now() - world.settings.latency)
        if self._last is None or self._last[:2] != (world.seed, frame.time):
            self._last = world.seed, frame.time, Image(frame.time, self._picture(frame))
        return self._last[2]

    def close(self) -> None:
        """Releases the renderer."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def _picture(self, frame: TwinFrame) -> np.ndarray:
        settings, cv2 = self.world.settings, self._cv2
        rng = np.random.default_rng([0xCA3E, self.world.seed, frame.number])
        smeared = settings.exposure > 0 and self._speed(frame) * settings.exposure > _SLOW
        moments = settings.exposure * (np.arange(_N_SMEARED) / (_N_SMEARED - 1) - 0.5) if smeared else (0.0,)
        pictures = [self._rendered(frame, float(moment)) for moment in moments]
        pixels = pictures[0] if len(pictures) == 1 else np.mean(pictures, axis=0, dtype=np.float32)
        if self._maps is not None:
            pixels = cv2.remap(pixels, *self._maps, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        pixels = self._hide(np.ascontiguousarray(pixels), frame, rng)
        if settings.blur > 0:
            pixels = cv2.GaussianBlur(pixels, (0, 0), settings.blur)
        if settings.noise > 0:
            (top, left), (height, width) = rng.integers(_SPARE, size=2), pixels.shape[:2]
            grain = settings.noise * self._noise[top : top + height, left : left + width, None]
            pixels = np.clip(pixels + (grain + 0.5), 0, 255)
        return np.asarray(pixels, np.uint8)

    def _rendered(self, frame: TwinFrame, moment: float) -> np.ndarray:
        """The scene at a moment of an exposure, seconds from its middle."""
        mujoco, data = self.world.mujoco, self._data
        data.qpos[:] = frame.positions
        if moment:
            mujoco.mj_integratePos(self.world.model, data.qpos, frame.velocities, moment)
        return render(self.world, self._renderer, data)

    def _speed(self, frame: TwinFrame) -> float:
        """How fast the T's markers move, roughly, in pixels a second."""
        linear, angular = frame.velocities[:3], frame.velocities[3:6]
        scale = self._intrinsics.matrix[0, 0] / np.linalg.norm(true_camera().position)
        return float(scale * (np.linalg.norm(linear) + 0.08 * np.linalg.norm(angular)))

    def _hide(self, pixels: np.ndarray, frame: TwinFrame, rng: np.random.Generator) -> np.ndarray:
        """Covers some markers with glare."""
        pose, camera = block_in_base(frame.positions), true_camera()
        for corners in marker_corners().values():
            if rng.random() < self.world.settings.dropout:
                outline = project(self._intrinsics, camera(pose(corners)))[0].round().astype(np.int32)
                self._cv2.fillConvexPoly(pixels, outline, _GLARE)
        return pixels

    def _distorting_maps(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Where each pixel of the distorted picture is in the rendered one."""
        intrinsics = self._intrinsics
        if not intrinsics.distortion.any():
            return None
        width, height = intrinsics.size
        x, y = np.meshgrid(np.arange(width, dtype=float), np.arange(height, dtype=float))
        straight = rays(intrinsics, np.column_stack([x.ravel(), y.ravel()])) @ intrinsics.matrix.T
        maps = straight[:, :2].reshape(height, width, 2).astype(np.float32)
        return np.ascontiguousarray(maps[..., 0]), np.ascontiguousarray(maps[..., 1])


def twin_intrinsics(size: tuple[int, int] = CAMERA_SIZE, distortion: np.ndarray | None = None) -> Intrinsics:
    """The camera as it really is; MuJoCo's principal point is in the middle between the outermost pixels' centers."""
    width, height = size
    focal = height / 2 / np.tan(np.radians(FIELD_OF_VIEW) / 2)
    matrix = np.array([[focal, 0, width / 2 - 0.5], [0, focal, height / 2 - 0.5], [0, 0, 1.0]])
    return Intrinsics(size, matrix, np.zeros(5) if distortion is None else np.asarray(distortion, float))


def make_renderer(world: World, size: tuple[int, int]) -> Any:
    """A renderer of so many pixels; raises `ConfigError` where nothing can be rendered."""
    mujoco = world.mujoco
    try:
        check_rendering(mujoco)  # or a renderer that cannot begin complains again at its end
        renderer = mujoco.Renderer(world.model, size[1], size[0])
    except Exception as error:  # each rendering library fails in its own way
        library = os.environ.get("MUJOCO_GL")
        raise ConfigError(
            f"the twin's camera needs a rendering library, found none for MUJOCO_GL={library} ({error}): without a "
            f"display, install libegl1 or libosmesa6 and set MUJOCO_GL=egl or osmesa"
        ) from error
    atexit.register(_close, weakref.ref(renderer))  # before EGL ends, or it prints tracebacks
    return renderer


def _close(reference: weakref.ref[Any]) -> None:
    renderer = reference()
    if renderer is not None:
        renderer.close()


def check_rendering(mujoco: Any) -> None:
    """Raises an error of the rendering library where nothing can be rendered."""
    context = mujoco.gl_context.GLContext(8, 8)
    try:
        context.make_current()
        mujoco.MjrContext(mujoco.MjModel.from_xml_string("<mujoco/>"), mujoco.mjtFontScale.mjFONTSCALE_100.value).free()
    finally:
        context.free()


def render(world: World, renderer: Any, data: Any, *, shadows: bool = False) -> np.ndarray:
    """The scene as the camera sees it, (height, width, 3) uint8, without flaws.

    Args:
        world: whose model it is.
        renderer: see `make_renderer`.
        data: whose `qpos` is to be shown; what follows from it is calculated.
        shadows: whether to draw them, which takes longer.
    """
    mujoco = world.mujoco
    mujoco.mj_kinematics(world.model, data)
    mujoco.mj_comPos(world.model, data)
    mujoco.mj_camlight(world.model, data)
    renderer.update_scene(data, "camera")
    renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = shadows
    renderer.scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = False
    return renderer.render()
