"""The twin's scene in MJCF: a UR5e of capsules on its published numbers, a table, and a T with markers."""

from __future__ import annotations

import numpy as np

from closedform.geometry.rigid_pose import RigidPose
from closedform.geometry.so3 import columns_of_quaternion, rotation_matrix
from closedform.robot.twin import block
from closedform.robot.twin.place import (
    CAMERA_POSITION,
    CAMERA_SIZE,
    DICTIONARY,
    FIELD_OF_VIEW,
    KINEMATICS,
    PLANE,
    SIDE,
    STICK_LENGTH,
    STICK_RADIUS,
    TABLE_MARKER,
    TABLE_MARKERS,
    camera_axes,
)
from closedform.vision.markers import marker_picture
from closedform.vision.opencv import import_cv2

TIMESTEP = 0.0025
STIFFNESS = (20000.0, 20000.0, 12000.0, 3000.0, 3000.0, 1500.0)  # N m / rad of the joints' servos
DAMPING = (900.0, 900.0, 500.0, 90.0, 90.0, 40.0)  # N m s / rad
_CELL = 16  # pixels of a texture for a square of a marker
_SQUARES = 6  # of a 4x4 marker with its black frame


def make_scene() -> tuple[str, dict[str, bytes]]:
    """The model as MJCF, and the pictures that it refers to by name."""
    numbers = {**{n: block.MARKER for n in block.MARKERS}, **dict.fromkeys(TABLE_MARKERS, TABLE_MARKER)}
    files = {f"marker{number}.png": _texture(number) for number in numbers}
    textures = "".join(
        f'<texture name="marker{n}" type="2d" file="marker{n}.png"/>'
        f'<material name="marker{n}" texture="marker{n}" specular="0" shininess="0"/>'
        for n in numbers
    )
    x, y, z = PLANE.to_base(np.array([SIDE / 2, SIDE / 2, 0.0]))
    axes = camera_axes()
    xml = f"""<mujoco model="closedform twin">
<compiler angle="radian" autolimits="true"/>
<option timestep="{TIMESTEP}" integrator="implicitfast" cone="elliptic" impratio="10"/>
<visual>
  <global offwidth="{2 * CAMERA_SIZE[0]}" offheight="{2 * CAMERA_SIZE[1]}"/>
  <headlight ambient="0.45 0.45 0.45" diffuse="0.35 0.35 0.35" specular="0 0 0"/>
  <quality shadowsize="2048" offsamples="0"/><map znear="0.02" zfar="30"/>
</visual>
<asset>
  <texture type="skybox" builtin="gradient" rgb1="0.82 0.86 0.9" rgb2="0.5 0.55 0.62" width="64" height="64"/>
  <material name="table" rgba="0.80 0.76 0.70 1" specular="0.05" shininess="0.1"/>
  <material name="frame" rgba="0.32 0.34 0.37 1" specular="0.1"/>
  <material name="metal" rgba="0.74 0.76 0.78 1" specular="0.4" shininess="0.5"/>
  <material name="cap" rgba="0.36 0.62 0.80 1" specular="0.3" shininess="0.4"/>
  <material name="dark" rgba="0.18 0.19 0.21 1" specular="0.3" shininess="0.4"/>
  <material name="block" rgba="0.45 0.52 0.60 1" specular="0.05"/>
  <material name="goal" rgba="0.56 0.78 0.56 1" specular="0" shininess="0"/>
  {textures}
</asset>
<default>
  <geom contype="0" conaffinity="0" density="0.001"/>
  <default class="link"><geom type="capsule" material="metal"/></default>
</default>
<worldbody>
  <light directional="true" pos="0.2 -0.8 2" dir="0.1 0.35 -1" diffuse="0.4 0.4 0.4" specular="0.2 0.2 0.2"/>
  <camera name="camera" pos="{_text(CAMERA_POSITION)}" xyaxes="{_text([*axes[:, 0], *-axes[:, 1]])}"
    fovy="{FIELD_OF_VIEW}" resolution="{CAMERA_SIZE[0]} {CAMERA_SIZE[1]}"/>
  <geom name="table" type="plane" size="2 2 0.1" rgba="0 0 0 0" group="3"/>
  <geom type="box" pos="{x - 0.16} {y} -0.021" size="0.62 0.52 0.02" material="table"/>
  <geom type="box" pos="{x - 0.16} {y} -0.06" size="0.6 0.5 0.02" material="frame"/>
  {_square(x, y, z)}
  {_goal()}
  {_table_markers()}
  {_block()}
  {_arm()}
</worldbody>
<contact>
  <pair name="bar table" geom1="bar" geom2="table" condim="3" solref="0.008 1"/>
  <pair name="stem table" geom1="stem" geom2="table" condim="3" solref="0.008 1"/>
  <pair name="bar stick" geom1="bar" geom2="stick" condim="3" solref="0.008 1"/>
  <pair name="stem stick" geom1="stem" geom2="stick" condim="3" solref="0.008 1"/>
</contact>
<actuator>{_actuators()}</actuator>
</mujoco>"""
    return xml, files


