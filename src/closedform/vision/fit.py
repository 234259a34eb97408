"""The pose of a body from the corners of its markers: robust least squares in pixels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from closedform.geometry.rigid_pose import RigidPose
from closedform.geometry.so3 import matrix_of_axis_angle
from closedform.vision.camera import Intrinsics
from closedform.vision.marked_body import MarkedBody
from closedform.vision.opencv import import_cv2
from closedform.vision.pinhole import onto_plane, project

OUTLIER = 4.0  # pixels from where the pose puts a corner, above which its marker is not the body's
_HUBER = 1.0  # pixels, from which on a residual counts linearly
_FLOOR = 0.1  # pixels: corners are never known better
_STEPS = 12


@dataclass(frozen=True)
class PoseFit:
    """The pose of a body in one picture, and how good it is.

    Attributes:
        pose: takes points of the body's frame to the world's.
        residual: root mean square distance of the corners used from where the pose puts them, in pixels.
        n_markers: the number of markers used.
        n_outliers: the number of the body's markers that were seen where they cannot be.
        deviations: standard deviations (2,) of position (meters, the worst direction) and of rotation (radians).
    """

    pose: RigidPose
    residual: float
    n_markers: int
    n_outliers: int
    deviations: np.ndarray


def fit_body(
    body: MarkedBody, intrinsics: Intrinsics, camera: RigidPose, found: Mapping[int, np.ndarray]
) -> PoseFit | None:
    """The pose of a body: x, y and angle on its plane where it has one, otherwise position and rotation.

    Every marker proposes a pose; the one that most markers agree with is refined on those with Huber's loss, so that
    a marker that was misread, or is another's, does not count.

    Args:
        body: the body.
        intrinsics: of the camera.
        camera: takes points of the world to the camera's frame.
        found: corners (4, 2) of the markers in the picture by number; see `Markers.find`.

    Returns:
        None if no marker of the body is seen, or no pose agrees with one.
    """
    seen = [number for number in body.corners if number in found]
    if not seen:
        return None
    points = np.stack([body.corners[number] for number in seen])  # (M, 4, 3)
    pixels = np.stack([found[number] for number in seen])  # (M, 4, 2)
    propose = _planar_proposals if body.planar else _free_proposals
    best, agreed = None, np.zeros(len(seen), bool)
    least = (0, 0.0)
    for pose in propose(body, intrinsics, camera, points, pixels):
        errors = _errors(pose, intrinsics, camera, points, pixels)
        agree = errors < 2 * OUTLIER  # the pose from one marker is rough at the others
        quality = (int(agree.sum()), -float(np.minimum(errors, 2 * OUTLIER).sum()))
        if best is None or quality > least:
            best, agreed, least = pose, agree, quality
    if best is None or not agreed.any():
        return None
    best, _ = _refine(best, body, intrinsics, camera, points[agreed], pixels[agreed])
    inliers = _errors(best, intrinsics, camera, points, pixels) < OUTLIER
    if not inliers.any():
        return None
    best, information = _refine(best, body, intrinsics, camera, points[inliers], pixels[inliers])
    residual = float(np.sqrt(np.mean(_distances(best, intrinsics, camera, points[inliers], pixels[inliers]) ** 2)))
    n_inliers = int(inliers.sum())
    if not (np.isfinite(information).all() and np.isfinite(residual)):
        return None
    deviations = _deviations(information, max(residual, _FLOOR), body.planar)
    return PoseFit(best, residual, n_inliers, len(seen) - n_inliers, deviations)


def _planar_proposals(
    body: MarkedBody, intrinsics: Intrinsics, camera: RigidPose, points: np.ndarray, pixels: np.ndarray
) -> list[RigidPose]:
    """Poses on the plane, one from each marker and one from all: its corners seen on the plane, moved onto its own."""
    height = float(body.height or 0.0)
    heights = height + points[:, :, 2]
    on_plane = onto_plane(intrinsics, camera, pixels.reshape(-1, 2), heights.ravel()).reshape(*pixels.shape)
    usable = np.isfinite(on_plane).all((1, 2))
    groups = [(points[i], on_plane[i]) for i in np.flatnonzero(usable)]
    if usable.sum() > 1:
        groups.append((points[usable].reshape(-1, 3), on_plane[usable].reshape(-1, 2)))
    poses = []
    for own, seen in groups:
        from_center, to_center = own[:, :2].mean(0), seen.mean(0)
        a, b = (own[:, :2] - from_center), (seen - to_center)
        angle = float(np.arctan2((a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]).sum(), (a * b).sum()))
        turned = RigidPose.planar(0, 0, angle, height)
        x, y = to_center - (turned.rotation[:2, :2] @ from_center)
        poses.append(RigidPose.planar(float(x), float(y), angle, height))
    return poses


def _free_proposals(
    body: MarkedBody, intrinsics: Intrinsics, camera: RigidPose, points: np.ndarray, pixels: np.ndarray
) -> list[RigidPose]:
    """Poses in space: two from each marker, which can be taken for its mirror image, and one from all."""
    cv2, back = import_cv2("the pose of a body"), camera.inverse
    groups = [(points[i], pixels[i], cv2.SOLVEPNP_IPPE) for i in range(len(points))]
    if len(points) > 1:
        groups.append((points.reshape(-1, 3), pixels.reshape(-1, 2), cv2.SOLVEPNP_SQPNP))
    poses = []
    for own, seen, method in groups:
        given = np.ascontiguousarray(own), np.ascontiguousarray(seen), intrinsics.matrix, intrinsics.distortion
        try:
            _, turns, moves, _ = cv2.solvePnPGeneric(*given, flags=method)
        except cv2.error:  # corners in one point or on a line have no pose
            continue
        for turn, move in zip(turns, moves, strict=True):
            if np.isfinite(turn).all() and np.isfinite(move).all():
                poses.append(back.after(RigidPose(matrix_of_axis_angle(turn.ravel()), move.ravel())))
    return poses


def _distances(
    pose: RigidPose, intrinsics: Intrinsics, camera: RigidPose, points: np.ndarray, pixels: np.ndarray
) -> np.ndarray:
    """(M, 4), in pixels; infinite for points behind the camera."""
    inside = camera(pose(points.reshape(-1, 3)))
    off = project(intrinsics, inside)[0] - pixels.reshape(-1, 2)
    distances = np.where(inside[:, 2] > 1e-3, np.linalg.norm(off, axis=1), np.inf)
    return distances.reshape(points.shape[:2])


def _errors(*arguments) -> np.ndarray:
    """(M,), the largest distance of a corner of each marker."""
    return _distances(*arguments).max(1)


def _refine(
    pose: RigidPose, body: MarkedBody, intrinsics: Intrinsics, camera: RigidPose, points: np.ndarray, pixels: np.ndarray
) -> tuple[RigidPose, np.ndarray]:
    """Gauss-Newton steps on Huber's loss; the pose and the information matrix of its parameters (in 1 / pixel^2)."""
    points, pixels = points.reshape(-1, 3), pixels.reshape(-1, 2)
    moved = _planar_step if body.planar else _free_step
    information = np.eye(3 if body.planar else 6)
    for _ in range(_STEPS):
        off, jacobian = _linearized(pose, moved, intrinsics, camera, points, pixels)
        distances = np.linalg.norm(off, axis=1)
        weights = np.minimum(1.0, _HUBER / np.maximum(distances, 1e-12))
        weighted = jacobian * weights[:, None, None]
        information = np.einsum("nij,nik->jk", weighted, jacobian)
        gradient = np.einsum("nij,ni->j", weighted, off)
        if not (np.isfinite(information).all() and np.isfinite(gradient).all()):
            break  # a point came to lie in the camera
        step = -np.linalg.lstsq(information, gradient, rcond=1e-12)[0]
        pose = moved(pose, step)
        if np.abs(step).max() < 1e-9:
            break
    return pose, information


