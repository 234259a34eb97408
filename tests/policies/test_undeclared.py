"""What the numbers are is inferred by one rule, in Python as on the command line, where nothing is declared."""

import warnings

import numpy as np
import pytest

from closedform import (
    ClosedFormPolicy,
    ClosedFormWarning,
    Demos,
    Layout,
    NearestNeighborPolicy,
    load_demos,
    load_policy,
    save_demos,
)
from closedform.analysis.health import examine
from closedform.cli import main
from closedform.demos.chosen_layouts import choose_layouts
from closedform.demos.conversion import to_displacements
from tests.evaluation.toy import reach_demos

INFERRED = "no layouts are declared, so they are inferred: observations hand position 2, "


def undeclared(n=8):
    return Demos(reach_demos(n).episodes)


@pytest.mark.parametrize("name", ["demos.npz", "demos.csv", "demos.zarr", "demos"])
def test_python_and_the_command_line_make_the_same_policy_of_any_file(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_demos(undeclared(), tmp_path / name)
    main(["fit", name, "-o", "fitted"])
    with pytest.warns(ClosedFormWarning, match=INFERRED) as told:
        policy = ClosedFormPolicy(load_demos(tmp_path / name))
    assert len(told) == 1 and "\n" not in str(told[0].message) and told[0].filename == __file__
    fitted, observation = load_policy("fitted"), reach_demos(1)[0].observations[2]
    assert policy.observation_layout == fitted.observation_layout != Layout.plain(4)
    assert policy.action_layout == fitted.action_layout
    np.testing.assert_array_equal(policy.plan(observation, seed=0).actions, fitted.plan(observation, seed=0).actions)


def test_some_of_undeclared_demonstrations_are_undeclared():
    demos = undeclared()
    kept = (demos[:5], demos.where(np.ones(demos.n_steps, bool)), demos.with_episodes(demos), load_demos(demos))
    converted = to_displacements(demos, 1.0)
    for some in (*kept, load_demos(demos, episodes=[0, 2]), converted):
        assert not some.declared
    with pytest.warns(ClosedFormWarning, match=INFERRED):
        NearestNeighborPolicy([(episode.observations, episode.actions) for episode in demos])


def test_what_is_declared_is_not_inferred_even_if_it_says_nothing(tmp_path):
    plain = Layout.plain(4), Layout.plain(2)
    demos = undeclared()
    declared = (Demos(demos.episodes, *plain), demos.with_layouts(*plain), choose_layouts(demos, "none").demos)
    for some in (*declared, choose_layouts(demos, "env").demos, demos.with_layouts()):
        policy = ClosedFormPolicy(some[:5])
        assert (policy.observation_layout, policy.action_layout) == plain
    with_one = ClosedFormPolicy(Demos(demos.episodes, action_layout=Layout.of(("hand", "position", 2))))
    assert with_one.observation_layout == plain[0]


def test_nothing_is_said_where_nothing_is_found():
    rng = np.random.default_rng(0)
    demos = Demos([(rng.normal(size=(30, 3)), rng.normal(size=(30, 2))) for _ in range(4)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ClosedFormPolicy(demos).observation_layout == Layout.plain(3)


def test_a_report_infers_layouts_and_says_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        examine(undeclared())


def test_one_layout_can_be_declared_and_the_other_kept():
    demos, hand = reach_demos(3), Layout.of(("hand", "vector", 2))
    assert demos.with_layouts(demos.observation_layout, None) is demos.with_layouts(None, demos.action_layout) is demos
    changed = demos.with_layouts(action_layout=hand)
    assert (changed.observation_layout, changed.action_layout) == (demos.observation_layout, hand)
    with pytest.raises(ValueError, match="action_layout: expected a Layout, or None to keep it, found 'hand vector 2'"):
        demos.with_layouts(None, "hand vector 2")  # pyright: ignore[reportArgumentType]
