"""The wide benchmark: its environments, its peers, and cells that are run once."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from closedform import Demos, provenance
from closedform.errors import ClosedFormError, ConfigError, LoadError
from closedform.evaluation.rollout import roll_out
from fuzz.results import make_results
from studies.runner import Runner
from studies.wide import again, report
from studies.wide import run as run_wide
from studies.wide.benchmarks import BENCHMARKS, DEVELOPMENT, DEVELOPMENT_SEED, METAWORLD, POLICIES, SEED, Benchmark
from studies.wide.cells import Cell, all_cells, choose, run_cells
from studies.wide.gpi import Displacements, GPIPolicy
from studies.wide.lasa import Lasa, follow, resample
from studies.wide.mlp import MLPConfig, MLPPolicy
from tests.evaluation.toy import reach_demos


def arcs(n_points=60):
    """Three quarter circles, drawn at different paces, that end at the origin."""
    time = np.linspace(0, 1, 400)
    angle = np.pi / 2 * time
    positions = [radius * np.array([np.cos(angle), np.sin(angle) - 1]) for radius in (38.0, 40.0, 42.0)]
    return resample(positions, [time * duration for duration in (1.0, 2.0, 3.0)], n_points)


def test_resampled_paths_are_evenly_spaced_in_time_and_end_as_recorded():
    shape = arcs()
    assert shape.paths.shape == (3, 60, 2) and shape.dt == pytest.approx(2.0 / 59)
    np.testing.assert_allclose(shape.paths[:, -1], 0, atol=1e-9)
    np.testing.assert_allclose(shape.paths[:, 0, 0], [38, 40, 42])
    steps = np.linalg.norm(np.diff(shape.paths[1], axis=0), axis=1)
    assert np.ptp(steps) < 1e-3  # a circle at constant speed


@pytest.mark.parametrize("action", ["position", "velocity"])
def test_actions_of_a_demonstration_lead_along_it(action):
    shape = arcs()
    demos = shape.demos(action)
    environment = Lasa(shape, action)
    environment.reset(0)
    environment._position = shape.paths[0, 0].copy()
    found = [environment.step(action).observation for action in demos[0].actions]
    np.testing.assert_allclose(found[:-1], shape.paths[0, 1:], atol=1e-9)
    np.testing.assert_allclose(found[-1], 0, atol=1e-9)


def test_success_is_to_stay_at_the_goal():
    shape = arcs()
    near, away = (shape.goal + np.array([distance, 0.0]) for distance in (0.5, 9.0))
    outcomes = {}
    for name, last in (("stays", near), ("leaves", away)):
        environment = Lasa(shape, "position")
        environment.reset(0)
        results = [environment.step(near) for _ in range(environment.max_steps - 1)]
        assert not any(one.success or one.done for one in results)
        outcomes[name] = environment.step(last)
    assert outcomes["stays"].success and outcomes["stays"].done
    assert not outcomes["leaves"].success and outcomes["leaves"].done


def test_path_errors_count_what_is_off_and_what_is_left_out():
    shape = arcs()
    rollout = roll_out(Lasa(shape, "position"), MLPPolicy(shape.demos("position"), MLPConfig(n_steps=1)), 0)
    rest = np.repeat(shape.goal[None], 60, axis=0)

    def told(path):
        return follow(shape, replace(rollout, observations=np.concatenate([path, rest])))

    exact, off, short = shape.paths[1], shape.paths[1] + [0.0, 1.0], shape.paths[1, [0, -1]]
    assert told(exact)["path_error"] == pytest.approx(0.0, abs=1e-9)
    assert 0.2 < told(off)["path_error"] < 1.5 and told(short)["path_error"] > 3
    assert 0.9 < told(exact)["arrival"] <= 1.0  # within the tolerance a little before the end
    assert follow(shape, replace(rollout, observations=shape.paths[1, :30]))["arrival"] is None


def test_starts_are_near_demonstrated_ones_and_depend_on_the_seed_alone():
    environment = Lasa(arcs(), "position")
    starts = np.array([environment.reset(seed) for seed in range(300)])
    np.testing.assert_array_equal(environment.reset(5), starts[5])
    gaps = starts - environment.shape.paths[np.arange(300) % 3, 0]
    assert np.abs(gaps.mean(0)).max() < 0.6 and gaps.std() == pytest.approx(2.0, rel=0.15)


def test_gpi_repeats_what_was_demonstrated_and_is_drawn_back_to_it():
    path = np.stack([np.arange(40.0), np.zeros(40), np.full(40, 7.0)], axis=1)  # the last number never changes
    demos = Demos([(path, np.tile([1.0, 0.0], (40, 1)))])
    policy = GPIPolicy(demos, Displacements([0, 1], [0, 1], 1.0))
    on, off = policy.plan(path[10]), policy.plan(path[10] + [0.0, 4.0, 100.0])
    np.testing.assert_allclose(on.actions, demos[0].actions[10:18])
    assert (on.steps[0], off.steps[0]) == (10, 10) and off.weights.sum() == pytest.approx(1)
    np.testing.assert_allclose(off.actions.sum(0), [8.0, -4.0])  # the gap is closed within a chunk
    np.testing.assert_allclose(GPIPolicy(demos).plan(path[10] + [0.0, 4.0, 0.0]).actions, on.actions)


def test_gpi_prefers_near_demonstrations():
    demos = Demos([(np.full((20, 1), level), np.full((20, 1), level)) for level in (0.0, 1.0, 10.0)])
    plan = GPIPolicy(demos).plan([0.1])
    assert list(plan.episodes) == [0, 1, 2] and plan.weights[0] > plan.weights[1] > plan.weights[2]


def test_behavior_cloning_learns_a_smooth_policy_and_ignores_constants():
    pytest.importorskip("torch", reason="behavior cloning needs torch")
    rng = np.random.default_rng(0)
    observations = rng.uniform(-1, 1, (300, 3)) * [1, 1, 0] + [0, 0, 5]
    actions = observations[:, :2] @ [[1.0, 0.0], [0.5, -1.0]]
    demos = Demos([(row[None], action[None]) for row, action in zip(observations, actions, strict=True)])
    policy = MLPPolicy(demos, MLPConfig(n_action_steps=1, n_execute=1, width=32, n_steps=400, batch_size=64))
    again = MLPPolicy(demos, policy.config)
    errors = [np.abs(policy.plan(observation).actions[0] - action) for observation, action in demos_pairs(demos)]
    assert np.mean(errors) < 0.1 * np.abs(actions).mean()
    np.testing.assert_array_equal(policy.plan([0.3, 0.2, 5.0]).actions, again.plan([0.3, 0.2, 99.0]).actions)
    far = policy.plan([50.0, -50.0, 5.0]).actions[0]
    assert (far <= actions.max(0)).all() and (far >= actions.min(0)).all()


def demos_pairs(demos):
    return [(episode.observations[0], episode.actions[0]) for episode in demos]


def _toy(task, folder):
    return reach_demos(20)


@pytest.fixture
def toy(monkeypatch):
    """The benchmark with two toy tasks instead of all others."""
    benchmark = Benchmark("Toys", ("Reach", "StopsAtSeed3"), (20, 5), 4, "tests.evaluation.toy:{task}", _toy)
    for name in list(BENCHMARKS):
        monkeypatch.delitem(BENCHMARKS, name)
    monkeypatch.setitem(BENCHMARKS, "metaworld", benchmark)
    for name in set(POLICIES) - {"default", "1nn", "gpi"}:
        monkeypatch.delitem(POLICIES, name)
    return benchmark


def test_cells_are_run_once_and_resumed(toy, tmp_path, monkeypatch):
    cells = [Cell("metaworld", "Reach", 5, policy, 100, 4) for policy in ("default", "gpi")]
    results = run_cells(cells, tmp_path / "work", tmp_path, 1)
    assert [one.subject.n_episodes for one in results.values()] == [4, 4]
    path = tmp_path / "work" / f"{cells[0].key}.json"
    part = json.loads(path.read_text())
    whole = results[cells[0]]
    stopped = replace(whole, complete=False, episodes=whole.episodes[:2])
    type(whole).of(whole.subject, stopped.episodes, whole.origin).save(path)
    assert cells[0].found(tmp_path / "work") is None
    resumed = run_cells(cells, tmp_path / "work", tmp_path, 1)[cells[0]]
    assert [one.seed for one in resumed.episodes] == [100, 101, 102, 103]
    assert resumed.episodes[:2] == whole.episodes[:2]  # with the latencies of the first run
    assert [row["success"] for row in part["episodes"]] == [one.success for one in resumed.episodes]
    monkeypatch.setattr(Cell, "study", lambda *_: pytest.fail("it was run again"))
    assert run_cells(cells, tmp_path / "work", tmp_path, 1)[cells[0]] == resumed


def test_cells_are_resumed_where_the_package_is_not_installed(toy, tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "versions", lambda: {"python": "3"})
    cell = Cell("metaworld", "Reach", 5, "gpi", 100, 2)
    whole = run_cells([cell], tmp_path, tmp_path, 1)[cell]
    type(whole).of(whole.subject, whole.episodes[:1], whole.origin).save(tmp_path / f"{cell.key}.json")
    assert len(run_cells([cell], tmp_path, tmp_path, 1)[cell].episodes) == 2


def test_policies_of_different_demonstrations_are_not_compared(toy, tmp_path, monkeypatch):
    cells = [Cell("metaworld", "Reach", 5, policy, 100, 2) for policy in ("1nn", "gpi")]
    run_cells(cells[:1], tmp_path, tmp_path, 1)
    monkeypatch.setitem(BENCHMARKS, "metaworld", replace(toy, read=lambda task, folder: reach_demos(20, seed=1)))
    with pytest.raises(LoadError, match="expected the same demonstrations, found checksums"):
        run_cells(cells, tmp_path, tmp_path, 1)


def test_results_of_other_parameters_are_not_taken_for_todays(toy, tmp_path, monkeypatch):
    cell = Cell("metaworld", "Reach", 5, "1nn", 100, 2)
    run_cells([cell], tmp_path / "work", tmp_path, 1)
    with pytest.raises(LoadError, match=r"expected results of .* 100 3, found those of .* 100 2; remove it"):
        replace(cell, n_episodes=3).found(tmp_path / "work")
    monkeypatch.setattr(type(toy), "parameters", lambda *_: {**toy_parameters, "n_execute": 1})
    toy_parameters = json.loads((tmp_path / "work" / f"{cell.key}.json").read_text())["parameters"]
    with pytest.raises(LoadError, match="found other n_execute; remove it"):
        cell.found(tmp_path / "work")


def test_a_cell_that_fails_does_not_stop_the_others(toy, tmp_path):
    cells = [Cell("metaworld", task, 5, "1nn", 2, 2) for task in ("StopsAtSeed3", "Reach")]
    with pytest.raises(ClosedFormError, match=r"1 of 2 evaluations failed, .*StopsAtSeed3.*no more"):
        run_cells(cells, tmp_path / "work", tmp_path, 1)
    assert cells[1].found(tmp_path / "work") is not None
    with pytest.raises(ClosedFormError, match="expected at least 30 demonstrations, found 20"):
        run_cells([replace(cells[1], n_demos=30)], tmp_path / "work", tmp_path, 1)


def test_the_study_is_written_with_tables_and_figures(toy, tmp_path):
    runner = Runner("wide", tmp_path / "out", tmp_path / "work", 1)
    run_wide(replace(runner, only=("metaworld_Reach_*_1nn",)))
    assert not (tmp_path / "out").exists() and len(list((tmp_path / "work").glob("*.json"))) == 2
    run_wide(runner)
    text = (tmp_path / "out" / "README.md").read_text()
    assert "closed form, default" in text and "| 1-NN |" in text and "StopsAtSeed3" in text
    for name in ("summary.csv", "tasks.csv", "worse.csv", "metaworld_20.png", "metaworld_20.csv", "origin.json"):
        assert (tmp_path / "out" / name).stat().st_size > 10, name
    assert len((tmp_path / "out" / "tasks.csv").read_text().splitlines()) == 1 + 2 * 2 * 3


def test_the_default_is_measured_again_beside_the_tables(toy, tmp_path):
    runner = Runner("wide", tmp_path / "out", tmp_path / "work", 1)
    run_wide(runner)
    table = (tmp_path / "out" / "tasks.csv").read_text()
    tampered = table.replace("metaworld,Reach,20,1nn,", "metaworld,Reach,20,1nn,9,9,9,2.0,", 1)
    (tmp_path / "out" / "tasks.csv").write_text(tampered)  # a 1-NN better than any default can be
    run_wide(replace(runner, only=("metaworld_Reach_*_default",)))
    text = (tmp_path / "out" / "default.md").read_text()
    assert "- Reach from 20" in text and "1nn 2.00" in text
    assert len((tmp_path / "out" / "default.csv").read_text().splitlines()) == 1 + 2
    run_wide(replace(runner, only=("metaworld_StopsAtSeed3_*_default",)))  # another part keeps the first one
    assert len((tmp_path / "out" / "default.csv").read_text().splitlines()) == 1 + 4
    assert "- Reach from 20" in (tmp_path / "out" / "default.md").read_text()
    run_wide(runner)
    assert again.SENTENCE in (tmp_path / "out" / "README.md").read_text()


def test_cells_are_chosen_by_patterns():
    cells = all_cells()
    assert len({cell.key for cell in cells}) == len(cells)
    chosen = choose(cells, ("metaworld_*_25_default", "pusht_*_5_gpi"))
    assert len(chosen) == 51 and {cell.policy for cell in chosen} == {"default", "gpi"}
    with pytest.raises(ConfigError, match=r"no evaluation 'metaworld_\*_11_default': expected BENCHMARK_TASK"):
        choose(cells, ("metaworld_*_11_default",))


def test_development_is_apart_from_what_is_reported():
    assert len(METAWORLD) == len(set(METAWORLD)) == 50 and len(set(DEVELOPMENT) & set(METAWORLD)) == 10
    assert DEVELOPMENT_SEED + 1000 < SEED == 100_000


def made(successes, seed=0):
    """Results with these successes."""
    base = make_results("base")
    rows = [
        replace(base.episodes[0], seed=seed + i, success=bool(one), score=float(one)) for i, one in enumerate(successes)
    ]
    subject = replace(base.subject, seed=seed, n_episodes=len(rows))
    return type(base).of(subject, rows, base.origin)


def test_means_are_over_tasks_with_intervals_over_starts():
    rng = np.random.default_rng(1)
    groups = [rng.random(50) < rate for rate in (0.2, 0.5, 0.9)]
    found = report.stratified_mean(groups)
    rates = np.array([group.mean() for group in groups])
    half = 1.96 * np.sqrt((rates * (1 - rates) / 50).sum()) / 3
    assert found.mean == pytest.approx(rates.mean())
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.1)
    certain = report.stratified_mean([np.ones(5), np.zeros(50)])
    assert (certain.mean, certain.low, certain.high) == (0.5, 0.5, 0.5)  # tasks are not drawn again


def test_differences_are_paired_with_the_default():
    half = np.arange(40) % 2
    cells = {policy: Cell("metaworld", "reach-v3", 25, policy, 0, 40) for policy in ("default", "1nn", "paper")}
    outcomes = {"default": half, "1nn": 1 - half, "paper": half | (np.arange(40) < 8)}
    results = {cells[policy]: made(outcomes[policy]) for policy in cells}
    rows = {row["policy"]: row for row in report.summarize(results)}
    assert rows["default"]["difference"] == rows["default"]["difference_high"] == 0
    assert rows["1nn"]["difference"] == 0 and rows["1nn"]["difference_high"] > 0.2  # every episode differs
    assert rows["paper"]["difference"] == 0.1 and rows["paper"]["difference_low"] > 0
    worse = report.worse_tasks(results, 25)
    assert [(row["task"], row["policy"], row["better_by"]) for row in worse] == [("reach-v3", "paper", 0.1)]


def test_recordings_are_not_read_for_results_that_are_complete(toy, tmp_path, monkeypatch):
    cell = Cell("metaworld", "Reach", 5, "1nn", 100, 2)
    first = run_cells([cell], tmp_path / "work", tmp_path, 1)
    gone = replace(toy, read=lambda task, folder: pytest.fail("it was read"), env="no.such.module:{task}")
    monkeypatch.setitem(BENCHMARKS, "metaworld", replace(gone, env=toy.env))
    assert run_cells([cell], tmp_path / "work", Path("nowhere"), 1) == first
