"""Feature maps do what the layout asks for, and rigid motions of a scene change no distance."""

import numpy as np
import pytest
import torch

from closedform import ClosedFormError, ClosedFormPolicy, Layout
from closedform.geometry.so3 import columns_of_quaternion, quaternion_of, rotation_matrix
from closedform.weights.feature_map import CustomFeatures, GeometricFeatures, ScaledFeatures, make_feature_map
from closedform.weights.feature_statistics import Statistics
from tests.conftest import random_demos


def features(feature_map, windows):
    lifted = feature_map.lift(windows)
    offset, scale = feature_map.scaling(Statistics.of(lifted, np.array([len(lifted)])))
    return (lifted - offset) * scale


def distances(z):
    return np.linalg.norm(z[:, None] - z[None], axis=2)


def test_identity_is_the_observation():
    windows = np.random.default_rng(0).normal(size=(5, 2, 3))
    np.testing.assert_array_equal(
        features(make_feature_map("identity", Layout.plain(3), 1), windows), windows.reshape(5, 6)
    )


def test_scaled_entries_fill_minus_one_to_one_and_constants_do_no_harm():
    windows = np.random.default_rng(1).uniform(-100, 300, size=(50, 2, 3))
    windows[:, :, 1] = 7
    z = features(ScaledFeatures(), windows)
    np.testing.assert_allclose(z.min(0)[[0, 2, 3, 5]], -1)
    np.testing.assert_allclose(z.max(0)[[0, 2, 3, 5]], 1)
    np.testing.assert_array_equal(z[:, [1, 4]], 0)


def test_a_wrapped_angle_is_near():
    layout = Layout.of(("block", "angle"))
    z = features(GeometricFeatures(layout), np.array([[[0.01]], [[2 * np.pi - 0.01]], [[np.pi]]]))
    assert distances(z)[0, 1] < 0.02 < distances(z)[0, 2]


def test_a_planar_motion_of_the_scene_changes_no_distance():
    layout = Layout.of(("hand", "position", 2), ("block", "position", 2), ("block", "angle"), ("hand", "vector", 2))
    rng = np.random.default_rng(2)
    windows = rng.normal(size=(40, 2, 7))
    turn, shift = 0.7, np.array([3.0, -2.0])
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    moved = windows.copy()
    for columns in (slice(0, 2), slice(2, 4)):
        moved[..., columns] = windows[..., columns] @ rotation.T + shift
    moved[..., 4] += turn
    moved[..., 5:] = windows[..., 5:] @ rotation.T
    feature_map = GeometricFeatures(layout)
    np.testing.assert_allclose(distances(features(feature_map, moved)), distances(features(feature_map, windows)))


def test_a_spatial_motion_of_the_scene_changes_no_distance():
    layout = Layout.of(("hand", "position", 3), ("hand", "quaternion"))
    rng = np.random.default_rng(3)
    quaternions = rng.normal(size=(40, 4))
    quaternions /= np.linalg.norm(quaternions, axis=1, keepdims=True)
    windows = np.concatenate([rng.normal(size=(40, 3)), quaternions], 1)[:, None]
    turn = rotation_matrix(
        columns_of_quaternion(np.array([0.1, -0.3, 0.5, 0.8]) / np.linalg.norm([0.1, -0.3, 0.5, 0.8]))
    )
    moved = windows.copy()
    moved[:, 0, :3] = windows[:, 0, :3] @ turn.T + [1.0, 2.0, 3.0]
    moved[:, 0, 3:] = -quaternion_of(turn @ rotation_matrix(columns_of_quaternion(quaternions)))
    feature_map = GeometricFeatures(layout)
    np.testing.assert_allclose(distances(features(feature_map, moved)), distances(features(feature_map, windows)))


def test_a_function_and_a_torch_module_can_be_feature_maps():
    demos = random_demos(np.random.default_rng(4), 3, 20, 4, 2)
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(), torch.nn.Tanh())
    weight, bias = (p.detach().double().numpy() for p in module[0].parameters())

    def function(windows):
        return np.tanh(windows @ weight.T + bias)

    observation = demos[0].observations[3]
    for map_a, map_b in ((module, function), (lambda o: o[:, :2], lambda o: o[:, 1::-1])):
        a, b = (
            ClosedFormPolicy(demos, feature_map=m, n_action_steps=4).plan(observation, seed=0) for m in (map_a, map_b)
        )
        np.testing.assert_allclose(a.actions, b.actions, atol=1e-4)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda o: o[:, 0], r"must return \(5, D_z\) for 5 windows, found \(5,\)"),
        (lambda o: o[:2], r"found \(2, 6\)"),
        (lambda o: o * np.nan, "not finite"),
    ],
)
def test_what_a_function_returns_is_checked(function, message):
    with pytest.raises(ClosedFormError, match=message):
        CustomFeatures(function).lift(np.ones((5, 2, 3)))


def test_an_unknown_name_is_refused():
    with pytest.raises(ClosedFormError, match="'identity', 'scaled', 'geometric' or a function, found 'fourier'"):
        make_feature_map("fourier", Layout.plain(2), 1)
