"""Records the Push-T demonstrations inside the package: successful episodes of our own policy.

The policy is the default on the 206 human demonstrations (`closedform data get pusht`). Start states are drawn from the
same ranges as in Diffusion Policy's evaluation, but as real numbers from another generator, so that no evaluation
starts from one of them. The first episodes that cover more than 0.95 of the outline are kept; each ends with the
observation of that state.

    python scripts/record_pusht.py            # about a minute on two cores
"""

from __future__ import annotations

import argparse
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from closedform import ClosedFormPolicy, load_demos
from closedform.evaluation.pusht import PushT
from closedform.provenance import n_cores

LOW, HIGH = (50, 50, 100, 100, -np.pi), (450, 450, 400, 400, np.pi)
TARGET = Path(__file__).parent.parent / "src" / "closedform" / "assets" / "pusht_embedded.npz"


def record(number: int) -> tuple[np.ndarray, np.ndarray] | None:
    """The observations and actions of an episode, None if it did not succeed."""
    environment, policy = PushT(), _policy()
    observation = environment.start(np.random.default_rng((20261115, number)).uniform(LOW, HIGH))
    agent = policy.agent(seed=number)
    observations, actions = [], []
    for _ in range(environment.max_steps):
        action = agent.act(observation)
        observations.append(observation)
        actions.append(action)
        observation, _, success, _ = environment.step(action)
        if success:
            return np.array([*observations, observation]), np.array([*actions, action])
    return None


_made: list[ClosedFormPolicy] = []


def _policy() -> ClosedFormPolicy:
    if not _made:
        _made.append(ClosedFormPolicy(load_demos("pusht")))
    return _made[0]


def main() -> None:
    """Records and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--output", type=Path, default=TARGET)
    arguments = parser.parse_args()
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    tried = 0
    with ProcessPoolExecutor(n_cores(), multiprocessing.get_context("spawn")) as pool:
        while len(kept) < arguments.episodes:
            missing = arguments.episodes - len(kept)
            kept += [episode for episode in pool.map(record, range(tried, tried + missing)) if episode is not None]
            tried += missing
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        arguments.output,
        observations=np.concatenate([observations for observations, _ in kept]).astype(np.float32),
        actions=np.concatenate([actions for _, actions in kept]).astype(np.float32),
        episode_ends=np.cumsum([len(actions) for _, actions in kept]),
    )
    size = arguments.output.stat().st_size
    print(f"{len(kept)} episodes of {tried} tried, {size / 1e6:.2f} MB: {arguments.output.name}")


if __name__ == "__main__":
    main()
