"""Commands on neural policies: `train` and `edit`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from tqdm import tqdm
from tyro.conf import Positional, arg

from closedform import Policy, provenance
from closedform.cli.policy import OptionalEnvName, PolicyName
from closedform.demos.options import DemosName, OptionalDemosName, Output, Reading, progress_bar
from closedform.errors import ConfigError

if TYPE_CHECKING:
    from closedform.evaluation.environment_pool import EnvironmentPool
    from closedform.neural.policy import NeuralPolicy


@dataclass(frozen=True, kw_only=True)
class Train(Reading):
    """Train a neural diffusion policy (the paper's transformer); resumes if interrupted."""

    demos: Positional[DemosName]
    """A path, or the name of a dataset (`closedform data list`)."""
    output: Output
    """Folder for the policy and its training checkpoint."""
    steps: int = 100_000
    """Gradient steps. Raise it to train a finished policy further: it resumes on the learning rates of the longer
    training."""
    batch_size: int = 256
    """Windows per training step."""
    learning_rate: float = 3e-4
    """Peak learning rate."""
    observation_noise: float = 0.02
    """Standard deviation of the noise added to normalized observations."""
    seed: int = 0
    """Seed of weights, batches and noise."""
    device: Annotated[str, arg(metavar="DEVICE")] = "auto"
    """cpu, cuda, or auto (cuda if available)."""
    save_every: int = 10_000
    """Training steps between checkpoints."""
    env: OptionalEnvName = None
    """An environment to evaluate the policy in during training."""
    eval_every: int = 100_000
    """Training steps between evaluations."""
    eval_episodes: int = 20
    """Episodes per evaluation, with seeds from 0."""

    def run(self) -> None:
        """Trains, writing checkpoints."""
        from closedform.device import choose_device, limit_threads
        from closedform.evaluation.environment import check_fit, check_seed
        from closedform.evaluation.environment_pool import EnvironmentPool
        from closedform.neural.config import NeuralConfig, TrainingConfig
        from closedform.neural.data import training_data
        from closedform.neural.policy import NeuralPolicy
        from closedform.neural.training import Trainer

        for name in ("steps", "save_every", "eval_every"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: expected at least 1, found {getattr(self, name)}")
        check_seed(0, self.eval_episodes)
        device = choose_device(self.device)
        limit_threads(provenance.n_cores())
        NeuralPolicy.check_folder(self.output)
        network = NeuralConfig()
        training = TrainingConfig(
            n_steps=self.steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            observation_noise=self.observation_noise,
            seed=self.seed,
        )
        demos = self.read(self.demos)
        environments = EnvironmentPool(self.env) if self.env else None
        if environments:
            with environments.borrow() as (environment,):  # fails now rather than after an hour
                check_fit(environment, demos, self.demos)
        data = training_data(demos, network)
        trainer = Trainer(data, network, training, device)
        if trainer.load(self.output):
            print(f"resuming from step {trainer.step}")

        def checkpoint() -> NeuralPolicy:
            policy = NeuralPolicy.of(network, trainer.average, data, device)
            policy.save(self.output)
            trainer.save(self.output)
            return policy

        began, first = time.monotonic(), trainer.step
        with tqdm(total=self.steps, initial=first, unit="step", disable=None) as bar:
            try:
                while trainer.step < self.steps:
                    due = [(trainer.step // every + 1) * every for every in (self.save_every, self.eval_every)]
                    until = min(*(due if environments else due[:1]), self.steps)
                    while trainer.step < until:
                        trainer.run(min(1 if device == "cpu" else 100, until - trainer.step))
                        bar.update(trainer.step - bar.n)
                        bar.set_postfix_str(f"loss {float(trainer.loss):.4f}")
                    policy = checkpoint()
                    if bar.disable and until < self.steps:  # nobody sees the bar, but a log tells how far it is
                        print(f"step {until} of {self.steps}, loss {float(trainer.loss):.4f}", flush=True)
                    if environments and (until % self.eval_every == 0 or until == self.steps):
                        bar.write(f"step {until}: {self._evaluate(policy, environments)}")
            except KeyboardInterrupt:
                checkpoint()
                raise
        done = trainer.step - first
        rate = f", {1e3 * (time.monotonic() - began) / done:.2f} ms each" if done else ""
        print(f"{trainer.step} steps{rate}, loss {float(trainer.loss):.4f}: {self.output}")

    def _evaluate(self, policy: Policy[Any], environments: EnvironmentPool) -> str:
        from closedform.evaluation.evaluate import evaluate

        rows = list(evaluate(policy, environments, range(self.eval_episodes)))
        score = sum(row.score for row in rows) / len(rows)
        success = sum(row.success for row in rows) / len(rows)
        return f"score {score:.3f}, success {success:.2f} over {len(rows)} episodes"


@dataclass(frozen=True, kw_only=True)
class Edit(Reading):
    """Edit a trained neural policy with demonstrations: `guide` it toward some, or `augment` it with new ones."""

    neural: Positional[PolicyName]
    """Folder of the neural policy, or the name of one that comes with the package: pusht-dit, pusht-dit-left."""
    output: Output
    """Folder for the edited policy, which `eval` accepts as --policy."""

    def run(self) -> None:
        """Builds the edited policy and saves it."""
        from closedform.neural.policy import NeuralPolicy

        with progress_bar() as say:
            say("the network", 0.0)
            neural = NeuralPolicy.load(self.neural)
            say("the demonstrations", 0.3)
            policy = self.edited(neural)
            say("saving", 0.9)
            policy.save(self.output)
            say("done", 1.0)
        print(f"{type(policy).__name__} of {self.neural}: {self.output}")

    def edited(self, neural: NeuralPolicy) -> Policy[Any]:
        """The edited policy."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Guide(Edit):
    """Guide a neural policy toward the behavior of some of its demonstrations."""

    demos: DemosName
    """Demonstrations of the wanted behavior: a path, or the name of a dataset."""
    everything: DemosName
    """All demonstrations, including those of the wanted behavior."""
    w: float = 0.5
    """The guidance strength."""
    off_below: float = 2.0
    """The index of the noise level at and below which guidance is off."""

    def edited(self, neural: NeuralPolicy) -> Policy[Any]:
        """The guided policy."""
        from closedform.editing.edited_policy import demonstrations_for
        from closedform.editing.guided_policy import GuidedPolicy

        wanted, everything = (demonstrations_for(neural, self.read(name)) for name in (self.demos, self.everything))
        return GuidedPolicy(neural, wanted, everything, w=self.w, off_below=self.off_below)


@dataclass(frozen=True, kw_only=True)
class Augment(Edit):
    """Augment a neural policy with demonstrations of a behavior that it has not seen."""

    demos: DemosName
    """Demonstrations of the new behavior: a path, or the name of a dataset."""
    familiar: OptionalDemosName = None
    """The network's training demonstrations, if available; they describe where the network is reliable better than
    their mean and covariance, which are stored with the policy."""
    c: Annotated[float | None, arg(metavar="C")] = None
    """The width of the network's kernel relative to its training data; 0.8 by default, 1 with --familiar."""

    def edited(self, neural: NeuralPolicy) -> Policy[Any]:
        """The augmented policy."""
        from closedform.editing.augmented_policy import AugmentedPolicy
        from closedform.editing.edited_policy import demonstrations_for

        new = demonstrations_for(neural, self.read(self.demos))
        familiar = None if self.familiar is None else demonstrations_for(neural, self.read(self.familiar))
        return AugmentedPolicy(neural, new, familiar, c=self.c)
