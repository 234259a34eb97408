"""The method in one dimension: the paper's appendix "Simplified Demonstrations".

One number is observed and one is commanded. The demonstrations have several modes, and none was recorded near o = 0,
where the policy is queried. Run it with

    python examples/01_one_dimension.py --output outputs/demo
"""

import argparse
from pathlib import Path

import matplotlib
import numpy as np

from closedform import ClosedFormPolicy, Demos, Flow, Step, euler

matplotlib.use("Agg")
import matplotlib.pyplot as plt

TAUS = (0.0, 0.05, 0.1, 0.2, 0.4)
NAMES = {0.0: " (repeats)", 0.05: " (interpolates)", 0.4: " (oversmooths)"}
BANDWIDTH = 0.1
DATA, SAMPLE = "#4c566a", "#c8553d"


def make_demos(rng: np.random.Generator) -> Demos:
    """Three branches of actions that change with the observation, with a gap around o = 0."""
    observations = np.sort(rng.uniform(0.06, 1.0, size=90) * rng.choice([-1, 1], size=90))
    centers = np.stack([0.75 + 0.2 * observations, 0.15 * np.sin(4 * observations), -0.7 + 0.25 * observations**2], 1)
    branches = rng.integers(3, size=90)
    actions = centers[np.arange(90), branches] + 0.03 * rng.normal(size=90)
    # Each step is a demonstration of its own, one observation and one action long.
    return Demos([([[o]], [[a]]) for o, a in zip(observations, actions, strict=True)])


def make_policy(demos: Demos, tau: float) -> ClosedFormPolicy:
    """The paper's settings: identity features, h = 0.1 in the units of the observation."""
    return ClosedFormPolicy(
        demos,
        n_action_steps=1,
        n_execute=1,
        features="identity",
        metric="euclidean",
        bandwidth=BANDWIDTH,
        tau=tau,
        n_perturbations=64,
    )


def draw_samples(demos: Demos, path: Path) -> None:
    """Sampled actions at o = 0 and their histograms, for several tau."""
    observations = [float(episode.observations[0, 0]) for episode in demos]
    actions = [float(episode.actions[0, 0]) for episode in demos]
    figure, axes = plt.subplots(
        1, len(TAUS) + 1, figsize=(13, 3.4), sharey=True, width_ratios=[1.7] + [1] * len(TAUS), layout="constrained"
    )
    axes[0].axvspan(-BANDWIDTH, BANDWIDTH, color=SAMPLE, alpha=0.12, linewidth=0)
    axes[0].axvline(0, color=SAMPLE, linewidth=1)
    axes[0].scatter(observations, actions, s=10, color=DATA)
    axes[0].annotate("query, ± h", (0.13, -1.1), fontsize=8, color=SAMPLE)
    axes[0].set(xlabel="observation o", ylabel="action a", title="Demonstrations", ylim=(-1.25, 1.25))
    for axis, tau in zip(axes[1:], TAUS, strict=True):
        samples = make_policy(demos, tau).sample([[0.0]], 2000, seed=0).ravel()
        axis.hist(samples, bins=np.linspace(-1.25, 1.25, 101), orientation="horizontal", color=SAMPLE)
        axis.set(xlabel="samples")
        axis.set_title(f"τ = {tau:g}{NAMES.get(tau, '')}", fontsize=10)
    figure.suptitle("Actions sampled at o = 0, with increasing smoothing τ")
    figure.savefig(path, dpi=150)


def draw_flow(demos: Demos, path: Path, tau: float = 0.1) -> None:
    """Samples over diffusion time, as the sampler's callback reports them."""
    policy = make_policy(demos, tau)
    denoiser = policy.denoiser([0.0], seed=0)
    times, states = [1.0], [np.random.default_rng(1).standard_normal((150, 1))]

    def record(step: Step) -> None:
        times.append(step.time - 1 / 100)
        states.append(step.next_sample)

    euler(denoiser, Flow(), states[0], n_steps=100, callback=record)
    figure, axis = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    axis.plot(times, np.concatenate(states, 1).T, color=SAMPLE, alpha=0.35, linewidth=0.8)
    weights = np.exp(np.asarray(denoiser.log_weights))
    axis.hlines(np.ravel(denoiser.actions), -0.07, -0.02, color=DATA, alpha=0.1 + 0.9 * weights, linewidth=1)
    axis.annotate(
        "demonstrated actions,\ndarker where observed near o = 0", (-0.075, 1.35), fontsize=8, color=DATA, ha="right"
    )
    axis.set(
        xlabel="diffusion time s (noise on the left, actions on the right)",
        ylabel="normalized action",
        title=f"Flow trajectories at o = 0, τ = {tau:g}",
        xlim=(1, -0.08),
    )
    figure.savefig(path, dpi=150)


def main() -> None:
    """Draws both figures and prints their paths."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=Path("outputs/demo"), help="folder for the figures")
    folder = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    demos = make_demos(np.random.default_rng(0))
    draw_samples(demos, folder / "samples.png")
    draw_flow(demos, folder / "flow.png")
    print("Built a policy from 90 demonstrations in one dimension; nothing was trained.")
    print(f"Actions sampled at o = 0:      {folder / 'samples.png'}")
    print(f"Trajectories from noise to them: {folder / 'flow.png'}")


if __name__ == "__main__":
    main()
