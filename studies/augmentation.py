"""The paper's experiment on augmentation: a network trained on the left half is given demonstrations of the right."""

from __future__ import annotations

from typing import Any

import numpy as np

from closedform.demos.load import load_demos
from closedform.editing.augmented_policy import AugmentedPolicy
from closedform.editing.edited_policy import demonstrations_for
from closedform.evaluation.comparison import compare
from closedform.evaluation.evaluation_result import EvaluationResult
from closedform.evaluation.pusht import PushT
from closedform.evaluation.rollout import roll_out_together
from closedform.evaluation.study import Study
from closedform.figures import INK, QUIET, pyplot
from closedform.files import write_file
from closedform.neural.policy import NeuralPolicy
from closedform.policies.policy import Policy
from studies.runner import Runner, figures_of, interval, markdown_table

ENV = DEMOS = "pusht"
NEURAL = "pusht-dit-left"
MIDDLE = 256.0
N_EPISODES = 500
N_STUDY, STUDY_SEED = 200, 20_000  # for choosing parameters; results are reported on other seeds
WIDTHS = (0.02, 0.05, 0.1, 0.2, 0.8, 3.0)
CHOSEN_WIDTH = 0.05  # from the study
REPORTED = {
    "left": ("network, trained on the left", "0.36"),
    "right": ("closed form of the right", "0.33"),
    "one_gaussian": ("augmented, one Gaussian with c = 0.8, as in the paper", "0.58"),
    "narrow_gaussian": (f"augmented, one Gaussian with c = {CHOSEN_WIDTH:g}", ""),
    "familiar": ("augmented, kernels of the training data", ""),
}
STUDIED = {
    **{f"study_c{c:g}": f"one Gaussian, c = {c:g}" for c in WIDTHS},
    "study_familiar": "kernels of the training data",
    "study_familiar_unperturbed": "the same, the network's point not perturbed",
    "study_familiar_tenth": "kernels of a tenth of the training data",
}


def run(runner: Runner) -> None:
    """Runs the missing evaluations and writes docs/results/augmentation."""
    results = runner.run_all(studies(runner.device))
    if not results:
        return
    rows = {key: {"key": key, **figures_of(found)} for key, found in results.items()}
    runner.write_csv("reported", [rows[key] for key in REPORTED])
    runner.write_csv("study", [rows[key] for key in STUDIED])
    _draw_takeover(runner)
    _write_page(runner, results, rows)
    runner.write_origin(demonstrations=results["right"].subject.demos, seeds=f"100000 to {100000 + N_EPISODES - 1}")


def studies(device: str) -> dict[str, Study]:
    """All evaluations by key."""
    policies = make_policies(device)
    sizes: dict[str, dict[str, Any]] = {key: {"n_episodes": N_EPISODES} for key in REPORTED}
    sizes |= {key: {"n_episodes": N_STUDY, "seed": STUDY_SEED} for key in STUDIED}
    return {key: Study.of_policy(ENV, policies[key], key, DEMOS, **sizes[key]) for key in sizes}


def make_policies(device: str = "cpu") -> dict[str, Policy[Any]]:
    """All policies by key."""
    demos, left = load_demos(DEMOS), NeuralPolicy.load(NEURAL).to(device)
    right = demonstrations_for(left, demos.where(demos.all_observations()[:, 2] > MIDDLE))
    familiar, tenth = (
        demonstrations_for(left, some.where(some.all_observations()[:, 2] < MIDDLE)) for some in (demos, demos[::10])
    )
    return {
        "left": left,
        "right": right,
        "one_gaussian": AugmentedPolicy(left, right),
        "narrow_gaussian": AugmentedPolicy(left, right, c=CHOSEN_WIDTH),
        "familiar": AugmentedPolicy(left, right, familiar),
        **{f"study_c{c:g}": AugmentedPolicy(left, right, c=c) for c in WIDTHS},
        "study_familiar": AugmentedPolicy(left, right, familiar),
        "study_familiar_unperturbed": AugmentedPolicy(left, right, familiar, perturb_neural=False),
        "study_familiar_tenth": AugmentedPolicy(left, right, tenth),
    }


