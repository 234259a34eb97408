"""Trains the neural policies inside the package, both on the 206 human Push-T demonstrations.

`pusht_dit` sees all of them, `pusht_dit_left` only the windows that begin with the block in the left half of the scene
(x below 256), as in the paper's experiment on augmentation.

    python scripts/train_pusht.py             # five minutes on an H200, days on two cores
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from closedform import load_demos
from closedform.neural.config import NeuralConfig, TrainingConfig
from closedform.neural.data import training_data
from closedform.neural.device import choose_device
from closedform.neural.policy import NeuralPolicy
from closedform.neural.training import Trainer

TARGET = Path(__file__).parent.parent / "src" / "closedform" / "assets"
MIDDLE = 256.0  # pixels, of the scene


def main() -> None:
    """Trains both and writes their folders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demos", default="pusht")
    parser.add_argument("--steps", type=int, default=TrainingConfig.n_steps)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--output", type=Path, default=TARGET)
    arguments = parser.parse_args()
    demos, network = load_demos(arguments.demos), NeuralConfig()
    training, device = TrainingConfig(n_steps=arguments.steps), choose_device(arguments.device)
    for name, keep in (("pusht_dit", None), ("pusht_dit_left", demos.all_observations()[:, 2] < MIDDLE)):
        data, start = training_data(demos, network, keep), time.monotonic()
        trainer = Trainer(data, network, training, device)
        while trainer.step < training.n_steps:
            trainer.run(10_000)
            print(f"{name}: step {trainer.step}, loss {float(trainer.loss):.4f}, {time.monotonic() - start:.0f} s")
        NeuralPolicy.of(network, trainer.average, data).save(arguments.output / name, precision="byte")


if __name__ == "__main__":
    main()
