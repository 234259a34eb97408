"""The runner on the twin, with pictures."""

from importlib.util import find_spec

import numpy as np
import pytest

from closedform import load_demos
from closedform.policies.choice import make_policy
from closedform.robot.clocks import LockstepClock
from closedform.robot.control import LockstepControl
from closedform.robot.controller import Controller
from closedform.robot.run_config import RunConfig
from closedform.robot.runner import Runner
from closedform.robot.twin.settings import TwinSettings
from closedform.robot.twin.station import Station
from tests.robot.twin.gl import rendering

for needed in ("cv2", "mujoco"):
    if find_spec(needed) is None:  # importing mujoco here would choose its rendering library
        pytest.skip(f"there is no {needed} here: pip install 'closedform[twin]'", allow_module_level=True)
__all__ = ["rendering"]  # a fixture


def test_the_runner_sees_plans_and_moves_and_stops_when_the_block_is_out_of_sight(rendering, tmp_path):
    policy = make_policy("default", load_demos("pusht-embedded"), ())
    clock, steps = LockstepClock(), []
    station = Station(TwinSettings.parse("dropout=0"), clock)
    station.place(100003)
    start = station.observation()

    def watch(step):
        steps.append(step)
        if len(steps) == 12:
            object.__setattr__(station.settings, "dropout", 1.0)  # every marker is hidden from now on

    control = LockstepControl(station.arm, Controller(station.kinematics, station.config, station.workspace), clock)
    config = RunConfig(max_steps=40, sight_timeout=0.8)
    parts = (station.camera, station.perception, clock, station.kinematics, station.workspace)
    with Runner(policy, control, *parts, folder=tmp_path, config=config, watch=watch) as runner:
        result = runner.run(seed=0)
        clock.sleep_until(clock.now() + 0.2)  # the halt is smooth
    control.close()
    station.close()
    assert not result.done and result.reason.startswith("no sight for 0.8 s: block was not seen for 0.")
    assert 12 < result.steps < 22 and np.linalg.norm(station.world.data.qvel[6:]) < 0.02
    recorded = load_demos(str(tmp_path / "demos"))
    assert len(recorded[0]) == result.steps
    np.testing.assert_allclose(recorded[0].observations[0], start, atol=1.0)
    assert np.linalg.norm(recorded[0].observations[-1, :2] - start[:2]) > 20  # the stick moved
    assert all(step.estimate.error < 2e-3 for step in steps)
