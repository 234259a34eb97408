"""Commands on neural policies: `train`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm
from tyro.conf import Positional

from closedform import Policy
from closedform.cli.data import Reading
from closedform.cli.policy import Output
from closedform.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Train(Reading):
    """Trains a neural diffusion policy (the paper's transformer); goes on where it was stopped."""

    demos: Positional[str]
    """A path, or the name of a dataset (`closedform data list`)."""
    output: Output
    """Folder for the policy and the state of its training."""
    steps: int = 1_000_000
    """Gradient steps."""
    batch_size: int = 256
    """Windows in a step."""
    learning_rate: float = 3e-4
    """At its highest."""
    seed: int = 0
    """Of weights, batches and noise."""
    device: str = "auto"
    """cpu, cuda, or auto: cuda if there is one."""
    save_every: int = 10_000
    """Steps between two checkpoints."""
    env: str | None = None
    """An environment to evaluate the policy in along the way."""
    eval_every: int = 100_000
    """Steps between two evaluations."""
    eval_episodes: int = 20
    """Episodes of each, with seeds from 0."""

    def run(self) -> None:
        """Trains, with checkpoints."""
        import torch

        from closedform.neural.config import NeuralConfig, TrainingConfig
        from closedform.neural.data import training_data
        from closedform.neural.policy import NeuralPolicy
        from closedform.neural.training import Trainer

        for name in ("steps", "save_every", "eval_every", "eval_episodes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: expected at least 1, found {getattr(self, name)}")
        device = self.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        elif device == "cuda" and not torch.cuda.is_available():
            raise ConfigError("device: expected a GPU that torch can use, found none; use --device cpu")
        network = NeuralConfig()
        training = TrainingConfig(
            n_steps=self.steps, batch_size=self.batch_size, learning_rate=self.learning_rate, seed=self.seed
        )
        data = training_data(self.read(self.demos), network)
        trainer = Trainer(data, network, training, device)
        if trainer.load(self.output):
            print(f"going on from step {trainer.step}")

        def checkpoint() -> NeuralPolicy:
            policy = NeuralPolicy.of(network, trainer.average, data)
            policy.save(self.output)
            trainer.save(self.output)
            return policy

        began, first = time.monotonic(), trainer.step
        with tqdm(total=self.steps, initial=first, unit="step", disable=None) as bar:
            try:
                while trainer.step < self.steps:
                    until = min(trainer.step // self.save_every * self.save_every + self.save_every, self.steps)
                    while trainer.step < until:
                        trainer.run(min(100 if device == "cuda" else 1, until - trainer.step))
                        bar.update(trainer.step - bar.n)
                        bar.set_postfix_str(f"loss {float(trainer.loss):.4f}")
                    policy = checkpoint()
                    if self.env and (until % self.eval_every == 0 or until == self.steps):
                        bar.write(f"step {until}: {self._evaluate(policy)}")
            except KeyboardInterrupt:
                checkpoint()
                raise
        rate = 1e3 * (time.monotonic() - began) / max(trainer.step - first, 1)
        print(f"{trainer.step} steps, {rate:.2f} ms each, loss {float(trainer.loss):.4f}: {self.output}")

    def _evaluate(self, policy: Policy[Any]) -> str:
        from closedform.evaluation.evaluate import evaluate

        assert self.env is not None
        rows = list(evaluate(policy, self.env, range(self.eval_episodes)))
        score, success = (sum(row[what] for row in rows) / len(rows) for what in ("score", "success"))
        return f"score {score:.3f}, success {success:.2f} over {len(rows)} episodes"
