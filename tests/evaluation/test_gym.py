"""Environments of gymnasium by name, and demonstrations recorded with any function."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from closedform import ClosedFormPolicy, Layout, load_demos, load_policy, save_demos
from closedform.cli import main
from closedform.errors import ClosedFormError, ConfigError, DataError, LoadError
from closedform.evaluation import make_environment, record
from closedform.evaluation.environment import check_trusted
from tests.evaluation.toy import Reach

gymnasium = pytest.importorskip("gymnasium", reason="needs the extra gym")
from gymnasium import spaces  # noqa: E402


class ReachGym(gymnasium.Env):
    """The toy of the other tests as gymnasium has it, with a vector or with a Dict."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}  # noqa: RUF012

    def __init__(self, render_mode=None, named=False, image=False, tells=True):
        self.render_mode, self._named, self._image, self._tells = render_mode, named, image, tells
        parts: dict[str, spaces.Space] = {"hand": spaces.Box(-2, 2, (2,)), "target": spaces.Box(-2, 2, (2,))}
        if image:
            parts["image"] = spaces.Box(0, 255, (8, 8, 3), np.uint8)
        self.observation_space = spaces.Dict(parts) if named else spaces.Box(-2, 2, (4,))
        self.action_space = spaces.Box(-2, 2, (2,), np.float32)
        self._reach = Reach()

    def _seen(self, observation):
        named = {"hand": observation[:2], "target": observation[2:]}
        if self._image:
            named["image"] = np.zeros((8, 8, 3), np.uint8)
        return named if self._named else observation

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._seen(self._reach.reset(seed)), {}

    def step(self, action):
        assert action.dtype == np.float32 and self.action_space.contains(action)
        result = self._reach.step(action)
        info = {"left": 1 - (result.score or 0.0), **({"is_success": result.success} if self._tells else {})}
        return self._seen(result.observation), -info["left"], result.success, False, info

    def render(self):
        return self._reach.render()


class Discrete(ReachGym):
    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.action_space = spaces.Discrete(3)


LAYOUTS = Layout.parse("hand position 2, target position 2"), Layout.parse("hand position 2")
for name, made in (("Reach", ReachGym), ("Discrete", Discrete)):
    gymnasium.register(f"ClosedForm{name}-v0", made, max_episode_steps=30, disable_env_checker=True)
gymnasium.register("ClosedFormEndless-v0", ReachGym, disable_env_checker=True)
ID = "gym:ClosedFormReach-v0"


def straight(observation):
    return observation[2:]


@pytest.mark.parametrize("settings", ["", ",named=true", ",named=true,image=true,keys=hand+target"])
def test_observations_of_both_kinds(settings):
    environment, plain = make_environment(ID + settings), Reach()
    assert environment.observation_layout == Layout.plain(4) and environment.action_layout == Layout.plain(2)
    assert environment.max_steps == 30 and environment.rate == 5
    np.testing.assert_array_equal(environment.reset(3), plain.reset(3))
    for action in ([0.5, 0.25], [9, -9]):  # clipped to the space
        found, expected = environment.step(np.array(action)), plain.step(np.clip(action, -2, 2))
        np.testing.assert_allclose(found.observation, expected.observation, atol=1e-6)
        assert found.success == expected.success and found.score is None


@pytest.mark.parametrize(
    "rule",
    ["", ",success=is_success", ",tells=false,success=terminated", ",success=left<0.05", ",success=reward>-0.05"],
)
def test_what_counts_as_success(rule):
    demos = record(ID + rule, straight, range(5))
    assert len(demos) == 5 and all(len(episode) < 20 for episode in demos)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (f"{ID},tells=false", "expected is_success or success in info, found left, reward, terminated; say what"),
        (f"{ID},success=won", "success: expected one of left, is_success, reward, terminated, found 'won'"),
        (f"{ID},success=left=3", "expected NAME, NAME>NUMBER or NAME<NUMBER, found 'left=3'"),
        (f"{ID},score=none", "score: expected one of"),
        (f"{ID},named=true,image=true", "expected vectors as observations, found Box.* under 'image'; choose others"),
        (f"{ID},named=true,keys=hand+foot", "keys: expected some of hand, target, found 'foot'"),
        (f"{ID},keys=hand", "keys: expected with Dict observations"),
        (f"{ID},what", "expected settings NAME=VALUE, found 'what'"),
        (f"{ID},speed=3", "expected an environment of gymnasium, found"),
        ("gym:ClosedFormDiscrete-v0", "expected continuous actions"),
        ("gym:ClosedFormEndless-v0", "a limit of steps, found none; add max_steps=N"),
        ("gym:NoSuchThing-v0", "a package registers it, name it as well: gym:PACKAGE:NoSuchThing-v0"),
        ("gym:no.such.module:Thing-v0", "expected an environment of gymnasium, found"),
        ("gym:no_such_package/Thing-v0", "expected the package no_such_package to be installed"),
    ],
)
def test_what_cannot_be_is_one_line(name, message):
    with pytest.raises(ConfigError, match=message) as error:
        record(name, straight, [0])
    assert "\n" not in str(error.value)


