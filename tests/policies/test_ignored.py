"""Entries that a layout marks as ignored take no part in a plan: it is that of data without these numbers."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closedform import ClosedFormError, Demos, Entry, Layout, load_policy
from closedform.analysis.health import examine
from closedform.geometry.encoding import Encoding
from tests.worlds import POLICIES, random_observations, random_parameters, random_world


def with_ignored(rng, demos):
    """The same with ignored entries of any numbers in between, and the columns of the others."""
    entries, columns, at = [], [], 0
    for entry, own in demos.observation_layout.slices():
        while rng.random() < 0.5:
            entries.append(Entry("ignored", int(rng.integers(1, 4)), "cube" if rng.random() < 0.3 else None))
            at += entries[-1].size
        entries.append(entry)
        columns += range(at, at + own.stop - own.start)
        at = columns[-1] + 1
    entries.append(Entry("ignored", 2))
    layout = Layout(tuple(entries))
    episodes = [(filled(rng, layout, columns, e.observations), e.actions) for e in demos]
    return Demos(episodes, layout, demos.action_layout), columns


def filled(rng, layout, columns, observations):
    """Observations with numbers of any size, constant or not, in the columns that are ignored."""
    wide = rng.normal(size=(len(observations), layout.width)) * 10.0 ** rng.uniform(-200, 200)
    wide[:, rng.random(layout.width) < 0.3] = 7.0
    wide[:, columns] = observations
    return wide


@settings(max_examples=25, derandomize=True)
@given(st.integers(0, 2**32 - 1))
def test_plans_are_those_of_data_without_these_numbers(seed):
    rng = np.random.default_rng(seed)
    demos = random_world(rng)
    wide, columns = with_ignored(rng, demos)
    policy_class = POLICIES[int(rng.integers(len(POLICIES)))]
    parameters = random_parameters(rng, policy_class)
    without, ignoring = (policy_class(d, **parameters) for d in (demos, wide))
    observations = random_observations(rng, demos, 4)
    widened = filled(rng, wide.observation_layout, columns, observations)
    n = without.config.n_obs_steps
    for switched_off in ("", "1"):
        before = os.environ.get("CLOSEDFORM_DISABLE_KERNELS")
        os.environ["CLOSEDFORM_DISABLE_KERNELS"] = switched_off
        try:
            for narrow, broad in zip(observations, widened, strict=True):
                one = without.plan(np.repeat(narrow[None], n, axis=0), seed=1)
                other = ignoring.plan(np.repeat(broad[None], n, axis=0), seed=1)
                np.testing.assert_allclose(other.actions, one.actions, rtol=1e-9, atol=1e-9)
                assert (other.frame, other.held) == (one.frame, one.held)
                np.testing.assert_allclose(other.distance, one.distance, rtol=1e-9)
        finally:
            del os.environ["CLOSEDFORM_DISABLE_KERNELS"]
            if before is not None:
                os.environ["CLOSEDFORM_DISABLE_KERNELS"] = before


def test_an_indexed_and_a_saved_policy_ignore_them_too(tmp_path):
    pytest.importorskip("faiss")
    rng = np.random.default_rng(4)
    demos = random_world(rng)
    wide, columns = with_ignored(rng, demos)
    indexed, exact = (POLICIES[0](wide, n_action_steps=3, index=index) for index in ("faiss", "exact"))
    indexed.save(tmp_path / "policy")
    observation = demos[0].observations[:1]
    expected = POLICIES[0](demos, n_action_steps=3).plan(observation[0], seed=0)
    for policy in (indexed, exact, load_policy(tmp_path / "policy")):
        found = policy.plan(filled(rng, wide.observation_layout, columns, observation)[0], seed=0)
        np.testing.assert_allclose(found.actions, expected.actions, atol=1e-9)


def test_stacked_frames_are_marked_in_text():
    layout = Layout.parse("hand position 2, block position 2, - ignored 4")
    assert layout.used_columns == (0, 1, 2, 3) and layout.ignores and layout.bodies == ("hand", "block")
    assert Layout.from_json(layout.to_json()) == layout
    assert Encoding(layout).encode(np.arange(8.0)).tolist() == [0, 1, 2, 3]
    assert not Layout.parse("hand position 2").ignores


def test_actions_cannot_be_ignored_and_something_must_be_observed():
    layout = Layout.parse("hand position 2, - ignored")
    with pytest.raises(ClosedFormError, match="entry 1 ignored; only observations can have ignored entries"):
        Demos([(np.zeros((3, 2)), np.zeros((3, 3)))], None, layout)
    with pytest.raises(ClosedFormError, match="only observations can have ignored entries"):
        Demos([(np.zeros((3, 2)), np.zeros((3, 3)))]).with_layouts(Layout.plain(2), layout)
    with pytest.raises(ClosedFormError, match="an entry that is not ignored, found none"):
        Layout.parse("- ignored 3, hand ignored")


def test_numbers_that_are_ignored_are_no_problem_of_the_data():
    rng = np.random.default_rng(0)
    episodes = []
    for _ in range(3):
        walk = np.cumsum(rng.normal(size=(30, 2)), axis=0)
        jumping = np.where(np.arange(30) == 20, 1e6, 0.0)
        episodes.append((np.column_stack([walk, np.zeros(30), jumping]), walk))
    ignored, other = (
        examine(Demos(episodes, Layout.parse(f"hand position 2, - {kind} 2"), Layout.parse("hand position 2")))
        for kind in ("ignored", "other")
    )
    assert {2, 3} <= {problem.column for problem in other.problems}
    assert not {2, 3} & {problem.column for problem in ignored.problems}
