"""Encoding is continuous, blind to the sign of a quaternion, and can be undone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from closedform import Layout
from closedform.geometry.encoding import Encoding
from closedform.geometry.so3 import (
    columns_of_quaternion,
    matrix_of_axis_angle,
    nearest_rotation,
    quaternion_of,
    rotation_matrix,
)

ROTATIONS = ["quaternion", "quaternion_wxyz", "rotation6d", "rotation6d_rows"]


def random_quaternions(rng, n):
    quaternions = rng.normal(size=(n, 4))
    return quaternions / np.linalg.norm(quaternions, axis=1, keepdims=True)


def as_kind(kind, quaternions):
    matrices = rotation_matrix(columns_of_quaternion(quaternions))
    if kind == "quaternion":
        return quaternions
    if kind == "quaternion_wxyz":
        return np.roll(quaternions, 1, axis=1)
    return (np.swapaxes(matrices, 1, 2) if kind == "rotation6d" else matrices)[:, :2].reshape(-1, 6)


@pytest.mark.parametrize("kind", ROTATIONS)
def test_every_kind_of_rotation_has_the_same_encoding(kind):
    quaternions = random_quaternions(np.random.default_rng(0), 50)
    encoded = Encoding(Layout.of(("a", kind))).encode(as_kind(kind, quaternions))
    np.testing.assert_allclose(encoded, columns_of_quaternion(quaternions), atol=1e-12)


@pytest.mark.parametrize("kind", ROTATIONS)
def test_decoding_undoes_encoding(kind):
    layout = Layout.of(("a", "position", 3), ("a", kind), (None, "binary"), (None, "other", 2))
    rng = np.random.default_rng(1)
    rotations = as_kind(kind, random_quaternions(rng, 50))
    values = np.concatenate([rng.normal(size=(50, 3)), rotations, rng.normal(size=(50, 3))], 1)
    encoding = Encoding(layout)
    decoded = encoding.decode(encoding.encode(values))
    if "quaternion" in kind:  # up to its sign
        flip = np.sign(np.sum(decoded[:, 3:7] * values[:, 3:7], 1, keepdims=True))
        decoded[:, 3:7] *= flip
    np.testing.assert_allclose(decoded, values, atol=1e-12)


@given(st.floats(-20, 20), st.floats(-1e-7, 1e-7))
def test_angles_do_not_wrap(angle, change):
    encoding = Encoding(Layout.of(("a", "angle")))
    a, b = encoding.encode(np.array([[angle], [angle + 2 * np.pi + change]]))
    assert np.linalg.norm(a - b) < 1e-6
    decoded = encoding.decode(a)[0]
    assert abs(np.exp(1j * decoded) - np.exp(1j * angle)) < 1e-9


def test_quaternions_of_either_sign_are_the_same():
    quaternions = random_quaternions(np.random.default_rng(2), 20)
    encoding = Encoding(Layout.of(("a", "quaternion")))
    np.testing.assert_array_equal(encoding.encode(quaternions), encoding.encode(-quaternions))


@given(st.lists(st.floats(-1, 1), min_size=4, max_size=4).filter(lambda q: np.linalg.norm(q) > 0.1))
def test_any_rotation_becomes_its_quaternion(numbers):
    quaternion = np.array(numbers) / np.linalg.norm(numbers)
    found = quaternion_of(rotation_matrix(columns_of_quaternion(quaternion)))
    assert min(np.abs(found - quaternion).max(), np.abs(found + quaternion).max()) < 1e-7


def test_averaged_rotations_become_rotations_again():
    encoding = Encoding(Layout.of(("a", "rotation6d")))
    decoded = encoding.decode(np.array([[0.5, 0.1, 0.0, 0.2, 0.7, 0.1]]))
    x, y = decoded[0, :3], decoded[0, 3:]
    np.testing.assert_allclose([x @ x, y @ y, x @ y], [1, 1, 0], atol=1e-12)


def test_averaged_columns_become_the_nearest_rotation():
    rng = np.random.default_rng(0)
    for _ in range(20):
        columns = rng.normal(size=6)
        found = nearest_rotation(columns)
        np.testing.assert_allclose(found @ found.T, np.eye(3), atol=1e-12)
        assert np.linalg.det(found) == pytest.approx(1)
        left, _, right = np.linalg.svd(columns.reshape(2, 3).T, full_matrices=False)
        np.testing.assert_allclose(found[:, :2], left @ right, atol=1e-9)
    assert np.isfinite(nearest_rotation(np.zeros(6))).all() and np.isfinite(nearest_rotation(np.ones(6))).all()


def test_axis_angles_survive_encoding_also_at_half_turns():
    encoding = Encoding(Layout.of(("hand", "axis_angle")))
    rng = np.random.default_rng(1)
    axis = rng.normal(size=(50, 3))
    axis /= np.linalg.norm(axis, axis=1, keepdims=True)
    for angle in (0.0, 1e-7, 1.0, np.pi - 1e-6, np.pi):
        vectors = angle * axis
        again = encoding.decode(encoding.encode(vectors))
        np.testing.assert_allclose(matrix_of_axis_angle(again), matrix_of_axis_angle(vectors), atol=1e-7)
        assert np.linalg.norm(again, axis=1) == pytest.approx(angle, abs=1e-6)
    # A hand that points down is near a half turn, where axis-angles jump: their encodings do not.
    down = np.array([[np.pi - 0.01, 0.0, 0.0], [-np.pi + 0.01, 0.0, 0.0]])
    mean = encoding.decode(encoding.encode(down).mean(0))
    assert np.abs(mean) == pytest.approx([np.pi, 0.0, 0.0], abs=1e-6)
