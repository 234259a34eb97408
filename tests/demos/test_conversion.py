"""Displacements become targets and targets displacements, of any format."""

import numpy as np
import pytest

from closedform import ClosedFormError, ClosedFormWarning, Demos, Layout, load_demos, save_demos
from closedform.cli import main
from closedform.demos.conversion import meaning_of, to_displacements, to_targets

OBSERVATIONS = Layout.parse("hand position 3, cup position 3")
VECTORS = Layout.parse("hand vector 3, - other")


def displaced(rate=1.0, n_episodes=12, scale=0.02, seed=0):
    """A hand whose target is displaced by 0.02 times each action and that makes a share of the way to it in a step.

    Returns the demonstrations and the targets of each episode.
    """
    rng, episodes, targets = np.random.default_rng(seed), [], []
    for _ in range(n_episodes):
        hand = target = rng.uniform(-1, 1, 3)
        cup, observations, actions, path = rng.uniform(-1, 1, 3), [], [], []
        for _ in range(60):
            observations.append(np.concatenate([hand, cup]))
            action = np.clip((cup - target) / scale, -1, 1) + 0.3 * rng.normal(size=3)
            target = target + scale * action
            hand = hand + rate * (target - hand)
            actions.append(np.append(action, 1.0))
            path.append(target)
        episodes.append((np.array(observations), np.array(actions)))
        targets.append(np.array(path))
    return Demos(episodes, OBSERVATIONS, VECTORS, rate=20.0), targets


def plain(demos):
    return Demos(list(demos))


@pytest.mark.parametrize("declared", [True, False])
def test_targets_are_where_an_exact_hand_is_next(declared):
    demos, targets = displaced()
    given = demos if declared else plain(demos)
    with pytest.warns(ClosedFormWarning, match=r"scale 0\.02 and a lag of 0\.0 steps, estimated from the data"):
        converted = to_targets(given)
    assert meaning_of(given) == "displacements" and meaning_of(converted) == "targets"
    for before, after, path in zip(demos, converted, targets, strict=True):
        np.testing.assert_allclose(after.actions[:, :3], path, atol=1e-6)
        np.testing.assert_array_equal(after.actions[:, 3:], before.actions[:, 3:])
        np.testing.assert_array_equal(after.observations, before.observations)
    expected = Layout.parse("hand position 3, - other") if declared else Layout.plain(4)
    assert converted.action_layout == expected and converted.rate == given.rate


def test_targets_of_a_hand_that_follows_behind_are_ahead_of_it():
    """The hand makes a third of the way in a step: what it has yet to make belongs to the target."""
    demos, targets = displaced(rate=1 / 3)
    with pytest.warns(ClosedFormWarning, match="lag of [12]"):
        converted = to_targets(demos)
    error, lead = [], []
    for episode, path in zip(converted, targets, strict=True):
        error.append(np.linalg.norm(episode.actions[10:, :3] - path[10:], axis=1))
        lead.append(np.linalg.norm(episode.observations[10:, :3] - path[10:], axis=1))
    assert np.mean(error) < 0.3 * np.mean(lead)


def test_there_and_back_is_the_same():
    demos, _ = displaced()
    again = to_displacements(to_targets(demos, 0.02), 0.02)
    assert again.action_layout == VECTORS
    for one, other in zip(demos, again, strict=True):
        np.testing.assert_allclose(other.actions, one.actions, atol=1e-9)


def test_what_cannot_be_converted_is_refused():
    demos, _ = displaced()
    absolute = to_targets(demos, 0.02)
    with pytest.raises(ClosedFormError, match="found absolute targets: nothing to convert"):
        to_targets(absolute)
    with pytest.raises(ClosedFormError, match="targets of an observed body, found none"):
        to_displacements(demos, 0.02)
    with pytest.raises(ClosedFormError, match="displacements of an observed body, found none"):
        to_targets(Demos([(np.random.default_rng(0).normal(size=(50, 3)), np.ones((50, 2)))]))
    for scale in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ClosedFormError, match="action_scale: expected a number above 0"):
            to_targets(demos, scale)
    still = Demos([(np.zeros((50, 2)), np.ones((50, 2)))], Layout.parse("a position 2"), Layout.parse("a vector 2"))
    with pytest.raises(ClosedFormError, match="expected a scale, which could not be estimated"):
        to_targets(still)


@pytest.mark.parametrize("name", ["folder", "a.zarr", "a.hdf5", "lerobot"])
def test_every_format_is_converted(tmp_path, name, capsys):
    if name != "folder":
        pytest.importorskip({"a.zarr": "zarr", "a.hdf5": "h5py", "lerobot": "pyarrow"}[name])
    demos, targets = displaced(n_episodes=3)
    save_demos(demos, tmp_path / name, "lerobot" if name == "lerobot" else None)
    main(["convert", str(tmp_path / name), str(tmp_path / "new"), "--actions", "absolute", "--action-scale", "0.02"])
    read = load_demos(tmp_path / "new")
    assert "3 episodes" in capsys.readouterr().out and meaning_of(read) == "targets"
    np.testing.assert_allclose(read[1].actions[:, :3], targets[1], atol=1e-5)
    back = load_demos(tmp_path / "new", actions="displacements", action_scale=0.02)
    np.testing.assert_allclose(back[1].actions, demos[1].actions, atol=1e-3)


def test_options_that_do_not_go_together_are_refused(tmp_path):
    demos, _ = displaced(n_episodes=2)
    save_demos(demos, tmp_path / "demos")
    with pytest.raises(ClosedFormError, match="expected actions 'absolute' or 'displacements' with it, found 'recor"):
        load_demos(tmp_path / "demos", action_scale=1.0)
    with pytest.raises(ClosedFormError, match="moves the body in the environment, found none"):
        load_demos(tmp_path / "demos", actions="displacements")
    with pytest.raises(ClosedFormError, match="absolute_6d apply to robomimic files only"):
        load_demos(tmp_path / "demos", actions="absolute_6d")
    with pytest.raises(ClosedFormError, match=r"demos: expected actions that are targets of an observed body"):
        load_demos(tmp_path / "demos", actions="displacements", action_scale=1.0)
    assert load_demos(demos, actions="absolute", action_scale=0.02).action_layout.entries[0].kind == "position"
