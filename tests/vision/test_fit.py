"""Poses of bodies from the corners of their markers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closedform.errors import ConfigError
from closedform.geometry.rigid_pose import RigidPose
from closedform.geometry.so3 import axis_angle_of, matrix_of_axis_angle
from closedform.robot.twin.block import block_body
from closedform.robot.twin.place import PLANE
from closedform.vision.fit import fit_body
from closedform.vision.marked_body import MarkedBody, square
from closedform.vision.pinhole import onto_plane, project, rays
from tests.vision.synthetic import CAMERA, INTRINSICS, random_rotation, sight

pytest.importorskip("cv2")

BLOCK = block_body()
CUBE = MarkedBody(
    "cube",
    {
        20: square(0.05, RigidPose(np.eye(3), np.array([0.0, 0.0, 0.04]))),
        21: square(0.05, RigidPose(matrix_of_axis_angle(np.array([np.pi / 2, 0, 0])), np.array([0.0, -0.04, 0.0]))),
        22: square(0.05, RigidPose(matrix_of_axis_angle(np.array([0, np.pi / 2, 0])), np.array([0.04, 0.0, 0.0]))),
    },
)
seeds = st.integers(0, 2**32 - 1)


def random_pose(rng) -> RigidPose:
    x, y, _ = PLANE.to_base(np.array([*rng.uniform(0.05, 0.45, 2), 0.0]))
    return RigidPose.planar(x, y, rng.uniform(-np.pi, np.pi))


def off(found: RigidPose, true: RigidPose) -> tuple[float, float]:
    turn = np.linalg.norm(axis_angle_of(found.rotation.T @ true.rotation))
    return float(np.linalg.norm(found.position - true.position)), float(turn)


@given(seeds)
@settings(max_examples=50, deadline=None)
def test_rotation_vectors_are_the_logarithm_of_their_rotation(seed):
    rng = np.random.default_rng(seed)
    vector = rng.normal(size=3)
    vector *= rng.choice([0.0, 1e-9, 1e-4, 1.0, 3.0, np.pi]) / np.linalg.norm(vector)
    rotation = matrix_of_axis_angle(vector)
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(matrix_of_axis_angle(axis_angle_of(rotation)), rotation, atol=1e-6)


@given(seeds)
@settings(max_examples=30, deadline=None)
def test_pixels_lead_back_to_the_points_they_show(seed):
    rng = np.random.default_rng(seed)
    points = np.column_stack([rng.uniform(0.3, 0.75, 8), rng.uniform(-0.2, 0.2, 8), rng.uniform(0, 0.05, 8)])
    inside = CAMERA(points)
    pixels, slopes = project(INTRINSICS, inside)
    np.testing.assert_allclose(rays(INTRINSICS, pixels), inside / inside[:, 2:], atol=1e-5)
    np.testing.assert_allclose(onto_plane(INTRINSICS, CAMERA, pixels, points[:, 2]), points[:, :2], atol=1e-5)
    step = rng.normal(size=(8, 3)) * 1e-6
    moved = project(INTRINSICS, inside + step)[0]
    np.testing.assert_allclose(moved - pixels, np.einsum("nij,nj->ni", slopes, step), atol=1e-7)


@given(seeds, st.integers(1, 7))
@settings(max_examples=40, deadline=None)
def test_without_noise_the_pose_is_exact_from_any_markers(seed, n_seen):
    rng = np.random.default_rng(seed)
    pose = random_pose(rng)
    seen = rng.choice(7, n_seen, replace=False)
    found = fit_body(BLOCK, INTRINSICS, CAMERA, sight(BLOCK, pose, rng, numbers=seen))
    assert found is not None and (found.n_markers, found.n_outliers) == (n_seen, 0)
    assert off(found.pose, pose)[0] < 1e-7 and off(found.pose, pose)[1] < 1e-6 and found.residual < 1e-4
    free = RigidPose(random_rotation(rng), np.array([0.5, 0.0, 0.1]))
    again = fit_body(CUBE, INTRINSICS, CAMERA, sight(CUBE, free, rng))  # seen through the cube itself
    assert again is not None and off(again.pose, free)[0] < 1e-5 and off(again.pose, free)[1] < 1e-4


def test_the_plane_makes_poses_better_and_deviations_are_honest():
    rng = np.random.default_rng(0)
    as_free = MarkedBody("block", BLOCK.corners)
    planar, free, expected = [], [], []
    for _ in range(40):
        pose = random_pose(rng)
        found = sight(BLOCK, pose, rng, noise=0.3)
        on_plane, in_space = (fit_body(body, INTRINSICS, CAMERA, found) for body in (BLOCK, as_free))
        assert on_plane is not None and in_space is not None
        planar.append(off(on_plane.pose, pose))
        free.append(off(in_space.pose, pose))
        expected.append(on_plane.deviations)
    typical = np.sqrt(np.mean(np.square(planar), axis=0))
    assert typical[0] < 0.3e-3 and typical[1] < np.radians(0.3)
    assert np.sqrt(np.mean(np.square(free), axis=0))[0] > 3 * typical[0]
    ratio = typical / np.sqrt(np.mean(np.square(expected), axis=0))
    assert (ratio > 0.4).all() and (ratio < 2.0).all()


@given(seeds, st.integers(1, 2))
@settings(max_examples=40, deadline=None)
def test_markers_that_are_not_where_they_can_be_do_not_count(seed, n_wrong):
    rng = np.random.default_rng(seed)
    pose = random_pose(rng)
    found = sight(BLOCK, pose, rng, noise=0.2)
    for number in rng.choice(7, n_wrong, replace=False):
        found[int(number)] = found[int(number)] + rng.choice([-1, 1], 2) * rng.uniform(15, 200, 2)
    fit = fit_body(BLOCK, INTRINSICS, CAMERA, found)
    assert fit is not None and (fit.n_markers, fit.n_outliers) == (7 - n_wrong, n_wrong)
    assert off(fit.pose, pose)[0] < 1.5e-3


def test_nothing_seen_is_nothing_known():
    assert fit_body(BLOCK, INTRINSICS, CAMERA, {}) is None
    assert fit_body(BLOCK, INTRINSICS, CAMERA, {33: np.zeros((4, 2))}) is None


def test_bodies_that_make_no_sense_are_refused():
    with pytest.raises(ConfigError, match="expected at least one marker"):
        MarkedBody("empty", {})
    with pytest.raises(ConfigError, match="expected 4 corners of 3 finite numbers"):
        MarkedBody("flat", {1: np.zeros((4, 2))})
    with pytest.raises(ConfigError, match="expected a size above 0"):
        MarkedBody("point", {1: np.zeros((4, 3))})


@given(seeds, st.sampled_from(["anywhere", "one point", "a line", "far away"]))
@settings(max_examples=60, deadline=None)
def test_corners_that_make_no_sense_end_in_a_pose_or_in_none(seed, kind):
    rng = np.random.default_rng(seed)
    for body in (BLOCK, CUBE):
        found = {}
        for number in body.corners:
            where = rng.uniform(0, 480, (4, 2))
            if kind == "one point":
                where[:] = where[0]
            elif kind == "a line":
                where[:, 1] = where[0, 1]
            elif kind == "far away":
                where *= 1e6
            found[number] = where
        fit = fit_body(body, INTRINSICS, CAMERA, found)
        assert fit is None or (np.isfinite(fit.pose.position).all() and np.isfinite(fit.deviations).all())