def _texture(number: int) -> bytes:
    """A marker with a white border of an eighth of its side, as PNG."""
    picture = marker_picture(DICTIONARY, number, _CELL * _SQUARES, _CELL * _SQUARES // 8)
    return import_cv2("drawing markers").imencode(".png", picture)[1].tobytes()


def _text(numbers) -> str:
    return " ".join(f"{float(number):.9g}" for number in numbers)


def _square(x: float, y: float, z: float) -> str:
    """Thin lines around the square of the workplane."""
    half, thin = SIDE / 2, 0.001
    lines = [(x, y - half, half, thin), (x, y + half, half, thin), (x - half, y, thin, half), (x + half, y, thin, half)]
    return "".join(
        f'<geom type="box" pos="{_text([at_x, at_y, z - 0.0009])}" size="{_text([w, h, 0.001])}" material="frame"/>'
        for at_x, at_y, w, h in lines
    )


def _boxes(z: float, half: float, attributes: tuple[str, str]) -> str:
    """The two boxes of the T in its frame."""
    text = ""
    for (left, low, right, up), more in zip((block.BAR, block.STEM), attributes, strict=True):
        center, size = [(left + right) / 2, (low + up) / 2, z], [(right - left) / 2, (up - low) / 2, half]
        text += f'<geom type="box" pos="{_text(center)}" size="{_text(size)}" {more}/>'
    return text


def _goal() -> str:
    position = PLANE.to_base(np.array([*block.GOAL[:2], 0.0]))
    boxes = _boxes(-0.00085, 0.001, ('material="goal"', 'material="goal"'))
    return f'<body pos="{_text(position)}" euler="0 0 {block.GOAL[2]}">{boxes}</body>'


def _marker(number: int, x: float, y: float, z: float, size: float) -> str:
    half = 0.625 * size  # with its border
    return (
        f'<geom type="box" pos="{_text([x, y, z - 0.0008])}" size="{_text([half, half, 0.001])}" '
        f'material="marker{number}"/>'
    )


def _table_markers() -> str:
    """Markers on the table, 0.2 mm above it so that they are seen."""
    text = ""
    for number, (x, y) in TABLE_MARKERS.items():
        position = PLANE.to_base(np.array([x, y, 0.0]))
        text += _marker(number, position[0], position[1], position[2], TABLE_MARKER)
    return text


def _block() -> str:
    areas = [(right - left) * (up - low) for left, low, right, up in (block.BAR, block.STEM)]
    masses = [0.2 * area / sum(areas) for area in areas]
    boxes = _boxes(
        block.HEIGHT / 2,
        block.HEIGHT / 2,
        (f'name="bar" mass="{masses[0]:.6f}" material="block"', f'name="stem" mass="{masses[1]:.6f}" material="block"'),
    )
    markers = "".join(_marker(n, x, y, block.HEIGHT, block.MARKER) for n, (x, y) in block.MARKERS.items())
    return f'<body name="block"><freejoint name="block"/>{boxes}{markers}</body>'


def _arm() -> str:
    """Bodies nested along the chain; each begins at a joint, whose axis is its z."""
    model = KINEMATICS.model
    d1, a2, a3, d4, d5, d6 = model.d[0], model.a[1], model.a[2], model.d[3], model.d[4], model.d[5]
    links = (  # capsules of each body: from, to, radius, material
        (((0, 0, 0.04), (0, 0, d1), 0.058, "metal"),),
        (
            ((0, 0, -0.02), (0, 0, 0.15), 0.056, "metal"),
            ((0, 0, 0.15), (0, 0, 0.165), 0.056, "cap"),
            ((0, 0, 0.138), (a2, 0, 0.138), 0.046, "metal"),
        ),
        (
            ((0, 0, 0.02), (0, 0, 0.15), 0.048, "metal"),
            ((0, 0, 0.15), (0, 0, 0.163), 0.048, "cap"),
            ((0, 0, 0.01), (a3, 0, 0.01), 0.038, "metal"),
        ),
        (((0, 0, -0.01), (0, 0, d4), 0.036, "metal"), ((0, 0, -0.025), (0, 0, -0.01), 0.036, "cap")),
        (((0, 0, 0), (0, 0, d5), 0.036, "metal"), ((0, 0, -0.022), (0, 0, -0.008), 0.036, "cap")),
        (((0, 0, 0), (0, 0, d6 - 0.035), 0.035, "metal"),),
    )
    masses = (3.0, 4.0, 2.0, 1.0, 1.0, 0.5)
    text, position, tilt = "", np.zeros(3), 0.0
    for i, capsules in enumerate(links):
        geoms = "".join(
            f'<geom class="link" fromto="{_text([*start, *end])}" size="{radius}" material="{material}"/>'
            for start, end, radius, material in capsules
        )
        middle = _text(np.mean([[*capsules[-1][0]], [*capsules[-1][1]]], axis=0))
        inertia = masses[i] * 0.02
        text += (
            f'<body name="link{i + 1}" pos="{_text(position)}" euler="{tilt!r} 0 0" gravcomp="1">'
            f'<inertial pos="{middle}" mass="{masses[i]}" diaginertia="{_text([inertia] * 3)}"/>'
            f'<joint name="joint{i + 1}" axis="0 0 1" armature="0.1"/>{geoms}'
        )
        position, tilt = np.array([model.a[i], 0.0, model.d[i]]), float(model.alpha[i])
    text += (
        f'<body name="flange" pos="{_text(position)}" euler="{tilt!r} 0 0" gravcomp="1">'
        f'<inertial pos="0 0 0.05" mass="0.3" diaginertia="0.001 0.001 0.0005"/>'
        f'<geom type="cylinder" fromto="0 0 -0.03 0 0 0" size="0.0315" material="dark"/>'
        f'<geom type="cylinder" fromto="0 0 0 0 0 0.03" size="0.024" material="dark"/>'
        f'<geom type="cylinder" fromto="0 0 0.03 0 0 {STICK_LENGTH}" size="{STICK_RADIUS}" material="cap"/>'
        # what pushes reaches into the table, which it does not touch, so that its round end is not met
        f'<geom name="stick" type="capsule" fromto="0 0 0.06 0 0 {STICK_LENGTH + 0.05}" size="{STICK_RADIUS}" '
        f'rgba="0 0 0 0" group="3"/><site name="tip" pos="0 0 {STICK_LENGTH}"/></body>'
    )
    base = '<geom type="cylinder" fromto="0 0 0 0 0 0.045" size="0.075" material="dark"/>'
    return f"<body>{base}{text}{'</body>' * 6}</body>"


def _actuators() -> str:
    return "".join(
        f'<position name="servo{i + 1}" joint="joint{i + 1}" kp="{kp}" kv="{kv}"/>'
        for i, (kp, kv) in enumerate(zip(STIFFNESS, DAMPING, strict=True))
    )


def marker_corners() -> dict[int, np.ndarray]:
    """The corners (4, 3) of the T's markers in its frame, by number."""
    return {number: np.asarray(corners) for number, corners in block.block_body().corners.items()}


def block_pose(position: np.ndarray, quaternion: np.ndarray) -> RigidPose:
    """A pose from MuJoCo's position (3,) and quaternion (4,), w first."""
    rotation = rotation_matrix(columns_of_quaternion(np.roll(quaternion, -1)))
    return RigidPose(rotation, np.array(position, float))
