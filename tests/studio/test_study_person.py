"""The scripted person of the study `studio`."""

import numpy as np
import pytest

from closedform import Demos, Episode, Layout, save_demos
from studies.studio import snapshot
from studies.studio.person import PATIENCE, Person
from studies.studio.pusher import GOAL, Pusher, error_of


def frame(step=0, agent=(100.0, 100.0, 0.0), block=(300.0, 300.0, 0.0), outcome=""):
    return {"step": step, "outcome": outcome, "poses": {"agent": list(agent), "block": list(block)}}


@pytest.mark.parametrize("seed", [0, 3, 29])
def test_the_person_solves_push_t(seed):
    pytest.importorskip("gym_pusht", reason="the extra `pusht` is not installed")
    from closedform.evaluation.pusht import PushT

    environment, person = PushT(), Pusher((0, seed))
    observation = environment.reset(seed)
    for _ in range(500):
        result = environment.step(person.target(observation))
        observation = result.observation
        if result.success:
            return
    pytest.fail(f"not solved: {error_of(observation[2:])}")


def test_nothing_is_missing_at_the_goal():
    assert np.allclose(error_of(GOAL), 0) and np.linalg.norm(error_of(GOAL + np.array([10, 0, 0]))) == pytest.approx(10)


def test_a_patient_person_takes_over_once_nothing_moves_and_lets_go_at_the_end():
    person = Person((0, 0), patient=True)
    assert person.point(frame(0)) is None
    assert person.point(frame(PATIENCE, block=(280.0, 280.0, 0.2))) is None  # it came nearer
    assert person.point(frame(2 * PATIENCE - 1, block=(280.0, 280.0, 0.2))) is None
    assert person.point(frame(2 * PATIENCE, block=(280.0, 280.0, 0.2))) is not None
    assert person.point(frame(2 * PATIENCE + 1, outcome="success")) is None


def test_an_impatient_person_drives_from_the_first_step():
    assert Person((0, 0), patient=False).point(frame(0)) is not None


def test_a_snapshot_has_the_episodes_of_that_time(tmp_path):
    layouts = Layout.of(("hand", "position", 2)), Layout.of(("hand", "position", 2))
    episodes = [Episode(np.full((3, 2), i, np.float64), np.zeros((3, 2))) for i in range(3)]
    save_demos(Demos(episodes, *layouts, 10.0), tmp_path / "demos", "folder")
    names = sorted(path.name for path in (tmp_path / "demos").glob("episode_*"))
    assert [episode.observations[0, 0] for episode in snapshot(tmp_path / "demos", names[:2])] == [0, 1]
