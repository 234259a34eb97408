"""A number that cannot be right is refused wherever demonstrations become a policy, and no correct data are."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closedform import ClosedFormPolicy, Demos, Episode, Layout
from closedform.analysis.health import examine
from closedform.analysis.verdict import judge
from closedform.demos.faults import find_faults
from closedform.errors import DataError
from tests.conftest import planar_demos, random_demos, real_demos


def layouts(demos):
    return demos.observation_layout, demos.action_layout


@cache
def real(name):
    return real_demos(name)


def with_fault(demos, episode, what, step, column, value):
    arrays = {name: getattr(demos[episode], name).astype(float) for name in ("observations", "actions")}
    arrays[what][step, column] = value
    some = list(demos)
    some[episode] = Episode(**arrays)
    return Demos(some, *layouts(demos), demos.rate, finite=False)


@settings(max_examples=30)
@given(data=st.data())
def test_one_faulty_number_anywhere_in_real_data_is_named(data):
    demos = real(data.draw(st.sampled_from(["pusht-embedded", "pusht", "robomimic-lift-10"])))
    what = data.draw(st.sampled_from(["observations", "actions"]))
    episode = data.draw(st.integers(0, len(demos) - 1))
    shape = getattr(demos[episode], what).shape
    step, column = (data.draw(st.integers(0, size - 1)) for size in shape)
    assert find_faults(demos.episodes, layouts(demos)) == {}
    value = data.draw(st.sampled_from([1e6, -1e6, 1e9, -1e9, 1e200, -1.7e308]))
    found = find_faults(with_fault(demos, episode, what, step, column, value).episodes, layouts(demos))
    assert list(found) == [episode]
    assert (found[episode].what, found[episode].step, found[episode].column) == (what, step, column)


def test_fit_and_add_refuse_the_episode_and_plans_stay(pusht):
    demos = pusht[:20]
    for what, column, name in (("observations", 2, "entry 2 (block position)"), ("actions", 1, "entry 1 (agent posi")):
        faulty = with_fault(demos, 7, what, 40, column, 1e9)
        with pytest.raises(DataError) as fitted:
            ClosedFormPolicy(faulty)
        assert f"episode 7: {what}: found 1e+09 at step 40, {name}" in str(fitted.value)
        policy = ClosedFormPolicy(demos)
        before = policy.plan(pusht[30].observations[20], seed=0)
        with pytest.raises(DataError) as added:
            policy.add(faulty[7])
        assert f"episode 20: {what}: found 1e+09 at step 40, {name}" in str(added.value)
        np.testing.assert_array_equal(policy.plan(pusht[30].observations[20], seed=0).actions, before.actions)


def test_several_faulty_episodes_are_all_found():
    demos = planar_demos(np.random.default_rng(0))
    for episode in (1, 4):
        demos = with_fault(demos, episode, "observations", 3, 0, 10.0 ** (5 + episode))
    assert list(find_faults(demos.episodes, layouts(demos))) == [1, 4]


def test_inspect_names_the_number():
    health = examine(with_fault(planar_demos(np.random.default_rng(0)), 2, "actions", 5, 1, -1e7))
    text = judge(health).text
    assert "cannot be used as they are: action entry 1 (hand position) is -1e+07" in text
    assert "in episode 2, step 5" in text


@st.composite
def odd_but_right(draw):
    """Data with rare events: flags that are set once, a body that moves for the first time, contact forces."""
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    walks = random_demos(rng, draw(st.integers(1, 12)), draw(st.integers(5, 40)), 3, 2)
    noise = draw(st.sampled_from([0.0, 1e-12, 1e-4]))
    kind = draw(st.sampled_from(["one-hot", "flag", "forces", "first move", "idle", "units"]))
    episodes = []
    for index, episode in enumerate(walks):
        n = len(episode)
        extra = noise * rng.normal(size=(n, 2))
        match kind:
            case "one-hot":
                extra = np.eye(5)[rng.integers(5, size=n) * (rng.random() < 0.3)]
            case "flag":
                extra[n // 2, 0] += index == 0
            case "forces":  # with a variance, barely
                extra += np.where(rng.random((n, 2)) < 0.1, 20 * rng.standard_t(2.5, size=(n, 2)), 0)
            case "first move":
                extra += (index == 0) * np.linspace(0, 1, n)[:, None]
            case "idle":
                episode = Episode(np.repeat(episode.observations[:1], n, 0), np.repeat(episode.actions[:1], n, 0))
            case "units":
                extra = extra + rng.normal(size=(n, 2)) * [1e-3, 1e3]
        episodes.append((np.concatenate([episode.observations, extra], 1), episode.actions))
    return Demos(episodes)


@settings(max_examples=100)
@given(odd_but_right())
def test_correct_data_are_never_refused(demos):
    assert find_faults(demos.episodes, layouts(demos)) == {}


def test_an_ignored_number_may_be_anything():
    demos = with_fault(planar_demos(np.random.default_rng(0)), 2, "observations", 5, 4, 1e9)
    ignored = Layout.parse("hand position 2, block position 2, - ignored 1")
    assert find_faults(demos.episodes, (ignored, demos.action_layout)) == {}
