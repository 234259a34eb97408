"""Kinematics: published poses, finite differences, inverse, and planes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closedform.errors import ArmError, ConfigError
from closedform.geometry.so3 import axis_angle_of
from closedform.robot.inverse import check_reachable, solve
from closedform.robot.kinematics import MODELS, ArmModel, Kinematics
from closedform.robot.workplane import Workplane
from tests.robot.arms import CONFIG, KINEMATICS, PLANE, WORKSPACE, joints_at

UPRIGHT = np.array([0, -np.pi / 2, 0, -np.pi / 2, 0, 0])
ANGLES = st.lists(st.floats(-3.1, 3.1), min_size=6, max_size=6).map(np.array)


@pytest.mark.parametrize(
    ("name", "stretched", "upright"),
    [
        ("ur3e", (-0.45675, -0.22315, 0.0665), (0.0, -0.22315, 0.69395)),
        ("ur5e", (-0.8172, -0.2329, 0.0628), (0.0, -0.2329, 1.0794)),
        ("ur10e", (-1.18425, -0.2907, 0.06085), (0.0, -0.2907, 1.4848)),
        ("ur5", (-0.81725, -0.19145, -0.005491), (0.0, -0.19145, 1.001059)),
    ],
)
def test_the_flange_is_where_a_real_arm_shows_it(name, stretched, upright):
    """The flange with all joints at zero, and with the arm straight up, as the DH numbers say."""
    arm = Kinematics.of(name)
    assert np.allclose(arm.pose(np.zeros(6)).position, stretched, atol=1e-9)
    assert np.allclose(arm.pose(UPRIGHT).position, upright, atol=1e-9)
    assert np.allclose(arm.pose(np.zeros(6)).rotation, [[1, 0, 0], [0, 0, -1], [0, 1, 0]], atol=1e-12)


@given(st.sampled_from(sorted(MODELS)), ANGLES, st.floats(0, 0.5))
@settings(max_examples=40, deadline=None)
def test_the_jacobian_is_the_derivative_of_the_pose(name, joints, length):
    arm = Kinematics.of(name, length)
    pose, jacobian = arm.jacobian(joints)
    assert np.allclose(pose.rotation @ pose.rotation.T, np.eye(3), atol=1e-12)
    assert np.isclose(np.linalg.det(pose.rotation), 1)
    step = 1e-6
    for i in range(6):
        ahead, behind = (arm.pose(joints + sign * step * np.eye(6)[i]) for sign in (1, -1))
        assert np.allclose((ahead.position - behind.position) / (2 * step), jacobian[:3, i], atol=1e-7)
        assert np.allclose(axis_angle_of(ahead.rotation @ behind.rotation.T) / (2 * step), jacobian[3:, i], atol=1e-7)


@given(st.floats(0.0, np.pi), st.tuples(*[st.floats(-1, 1)] * 3).filter(lambda v: np.linalg.norm(v) > 0.1))
@settings(max_examples=40, deadline=None)
def test_the_axis_angle_of_a_turn_is_its_rotation_vector(angle, axis):
    axis = np.array(axis) / np.linalg.norm(axis)
    cross = np.array([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    turn = np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross
    found = axis_angle_of(turn)
    assert np.isclose(np.linalg.norm(found), angle, atol=2e-6)
    if 1e-3 < angle < np.pi - 1e-3:
        assert np.allclose(found, angle * axis, atol=1e-5)


@given(st.tuples(st.floats(-0.06, 0.572), st.floats(-0.06, 0.572), st.floats(0.004, 0.1)))
@settings(max_examples=25, deadline=None)
def test_the_inverse_leads_back_with_the_tool_vertical(point):
    joints = joints_at(point)
    pose = KINEMATICS.pose(joints)
    assert np.allclose(PLANE.from_base(pose.position), point, atol=2e-4)
    assert np.allclose(pose.rotation[:, 2], [0, 0, -1], atol=2e-4)
    assert CONFIG.limits(KINEMATICS).check(joints) is None


def test_what_cannot_be_reached_is_said():
    start, limits = joints_at((0.256, 0.256, 0.05)), CONFIG.limits(KINEMATICS)
    check_reachable(KINEMATICS, PLANE, WORKSPACE.lower, WORKSPACE.upper, start, limits)
    with pytest.raises(ArmError, match=r"unreachable target: .* found \(1250, -256, 0\) mm in its base frame"):
        solve(KINEMATICS, PLANE, np.array([1.0, 0.0, 0.0]), start, limits)
    with pytest.raises(ArmError, match="unreachable target"):
        check_reachable(KINEMATICS, PLANE, WORKSPACE.lower, WORKSPACE.upper + np.array([0.3, 0, 0]), start, limits)


def test_planes_that_are_mirrored_point_up_all_the_same():
    plane = Workplane.touched((0.3, 0.2, 0.01), (0.8, 0.2, 0.01), (0.31, -0.3, 0.01))
    assert np.allclose(plane.axes[:, 2], [0, 0, 1]) and np.isclose(np.linalg.det(plane.axes), -1)
    points = plane.to_points(np.array([[0.0, 0.0], [500.0, 0.0], [0.0, 500.0]]), height=0.02)
    assert np.allclose(plane.to_base(points), [(0.3, 0.2, 0.03), (0.8, 0.2, 0.03), (0.3, -0.3, 0.03)])
    assert np.allclose(plane.from_base(plane.to_base(points)), points)
    assert np.allclose(plane.to_positions(points), [[0, 0], [500, 0], [0, 500]])
    for joints in (joints_at((0.1, 0.1, 0.05)), np.zeros(6), UPRIGHT):
        held = plane.tool_rotation(KINEMATICS.pose(joints).rotation)
        assert np.allclose(held @ held.T, np.eye(3)) and np.isclose(np.linalg.det(held), 1)
        assert np.allclose(held[:, 2], [0, 0, -1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Kinematics.of("ur5f"), "unknown arm 'ur5f': expected ur3"),
        (lambda: Kinematics.of("ur5e", -0.1), "tool_length: expected 0 to 1"),
        (lambda: Kinematics(ArmModel((0.0,), (0.0,), (0.0,), (1.0,))), "expected an arm of 6 joints"),
        (lambda: Workplane((0, 0, np.nan)), "three finite numbers"),
        (lambda: Workplane((0, 0, 0), (1, 0, 0), (1, 0.1, 0)), "more than 30 degrees apart"),
        (lambda: Workplane((0, 0, 0), (1, 0, 0), (0, 0, 1)), "level within 25 degrees"),
        (lambda: Workplane((0, 0, 0), scale=0.0), "scale: expected meters per unit"),
        (lambda: Workplane.touched((0, 0), (1, 0), (0, 1)), "three points of three numbers"),
    ],
)
def test_numbers_that_are_no_arm_or_plane_are_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
