"""Evaluating: the same result with any number of processes, and nothing lost when it stops."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from closedform import ClosedFormPolicy, load_policy, save_demos
from closedform.cli import main
from closedform.cli.evaluation import print_results
from closedform.errors import ClosedFormError, ConfigError, DataError
from closedform.evaluation import pusht
from closedform.evaluation.environment import BUILT_IN, environment_names, make_environment
from closedform.evaluation.evaluate import evaluate
from closedform.evaluation.evaluation_result import EvaluationResult
from closedform.evaluation.intervals import ratio_ci95, wilson_ci95
from closedform.evaluation.pool import EvaluationError
from closedform.evaluation.rollout import roll_out, roll_out_together
from closedform.evaluation.study import Study
from tests.conftest import random_demos, slow_on_the_reference
from tests.evaluation.toy import Reach, reach_demos

TOY = "tests.evaluation.toy"
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # for the worker processes


@pytest.fixture(scope="module")
def policy():
    return ClosedFormPolicy(reach_demos())


@pytest.fixture
def saved(tmp_path, policy):
    policy.save(tmp_path / "policy")
    return str(tmp_path / "policy")


def without_latency(rows):
    return [dataclasses.replace(row, latency_ms=()) for row in rows]


def test_a_rollout_tells_what_happened(policy):
    seen = []
    environment = Reach()
    rollout = roll_out(environment, policy, 5, watch=lambda: seen.append(environment.render()))
    assert rollout.success and rollout.score > 0.95
    assert len(seen) == len(rollout.observations) == len(rollout.actions) + 1
    assert [step for step, _ in rollout.plans] == list(range(0, len(rollout.actions), policy.config.n_execute))
    result = rollout.result()
    assert result.steps == len(rollout.actions) and len(result.latency_ms) == len(rollout.plans)
    assert sum(share for _, share in rollout.demonstrations(100)) == pytest.approx(1)
    assert result.distances == pytest.approx([plan.distance for _, plan in rollout.plans], abs=1e-4)


def test_a_loop_is_the_same_stretch_leading_again_and_again(policy):
    class Stuck(Reach):
        def step(self, action):
            return super().step(self.hand)  # does not move

    forgetful = ClosedFormPolicy(reach_demos(), loop_memory=0.0)
    assert roll_out(Stuck(), forgetful, 5).result().loop
    assert not roll_out(Reach(), policy, 5).result().loop


def test_the_result_does_not_depend_on_the_number_of_workers(policy):
    seeds = range(20, 28)
    alone = sorted(evaluate(policy, f"{TOY}:Reach", seeds), key=lambda row: row.seed)
    together = sorted(evaluate(policy, f"{TOY}:Reach", seeds, workers=2), key=lambda row: row.seed)
    assert [row.seed for row in alone] == list(seeds)
    assert without_latency(alone) == without_latency(together)
    assert os.environ.get("OMP_NUM_THREADS") != "1"  # the limit was for the workers alone


def test_a_crashed_worker_leaves_what_was_done_and_the_study_goes_on(saved, tmp_path, monkeypatch):
    path = tmp_path / "results.json"
    study = Study.make(f"{TOY}:CrashesAtSeed7", None, saved, seed=0, n_episodes=12)
    with pytest.raises(EvaluationError, match="worker process died"):
        study.run(path, workers=2)
    partial = EvaluationResult.load(path)
    assert not partial.complete and 0 < len(partial.episodes) < 12
    monkeypatch.setenv("TOY_MENDED", "1")
    results = study.run(path, workers=2)
    assert results.complete and [row.seed for row in results.episodes] == list(range(12))
    before = {row.seed: row for row in partial.episodes}
    assert all(before.get(row.seed, row) == row for row in results.episodes)  # none was run twice
    assert study.run(path, workers=2) == results  # and now there is nothing left to do


def test_an_interruption_leaves_what_was_done(saved, tmp_path):
    path, release = tmp_path / "results.json", tmp_path / "release"
    often = "from closedform.evaluation import study; study.SAVE_EVERY = 0; from closedform.cli import main; main()"
    command = [sys.executable, "-c", often, "eval", "--env", f"{TOY}:Held", "--policy", saved]
    command += ["--episodes", "200", "--workers", "2", "--json", str(path)]
    options: dict[str, Any] = {"stderr": subprocess.PIPE, "text": True, "cwd": ROOT, "start_new_session": True}
    options["preexec_fn"] = lambda: signal.signal(
        signal.SIGINT, signal.SIG_DFL
    )  # ignored where tests run in background
    with subprocess.Popen(command, env={**os.environ, "TOY_RELEASE": str(release)}, **options) as process:
        while not path.exists() and process.poll() is None:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        time.sleep(1)
        release.touch()  # the episodes under way end; the others would take another minute
        _, said = process.communicate()
    assert process.returncode == 130
    assert "of 200 episodes, which are in" in said and "run the same command to resume" in said
    results = EvaluationResult.load(path)
    assert not results.complete and 0 < len(results.episodes) < 200
    assert results.score.mean == pytest.approx(np.mean([row.score for row in results.episodes]))


def test_an_error_in_an_environment_names_the_seed(saved, tmp_path):
    for workers in (1, 2):
        study = Study.make(f"{TOY}:StopsAtSeed3", None, saved, seed=0, n_episodes=6)
        with pytest.raises(EvaluationError, match="the episode of seed 3 failed: ValueError: no more"):
            study.run(tmp_path / f"{workers}.json", workers)
    assert EvaluationResult.load(tmp_path / "1.json").episodes


def test_a_part_made_by_other_code_is_not_gone_on_from(saved, tmp_path):
    path = tmp_path / "results.json"
    study = Study.make(f"{TOY}:Reach", None, saved, seed=0, n_episodes=3)
    complete = study.run(path, 1)
    part = study.result(complete.episodes[:2])
    dataclasses.replace(part, origin=dataclasses.replace(part.origin, commit="0ld")).save(path)
    with pytest.raises(ClosedFormError, match="found commit 0ld"):
        study.run(path, 1)
    dataclasses.replace(complete, origin=dataclasses.replace(complete.origin, commit="0ld")).save(path)
    assert study.run(path, 1).origin.commit == "0ld"  # complete ones stay what they are


def test_without_git_nothing_is_lost(saved, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    results = Study.make(f"{TOY}:Reach", None, saved, seed=0, n_episodes=1).run(tmp_path / "r.json", 1)
    assert results.origin.commit is None and results.complete


def test_a_policy_that_changed_under_its_name_is_not_the_one_that_was_evaluated(saved, tmp_path):
    results = Study.make(f"{TOY}:Reach", None, saved, seed=0, n_episodes=1).run(tmp_path / "r.json", 1)
    ClosedFormPolicy(reach_demos(), tau=0.3).save(saved)
    with pytest.raises(ClosedFormError, match="found different parameters under its name"):
        Study.of(results, f"{TOY}:Reach")


def test_a_file_of_another_evaluation_is_not_overwritten_unless_asked_for(saved, tmp_path, capsys):
    path = tmp_path / "results.json"
    Study.make(f"{TOY}:Reach", None, saved, seed=0, n_episodes=2).run(path, 1)
    with pytest.raises(ClosedFormError, match=r"found another evaluation .* 2 episodes from seed 0"):
        Study.make(f"{TOY}:Reach", None, saved, seed=0, n_episodes=3).run(path, 1)
    assert EvaluationResult.load(path).subject.n_episodes == 2
    given = ["eval", "--env", f"{TOY}:Reach", "--policy", saved, "--seed", "0", "--json", str(path), "--workers", "1"]
    with pytest.raises(SystemExit):
        main([*given, "--episodes", "1"])
    assert "--overwrite" in capsys.readouterr().err
    main([*given, "--episodes", "1", "--overwrite"])
    assert EvaluationResult.load(path).subject.n_episodes == 1


def test_a_study_can_be_made_again_from_its_results(tmp_path):
    save_demos(reach_demos(), tmp_path / "demos")
    study = Study.make(f"{TOY}:Reach", str(tmp_path / "demos"), "paper", ["tau=0.02", "n_neighbors=50"], n_episodes=2)
    results = study.run(tmp_path / "results.json", 1)
    subject, origin = results.subject, results.origin
    assert subject.parameters["tau"] == 0.02 and subject.policy == {"name": "paper", "class": "ClosedFormPolicy"}
    assert origin.versions["closedform"] and origin.machine["cores"] and subject.seed == 100000
    again = Study.of(results, f"{TOY}:Reach")
    rows = sorted(evaluate(again.policy, again.env, range(100000, 100002)), key=lambda row: row.seed)
    assert without_latency(rows) == without_latency(results.episodes)


def test_numbers_that_demonstrations_say_nothing_about_are_the_environments(tmp_path):
    demos = reach_demos()
    ends = np.cumsum([len(episode) for episode in demos])
    np.savez(tmp_path / "d.npz", observations=demos.all_observations(), actions=demos.all_actions(), episode_ends=ends)
    study = Study.make(f"{TOY}:Reach", str(tmp_path / "d.npz"), "default", n_episodes=1)
    assert study.policy.observation_layout == Reach.observation_layout


def test_environments_of_installed_packages_are_found(tmp_path, monkeypatch):
    info = tmp_path / "robots-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: robots\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[closedform.environments]\nreach = {TOY}:Reach\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = "SETTING=VALUE,..."
    families = ("metaworld:TASK", f"gym:ID,{settings}")
    families += tuple(f"{name}:{settings}" for name in ("pusht_pixels", "twin", "twin_truth"))
    assert environment_names() == sorted([*BUILT_IN, *families, "reach"])
    assert type(make_environment("reach")).__name__ == "Reach"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("kitchen", "unknown environment 'kitchen': expected one of can, .*, pusht, .*, or package.module:function"),
        ("nowhere.at_all:Robot", "expected Robot in nowhere.at_all"),
        (f"{TOY}:Robot", "expected Robot in tests.evaluation.toy"),
        (f"{TOY}:NotAnEnvironment", "expected an Environment, found a NotAnEnvironment without observation_layout"),
        (f"{TOY}:Broken", "could not be created: RuntimeError"),
        ("sys:exit", "could not be created: SystemExit"),
        (f"{TOY}:WithoutLayout", "expected action_layout to be a Layout, found 2"),
        (f"{TOY}:Endless", "expected max_steps of at least 1, found 0"),
        (":Robot", "unknown environment ':Robot'"),
    ],
)
def test_an_unknown_environment_says_what_there_is(name, message):
    with pytest.raises(ConfigError, match=message):
        make_environment(name)


def test_widths_that_do_not_fit_are_named(tmp_path):
    save_demos(random_demos(np.random.default_rng(0), 3, 20, 7, 2), tmp_path / "demos")
    with pytest.raises(DataError, match=r"expected observations of 4 numbers, found 7 \(3 too many\)"):
        Study.make(f"{TOY}:Reach", str(tmp_path / "demos"), "default")
    save_demos(random_demos(np.random.default_rng(0), 3, 20, 4, 1), tmp_path / "others")
    with pytest.raises(DataError, match=r"expected actions of 2 numbers, found 1 \(1 too few\)"):
        Study.make(f"{TOY}:Reach", str(tmp_path / "others"), "default")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--env", "kitchen"], "unknown environment 'kitchen': expected one of can, can_poses"),
        (["--demos", "nothing"], "datasets known by name are pusht-embedded, pusht"),
        (["--demos", "pusht-embedded", "--policy", "best"], "expected one of default, paper, 1nn, regression, vinn"),
        (["--demos", "pusht-embedded", "--set", "tua=1"], "unknown parameter 'tua': did you mean tau?"),
        (["--demos", "pusht-embedded", "--set", "tau=soft"], "tau: expected a number, found 'soft'"),
        (["--demos", "pusht-embedded", "--set", "tau"], "expected parameter=value, found 'tau'"),
        (["--demos", "pusht-embedded", "--set", "tau=1", "--set", "tau=2"], "'tau' is set twice"),
        (["--demos", "pusht-embedded", "--episodes", "0"], "expected at least one episode"),
        (["--demos", "pusht-embedded", "--set"], "--set: expected parameter=value, found nothing"),
        (["--demos", "pusht-embedded", "--video", "-1"], "video: expected 0 or more, found -1"),
        (["--demos", "pusht-embedded", "--workers", "0"], "workers: expected at least 1 and at most 1024, found 0"),
        (["--demos", "pusht-embedded", "--seed", "4294967296"], "expected seeds from 0 to 2^32 - 1"),
        (
            ["--demos", "pusht-embedded", "--json", "/proc/nothing.json"],
            "nothing.json: expected to write it, found",
        ),
        ([], "expected --demos, found none"),
    ],
)
def test_bad_input_to_eval_is_one_line(arguments, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["eval", *arguments])
    said = capsys.readouterr().err
    assert stop.value.code == 2 and message in said and said.count("\n") == 1


def test_a_missing_extra_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "gym_pusht.envs.pusht", None)
    pusht._simulator.cache_clear()  # another test may have imported it
    with pytest.raises(ClosedFormError, match=r"pip install 'closedform\[pusht\]'"):
        make_environment("pusht")


def test_eval_fit_and_compare_on_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_demos(reach_demos(), tmp_path / "demos")
    main(["fit", "demos", "-o", "policy", "--set", "tau=0.01", "bandwidth=0.2"])
    assert "ClosedFormPolicy(20 episodes, 300 windows) made in" in capsys.readouterr().out
    assert load_policy("policy").config.bandwidth == 0.2
    common = ["--env", f"{TOY}:Reach", "--episodes", "4", "--workers", "1"]
    main(["eval", *common, "--policy", "policy", "--json", "a.json", "--video", "2"])
    said = capsys.readouterr().out
    assert "results: a.json" in said and said.count("video: ") == 2
    assert all(b"ftyp" in path.read_bytes()[:16] for path in Path("a-videos").iterdir())
    main(["eval", *common, "--policy", "1nn", "--demos", "demos", "--json", "b.json", "--set", "n_neighbors=50"])
    main(["compare", "a.json", "b.json"])
    told = capsys.readouterr().out
    assert "b against a, 4 episodes with the same seeds" in told
    assert "(+0.00)" not in told and "(-0.00)" not in told
    main(["compare", "a.json", "b.json", "--json"])
    comparison = json.loads(capsys.readouterr().out)[0]
    assert comparison["n"] == 4 and comparison["wins"] + comparison["ties"] + comparison["losses"] == 4


@slow_on_the_reference
def test_the_default_on_the_embedded_demonstrations_solves_push_t():
    study = Study.make("pusht", "pusht-embedded", "default", seed=7000, n_episodes=24)
    results = study.run()
    assert results.score.mean >= 0.95 and results.success.mean >= 0.8


def test_episodes_in_lockstep_are_those_run_alone():
    policy, seeds = ClosedFormPolicy(reach_demos()), [3, 4, 5]
    together = roll_out_together([Reach() for _ in seeds], policy, seeds)
    for rollout, seed in zip(together, seeds, strict=True):
        alone = roll_out(Reach(), policy, seed)
        assert np.array_equal(rollout.observations, alone.observations)
        assert [step for step, _ in rollout.plans] == [step for step, _ in alone.plans]
        assert rollout.success == alone.success and len(rollout.latencies) == len(alone.latencies)


def test_rows_say_what_they_are_asked_to_and_lockstep_keeps_every_seed():
    policy = Together(reach_demos())
    rows = list(evaluate(policy, Reach, range(5), workers=1, describe=first_step))
    assert [row.seed for row in rows] == list(range(5)) and {row.extra["first"] for row in rows} == {0}
    assert policy.sizes[0] == 2 and max(policy.sizes) == 2  # blocks of two, and one that is left over


class Together(ClosedFormPolicy):
    """Says how many plans were made at once."""

    sizes: ClassVar[list[int]] = []

    @property
    def n_together(self):
        return 2

    def step_together(self, windows, states, rngs):
        self.sizes.append(len(windows))
        return super().step_together(windows, states, rngs)


def first_step(rollout):
    return {"first": rollout.plans[0][0]}


def test_the_interval_of_a_ratio_is_wider_where_events_come_together():
    rng = np.random.default_rng(0)
    met = rng.random(200) < 0.7
    single = ratio_ci95(met, np.ones(200))
    low, high = wilson_ci95(int(met.sum()), 200)
    assert single == pytest.approx((low, high), abs=0.02)
    crowded = ratio_ci95(np.where(met, 10, 0)[:20], np.full(20, 10))  # as many events, in 20 episodes
    assert crowded[1] - crowded[0] > 2 * (single[1] - single[0])


def test_the_time_of_plans_that_were_made_at_once_is_not_that_of_one(capsys):
    study = Study.of_policy("tests.evaluation.toy:Reach", Together(reach_demos()), "together", n_episodes=3)
    results = study.run(workers=1)
    print_results([results], ["together"])
    assert "for 2 at once" in capsys.readouterr().out