def _draw_takeover(runner: Runner) -> None:
    """The paper's figure: the weight of the network along rollouts."""
    policy, seeds = make_policies()["familiar"], range(100_000, 100_006)
    rollouts = roll_out_together([PushT() for _ in seeds], policy, seeds)
    figure, axes = pyplot().subplots(2, 3, figsize=(11, 7.6), layout="constrained")
    rows: list[dict[str, Any]] = []
    points = None
    for axis, rollout in zip(axes.flat, rollouts, strict=True):
        shares = np.repeat([plan.neural_share for _, plan in rollout.plans], policy.config.n_execute)
        path = rollout.observations[: len(rollout.actions)]
        shares = shares[: len(path)]
        axis.imshow(PushT().picture(path[0]), extent=PushT.extent, alpha=0.55)
        axis.axvline(MIDDLE, color=QUIET, linewidth=1, linestyle=":")
        axis.plot(path[:, 2], path[:, 3], color=INK, linewidth=2.5, alpha=0.35)
        points = axis.scatter(path[:, 0], path[:, 1], c=shares, cmap="coolwarm", vmin=0, vmax=1, s=7)
        axis.set(xlim=(0, 512), ylim=(512, 0), xticks=[], yticks=[])
        axis.set_title(f"seed {rollout.seed}, score {rollout.score:.2f}")
        names = ("agent_x", "agent_y", "block_x", "block_y", "block_angle")
        rows += [
            {
                "seed": rollout.seed,
                "step": step,
                **{name: round(float(value), 3) for name, value in zip(names, state, strict=True)},
                "neural_share": round(float(share), 4),
            }
            for step, (state, share) in enumerate(zip(path, shares, strict=True))
        ]
    figure.colorbar(points, ax=axes, label="weight of the network (agent's path); gray: the block's path", shrink=0.6)
    runner.write_csv("takeover", rows)
    runner.write_figure("takeover", figure)


def _write_page(runner: Runner, results: dict[str, EvaluationResult], rows: dict[str, dict[str, Any]]) -> None:
    better = max(("left", "right"), key=lambda key: rows[key]["score"])
    table = []
    for key, (label, paper) in REPORTED.items():
        difference = compare(results[better], results[key])
        low, high = difference.score_ci95
        against = "" if key in ("left", "right") else f"{difference.score:+.3f} [{low:+.3f}, {high:+.3f}]"
        table.append([label, paper, interval(rows[key], "score"), against, interval(rows[key], "success")])
    study = [[label, *(interval(rows[key], what) for what in ("score", "success"))] for key, label in STUDIED.items()]
    head = ["policy", "the paper's score", "score [95%]", "minus the better of the two, paired", "success [95%]"]
    text = f"""# Augmentation

Made by `{runner.command}`; [origin.json](origin.json) records versions and machine. A network trained on the windows of
206 human demonstrations with the block in the left half of the scene ([model card](../../models.md)) is given the
windows of the right half as demonstrations at inference time. {N_EPISODES} episodes from seed 100000.

{markdown_table(head, table)}

Network and demonstrations are weighted by how close the observation is to the data of each. The paper describes the
network's training data by one Gaussian with c times their covariance, which also covers the right half. *Kernels of the
training data*: the network's kernel is the sum of the same narrow kernels as for the new demonstrations, one for each
window that it was trained on (`AugmentedPolicy(..., familiar=...)`, `closedform edit augment --familiar`); use one
Gaussian if the training data are no longer available.

![Weight of the network along rollouts](takeover.png)

## Describing the network's training data

{N_STUDY} episodes from seed {STUDY_SEED}, on which c was chosen.

{markdown_table(["the network's kernel", "score [95%]", "success [95%]"], study)}

*Not perturbed*: the paper smooths the demonstrations' part of the score but not the network's, which leaves the last
sampling steps to the network. The data of figures and tables are in the CSV files.
"""
    write_file(runner.output / "README.md", text)
