"""What a session finds out in the background: symmetry, although it begins with nothing."""

import numpy as np

from closedform import ClosedFormPolicy, load_demos
from closedform.judge.symmetry_search import FEWEST_EPISODES
from closedform.studio import Collection
from closedform.studio.answers import Answers, at_once


def begun():
    """Nothing yet, in the layouts of Push-T, and recorded episodes to demonstrate with."""
    demos = load_demos("pusht-embedded")
    return demos, Collection(ClosedFormPolicy(demos[:1]), rate=demos.rate)


def spare():
    raise AssertionError("no run is asked for")


def test_a_session_that_begins_with_nothing_looks_for_symmetry_as_it_grows():
    demos, collection = begun()
    told = []
    answers = Answers(collection, None, spare, at_once, told.append)
    for episode in demos.episodes[: FEWEST_EPISODES - 1]:
        collection.add(episode, "demonstration")
        answers.edited()
    assert collection.policy is not None and not collection.policy.found_symmetry and not told
    last = collection.add(demos[FEWEST_EPISODES - 1], "demonstration")
    answers.edited()
    assert collection.policy.found_symmetry and len(told) == 1 and "count as well" in told[0]
    seen = demos[20].observations[5]
    fresh = ClosedFormPolicy(demos[:FEWEST_EPISODES])
    np.testing.assert_array_equal(
        collection.policy.plan(seen, seed=0).actions, fresh.plan(seen, seed=0).actions
    )  # as if it had been made of them
    again = begun()[1]
    again.replay(collection.log.text())
    assert again.policy is not None and again.policy.found_symmetry
    collection.delete(last.number)
    answers.edited()
    assert not collection.policy.found_symmetry and "do not count any more" in told[1]
    collection.undo()
    answers.edited()
    assert collection.policy.found_symmetry and len(collection.held) == FEWEST_EPISODES


def test_edits_meanwhile_are_judged_afterwards_and_not_lost():
    demos, collection = begun()
    waiting = []
    answers = Answers(collection, None, spare, lambda job, then: waiting.append((job, then)), lambda said: None)
    for episode in demos.episodes[: FEWEST_EPISODES + 1]:  # all of them while the first job has not answered
        collection.add(episode, "demonstration")
        answers.edited()
    n_asked = len(waiting)
    while waiting:
        job, then = waiting.pop(0)
        then(job())
    assert n_asked <= 2 and collection.policy is not None and collection.policy.found_symmetry
    assert len(collection.policy.episodes) == FEWEST_EPISODES + 1
