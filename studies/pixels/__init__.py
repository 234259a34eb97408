"""Push-T from pictures of 96x96 pixels: bodies found without training, and features where there are none."""

from __future__ import annotations

from typing import Any

import numpy as np

from closedform.demos.load import load_demos
from closedform.errors import MissingExtraError
from closedform.evaluation.environment import make_environment
from closedform.evaluation.evaluation_result import EvaluationResult
from closedform.evaluation.pusht_film import film_seen, gif
from closedform.evaluation.pusht_pixels import PushTPixels
from closedform.evaluation.study import Study
from closedform.files import write_file
from closedform.policies.choice import make_policy
from studies.pixels.bodies import DEMOS, PoseErrors, frame_ms, perceived
from studies.pixels.features import BEST, CANDIDATES, FeatureScene, evaluate_candidate, fitted, layout_of
from studies.pixels.page import write_page
from studies.runner import Runner, figures_of

ENV = "pusht_pixels"
N_EPISODES, N_FEATURES, N_HARDER, N_DEVELOPMENT = 500, 200, 100, 30
SEED, DEVELOPMENT_SEED = 100_000, 1000
HARDER = {
    "noise=8": "noise of 8 levels of 255",
    "noise=24": "noise of 24 levels",
    "shadow=0.6": "a shadow, 60% darker at one edge",
    "light=0.5": "50% less light than while learning",
    "pattern=0.6": "spots on the table, up to 60% darker",
}
MOST_FRAMES = 120  # of a GIF


def run(runner: Runner) -> None:
    """Runs the missing evaluations and writes docs/results/pixels."""
    runner.check_only(names())
    results: dict[str, EvaluationResult] = {}
    missing = []
    for key in names():
        if runner.only and key not in runner.only:
            continue
        try:
            results[key] = run_one(runner, key)
        except MissingExtraError:
            if runner.only:
                raise
            missing.append(key)
    if runner.only:
        return
    rows = [_row(runner, key, results[key]) for key in results if not key.startswith("try_")]
    tried = [_tried(one, results[f"try_{one.key}"]) for one in CANDIDATES if f"try_{one.key}" in results]
    runner.write_csv("pixels", rows)
    runner.write_csv("features", tried)
    films = _film(runner, results["bodies"])
    write_page(runner, rows, tried, films, HARDER, missing, len(load_demos(DEMOS)))
    runner.write_origin(
        seeds=f"{SEED} to {SEED + N_EPISODES - 1}",
        development_seeds=f"{DEVELOPMENT_SEED} to {DEVELOPMENT_SEED + N_DEVELOPMENT - 1}",
    )


def names() -> list[str]:
    """The keys of all evaluations."""
    return ["poses", "bodies", *HARDER, *(f"try_{one.key}" for one in CANDIDATES), "features"]


def run_one(runner: Runner, key: str) -> EvaluationResult:
    """One of the evaluations."""
    if key == "poses":
        return runner.evaluate(key, "pusht", DEMOS, "default", seed=SEED, n_episodes=N_EPISODES)
    if key == "features":
        return evaluate_candidate(runner, BEST, SEED, N_FEATURES, key)
    if key.startswith("try_"):
        one = next(one for one in CANDIDATES if f"try_{one.key}" == key)
        return evaluate_candidate(runner, one, DEVELOPMENT_SEED, N_DEVELOPMENT, key)
    env, n = (ENV, N_EPISODES) if key == "bodies" else (f"{ENV}:{key}", N_HARDER)
    return runner.run(key, bodies_study(runner, env, n))


def bodies_study(runner: Runner, env: str, n_episodes: int) -> Study:
    """The default policy on poses that are found in pictures."""
    seen = perceived(runner, env)
    errors = PoseErrors.fit(seen, load_demos(DEMOS))
    policy = make_policy("default", seen)
    return Study.of_policy(env, policy, "default", DEMOS, seed=SEED, n_episodes=n_episodes, describe=errors)


def _row(runner: Runner, key: str, results: EvaluationResult) -> dict[str, Any]:
    row: dict[str, Any] = {"key": key, **figures_of(results)}
    for what in ("position", "angle"):
        errors = np.concatenate([each.extra.get(f"{what}_errors", ()) for each in results.episodes])
        row[f"{what}_error"] = round(float(np.median(errors)), 2) if len(errors) else None
        row[f"{what}_error_p95"] = round(float(np.quantile(errors, 0.95)), 2) if len(errors) else None
    return {
        **row,
        **(_speed(runner, key) if key in ("bodies", "features") else {"frame_ms": None, "frame_ms_p95": None}),
    }


def _speed(runner: Runner, key: str) -> dict[str, float]:
    """Milliseconds a picture, in this process alone."""
    longest = max(load_demos(DEMOS), key=len)
    if key == "features":
        scene = FeatureScene(*fitted(runner, BEST), layout_of(BEST))
        return frame_ms(scene.see, longest)
    environment = make_environment(ENV)
    assert isinstance(environment, PushTPixels)
    tracker = environment.view.tracker()
    return frame_ms(lambda picture, _: tracker.follow(picture), longest)


def _tried(one: Any, results: EvaluationResult) -> dict[str, Any]:
    read = f"moments up to order {one.order}" if one.order else f"averages on {one.grid}x{one.grid}"
    return {
        "encoder": one.encoder,
        "readout": read,
        "projection": one.projection,
        "rank": one.rank,
        "layout": one.layout,
        "settings": " ".join(one.settings),
        **figures_of(results),
    }


def _film(runner: Runner, results: EvaluationResult) -> list[tuple[str, str]]:
    """GIFs of the median and of the worst episode, with captions."""
    environment, seen = make_environment(ENV), perceived(runner, ENV)
    assert isinstance(environment, PushTPixels)
    policy = make_policy("default", seen)
    ranked = sorted(results.episodes, key=lambda row: (row.score, -row.steps))
    films = []
    for name, episode in (("typical", ranked[len(ranked) // 2]), ("worst", ranked[0])):
        rollout, images = film_seen(environment, policy, seen, episode.seed)
        every = max(1, -(-len(images) // MOST_FRAMES))
        write_file(runner.output / f"{name}.gif", gif(images, environment.rate, every))
        films.append((name, f"seed {episode.seed}, score {rollout.score:.2f}, {len(rollout.actions)} steps"))
    return films