def _planar_step(pose: RigidPose, step: np.ndarray) -> RigidPose:
    x, y, z = pose.position
    return RigidPose.planar(x + step[0], y + step[1], pose.angle + step[2], z)


def _free_step(pose: RigidPose, step: np.ndarray) -> RigidPose:
    return RigidPose(matrix_of_axis_angle(step[3:]) @ pose.rotation, pose.position + step[:3])


def _linearized(
    pose: RigidPose,
    moved: Callable[[RigidPose, np.ndarray], RigidPose],
    intrinsics: Intrinsics,
    camera: RigidPose,
    points: np.ndarray,
    pixels: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Residuals (N, 2) and their derivatives (N, 2, P) with respect to a step of the pose."""
    world = pose(points)
    seen, by_point = project(intrinsics, camera(world))
    by_world = by_point @ camera.rotation  # (N, 2, 3)
    around = world - pose.position
    if moved is _planar_step:
        by_angle = np.column_stack([-around[:, 1], around[:, 0], np.zeros(len(around))])
        by_step = np.concatenate([np.broadcast_to(np.eye(3)[:, :2], (len(around), 3, 2)), by_angle[:, :, None]], 2)
    else:
        x, y, z = around.T
        zero = np.zeros_like(x)
        by_turn = np.stack([[zero, z, -y], [-z, zero, x], [y, -x, zero]]).transpose(2, 0, 1)  # -[around]x
        by_step = np.concatenate([np.broadcast_to(np.eye(3), (len(around), 3, 3)), by_turn], 2)
    return seen - pixels, by_world @ by_step


def _deviations(information: np.ndarray, noise: float, planar: bool) -> np.ndarray:
    covariance = noise**2 * np.linalg.pinv(information)
    split = 2 if planar else 3
    worst = (np.linalg.eigvalsh(part)[-1] for part in (covariance[:split, :split], covariance[split:, split:]))
    return np.sqrt(np.maximum([*worst], 0.0))