def test_a_module_of_the_current_folder_registers_its_environments(tmp_path):
    """In a process of its own, whose path does not have the folder, as that of the command does not."""
    (tmp_path / "here_alone.py").write_text(
        "import gymnasium\nfrom tests.evaluation.test_gym import ReachGym\n"
        "gymnasium.register('Here-v0', ReachGym, max_episode_steps=3, disable_env_checker=True)\n"
    )
    code = "import sys; sys.path.remove(''); from closedform.evaluation import make_environment as make; "
    command = [sys.executable, "-c", code + "print(make('gym:here_alone:Here-v0').max_steps)"]
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])
    found = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert found.stdout == "3\n", found.stderr


def test_recording():
    started = []
    demos = record(f"{ID},max_steps=6", straight, range(20), start=started.append)
    everything = record(make_environment(f"{ID},max_steps=6"), straight, range(20), successes=False)
    assert started == list(range(20)) and 0 < len(demos) < len(everything) == 20
    np.testing.assert_array_equal(everything.episodes[0].actions, everything.episodes[0].observations[:, 2:])
    named = record(ID, straight, [0], observation_layout=LAYOUTS[0], action_layout=LAYOUTS[1])
    assert (named.observation_layout, named.action_layout) == LAYOUTS
    with pytest.raises(DataError, match="expected an episode that accomplishes the task, found none in 2"):
        record(ID, lambda observation: -observation[2:], range(2))
    with pytest.raises(DataError, match=r"expected actions of 2 numbers, found shape \(4,\)"):
        record(ID, lambda observation: observation, [0])


def test_a_policy_takes_the_dictionaries_that_it_was_recorded_from(tmp_path):
    """By their names, in any order, also from a saved policy of saved demonstrations."""
    demos = record(f"{ID},named=true", straight, range(5))
    assert demos.column_names == (("hand[0]", "hand[1]", "target[0]", "target[1]"), None)
    save_demos(demos, tmp_path / "demos")
    made = ClosedFormPolicy(load_demos(tmp_path / "demos"))
    made.save(tmp_path / "policy")
    here = demos[2].observations[3]
    expected = made.agent(seed=0).act(here)
    for policy in (made, load_policy(tmp_path / "policy")):
        for seen in (
            {"hand": here[:2], "target": here[2:]},
            {"target": here[2:].tolist(), "time": 3, "hand": here[:2]},
        ):
            np.testing.assert_array_equal(policy.agent(seed=0).act(seen), expected)
            np.testing.assert_array_equal(policy.plan(seen, seed=0).actions[0], expected)
        with pytest.raises(DataError, match=r"a dictionary with hand \(2\), target \(2\); found one without hand;"):
            policy.agent(seed=0).act({"target": here[2:]})
        with pytest.raises(DataError, match="observation 'hand': expected 2 numbers, found 3"):
            policy.agent(seed=0).act({"target": here[2:], "hand": here[:3]})
    named = ClosedFormPolicy(demos.with_layouts(*LAYOUTS))
    seen = {"target_position": here[2:], "hand_position": here[:2]}
    np.testing.assert_array_equal(named.agent(seed=0).act(seen), named.agent(seed=0).act(here))


def test_arrays_that_are_reused_are_recorded_as_they_were():
    action = np.zeros(2)

    def reusing(observation):
        action[:] = (observation[:2] + observation[2:]) / 2
        observation[:] = 0
        return action

    found = record(Reach(), reusing, range(3), successes=False)
    for one, other in zip(found, record(Reach(), lambda seen: (seen[:2] + seen[2:]) / 2, range(3)), strict=True):
        np.testing.assert_array_equal(one.observations, other.observations)
        np.testing.assert_array_equal(one.actions, other.actions)


@pytest.mark.parametrize("place", ["command line", "file"])
def test_evaluation_with_a_layout_of_the_command_line_or_a_file(tmp_path, monkeypatch, capsys, place):
    monkeypatch.chdir(tmp_path)
    save_demos(record(ID, straight, range(30)), "demos")
    layout = "hand position 2, target position 2 -> hand position 2"
    if place == "file":
        parts = dict(zip(("observation", "action"), layout.split(" -> "), strict=True))
        (tmp_path / "own.json").write_text(json.dumps({k: Layout.parse(part).to_json() for k, part in parts.items()}))
        layout = "own.json"
    command = ["eval", "--env", ID, "--demos", "demos", "--layout", layout, "--episodes", "4", "--workers", "1"]
    main([*command, "--set", "n_diffusion_steps=5", "--json", "results.json"])
    assert "1.000" in capsys.readouterr().out
    found = json.loads((tmp_path / "results.json").read_text())
    assert found["env"] == ID and found["demos"]["layouts"]["action"] == Layout.parse("hand position 2").to_json()


def test_a_file_cannot_choose_what_is_imported():
    with pytest.raises(LoadError, match="only if you name it as well"):
        check_trusted("gym:some_package/Thing-v0")
    check_trusted(ID, ID)
    with pytest.raises(ClosedFormError):
        check_trusted(ID, "pusht")
