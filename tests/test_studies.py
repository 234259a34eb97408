"""Studies: run once, written with data beside each figure."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from closedform import ClosedFormPolicy, save_demos
from closedform.errors import ConfigError, LoadError
from closedform.evaluation.environment import StepResult, make_environment
from closedform.figures import pyplot
from fuzz.results import make_results
from studies import augmentation, guidance, invariance, pusht, realtime, robomimic, symmetry, tuning
from studies.__main__ import Make
from studies.runner import Runner, markdown_table
from tests.conftest import planar_demos
from tests.evaluation.toy import reach_demos

TOY = "tests.evaluation.toy:Reach"
DEMOS = planar_demos(np.random.default_rng(0))


def test_evaluations_are_not_run_again(tmp_path):
    save_demos(reach_demos(), tmp_path / "demos")
    runner = Runner("toy", tmp_path / "out", tmp_path / "work", 1)
    arguments = ("a", TOY, str(tmp_path / "demos"), "default")
    first = runner.evaluate(*arguments, n_episodes=2)
    assert runner.evaluate(*arguments, n_episodes=2) == first  # with the same latencies and date


def test_figures_and_tables_say_how_they_were_made(tmp_path):
    runner = Runner("toy", tmp_path / "out", tmp_path / "work", 1)
    assert runner.command == "python -m studies toy"
    runner.write_csv("numbers", [{"x": 1, "y": 0.5}, {"x": 2, "y": 0.25}])
    figure, axis = pyplot().subplots()
    axis.plot([1, 2], [0.5, 0.25])
    runner.write_figure("numbers", figure)
    runner.write_origin(extra=1)
    with (tmp_path / "out" / "numbers.csv").open() as file:
        assert list(csv.DictReader(file)) == [{"x": "1", "y": "0.5"}, {"x": "2", "y": "0.25"}]
    assert (tmp_path / "out" / "numbers.png").stat().st_size > 1000
    assert json.loads((tmp_path / "out" / "origin.json").read_text())["command"] == "python -m studies toy"
    assert markdown_table(["a", "b"], [["1", "2"]]) == "| a | b |\n|---|---|\n| 1 | 2 |"


def test_the_push_t_study_covers_what_the_paper_shows():
    assert {key for key, *_ in pusht.BENCHMARK} >= {"paper", "1nn_8", "1nn_12", "default"}
    assert set(pusht.SWEEPS) >= {"bandwidth", "tau", "n_neighbors", "n_diffusion_steps"}
    keys = [key for key, *_ in (*pusht.BENCHMARK, *pusht.ABLATION)]
    assert len(set(keys)) == len(keys)


def test_rank_correlation_is_spearmans():
    rows = [{"prediction_error": e, "score": s} for e, s in 4 * ((1, 0.9), (2, 0.7), (3, 0.8), (4, 0.1), (5, 0.1))]
    rho, low, high = tuning._correlation(rows, "score")
    # Ranks 5 4 3 2 1 of goodness against 5 3 4 1.5 1.5.
    expected = np.corrcoef([5, 4, 3, 2, 1], [5, 3, 4, 1.5, 1.5])[0, 1]
    assert rho == pytest.approx(expected) and low <= rho <= high
    assert len({tuple(c.items()) for c in tuning._configurations()}) >= 30


def test_turns_are_counted_with_an_interval():
    met, missed, short = [3, 0.5, 30], [9, -0.4, 12], [5, 0.1, 4]
    base = make_results("base")
    turns = [[met, missed, short], [met], []] * 20
    episodes = [replace(base.episodes[0], seed=seed, extra={"turns": found}) for seed, found in enumerate(turns)]
    row = guidance.turns_of(replace(base, episodes=tuple(episodes)))
    assert row["met"] == pytest.approx(2 / 3, abs=1e-3) and row["met_low"] < 2 / 3 < row["met_high"]
    assert (row["turns"], row["cut_short"]) == (60, 20)


def test_what_is_reported_was_chosen_in_the_study():
    assert guidance.CHOSEN in guidance._grid().values()
    assert augmentation.CHOSEN_WIDTH in augmentation.WIDTHS
    assert (
        guidance.STUDY_SEED + guidance.N_STUDY <= 100_000 and augmentation.STUDY_SEED + augmentation.N_STUDY <= 100_000
    )


def test_parts_of_a_study_are_named(tmp_path):
    runner = Runner("toy", tmp_path / "out", tmp_path / "work", only=("b",))
    with pytest.raises(ConfigError, match="unknown evaluation 'b': expected some of a"):
        runner.run_all({"a": None})  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match=r"only: expected the study guidance, augmentation, robomimic, .*found"):
        Make("pusht", only=("default",)).run()


def test_the_robomimic_study_knows_its_evaluations_and_the_papers_parameters(tmp_path):
    runner = Runner("robomimic", tmp_path / "out", tmp_path / "work", only=("kitchen_default",))
    with pytest.raises(ConfigError, match="unknown evaluation 'kitchen_default': expected some of lift_default"):
        robomimic.run(runner)
    assert not (tmp_path / "work").exists()  # nothing was generated for it
    assert robomimic._settings("paper", "can")[:2] == ("tau=0.05", "bandwidth=0.04")
    assert robomimic._settings("regression", "can")[0] == "bandwidth=0.04"
    assert robomimic._settings("1nn", "can") == ("n_neighbors=350", "n_action_steps=24", "n_execute=24")
    assert robomimic._settings("default", "can") == ()
    assert robomimic._frames("square") == "world,nut,nut.position"


def test_what_distracts_is_the_same_for_a_seed_and_says_nothing():
    from studies.robomimic import N_DISTRACTIONS, distracted_can, wandering

    environment = distracted_can()
    first = environment.reset(3)
    assert len(first) == 23 + N_DISTRACTIONS == environment.observation_layout.width
    assert np.array_equal(first[-N_DISTRACTIONS:], wandering(3, 1)[0]) and np.array_equal(environment.reset(3), first)
    many = wandering(0, 4000)
    assert np.abs(np.corrcoef(many.T) - np.eye(N_DISTRACTIONS)).max() < 0.3 and many.std() == pytest.approx(1, abs=0.1)


def test_without_a_gpu_a_network_is_not_trained(tmp_path):
    runner = Runner("robomimic", tmp_path / "out", tmp_path / "work", device="cpu", only=("lift_neural",))
    with pytest.raises(LoadError, match="expected the network of 'lift', found none, and no GPU to train it on"):
        robomimic.run(runner)
    assert not (tmp_path / "work").exists()


class Circling:
    """A hand that is where it was commanded to be, and a block that is pushed aside at the first step."""

    max_steps = 24

    def reset(self, seed):
        self.executed = []
        return DEMOS.episodes[seed].observations[0]

    def step(self, action):
        self.executed.append(np.array(action))
        block = DEMOS.episodes[1].observations[0, 2:] + [0.05, 0, 0]
        return StepResult(np.concatenate([action, block]), score=0.5)


def test_what_is_executed_while_a_plan_is_awaited():
    """Waiting holds an action; the other ways execute what is left of a chunk, and differ once the plan arrives."""
    policy, environment, executed = ClosedFormPolicy(DEMOS), Circling(), []
    for way in realtime.WAYS:
        outcome = realtime.run_episode(environment, policy, 1, 2, way)  # pyright: ignore[reportArgumentType]
        assert outcome.score == 0.5 and outcome.largest > outcome.mean > 0 and len(environment.executed) == 24
        executed.append(environment.executed)
    wait, switch, go_on = executed
    n = 2 + policy.config.n_execute
    for of_one in executed:
        assert np.array_equal(of_one[0], of_one[1])  # there is nothing to go on with
        assert np.array_equal(of_one[:n], wait[:n])
    assert np.array_equal(wait[n], wait[n - 1]) and np.array_equal(wait[n + 1], wait[n - 1])
    assert not np.array_equal(switch[n], switch[n - 1]) and np.array_equal(switch[n : n + 2], go_on[n : n + 2])
    assert not np.array_equal(switch[n + 2], go_on[n + 2])


def test_a_symmetry_is_looked_for_with_the_angle_of_the_t_off(pusht):
    some = pusht[:12]
    assert symmetry.mirror_of(some) == "mirror_x" and symmetry.mirror_of(symmetry.turned(some, 45)) is None
    assert symmetry.mirror_of(symmetry.turned(some, 90)) == "mirror_y"
    assert symmetry.turned(some, 90)[0].observations[0, 4] == pytest.approx(some[0].observations[0, 4] + np.pi / 2)


def test_push_t_at_other_rates_and_widths_is_the_same_task(pusht):
    fine = invariance.resampled(pusht[:2], 5)
    assert fine.rate == 50 and [len(e) for e in fine] == [5 * (len(e) - 1) + 1 for e in pusht[:2]]
    np.testing.assert_allclose(fine[0].actions[::5], pusht[0].actions)
    np.testing.assert_allclose(np.exp(1j * fine[0].observations[::5, 4]), np.exp(1j * pusht[0].observations[:, 4]))
    wide = invariance.jointed(pusht[:2], 40)
    assert wide.observation_layout.width == 45 and np.array_equal(wide[0].observations[:, :5], pusht[0].observations)
    assert np.ptp(wide[0].observations[:, 5:], axis=0).min() > 0
    for case in invariance.RATES + invariance.WIDTHS:
        environment, plain = make_environment(case.env), make_environment("pusht")
        there, here = environment.reset(7), plain.reset(7)
        assert environment.rate == 10 * case.times and environment.max_steps == 300 * case.times
        for _ in range(case.times):
            there = environment.step(np.array([200.0, 200.0])).observation
        here = plain.step(np.array([200.0, 200.0])).observation
        assert there.shape == (5 + case.n_joints,)
        np.testing.assert_allclose(there[:5], here, atol=1e-9)
