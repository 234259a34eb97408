"""My policy has never seen the right-hand side: augment a trained network with demonstrations, without training.

The network in the package was trained on Push-T with the block in the left half of the scene only. Demonstrations of
the right half become additional data points of its score at inference time: where the observation is closer to them
than to the network's training data, they take over (docs/results/augmentation).

    pip install '.[neural,pusht]'
    python examples/04_never_seen_the_right.py       # two minutes on a laptop
"""

import numpy as np

from closedform import load_demos
from closedform.editing import AugmentedPolicy, demonstrations_for
from closedform.evaluation import PushT, roll_out_together
from closedform.evaluation.pusht import start_state
from closedform.neural import NeuralPolicy

MIDDLE = 256.0  # pixels
N_EPISODES = 8

neural = NeuralPolicy.load("pusht-dit-left")
demos = load_demos("pusht-embedded")
block_x = demos.all_observations()[:, 2]

# The new demonstrations, and the network's training demonstrations: if the latter are no longer available, omit them,
# and the policy uses the stored mean and covariance of its training data (the paper's method, which is less selective).
novel, familiar = (demonstrations_for(neural, demos.where(side)) for side in (block_x > MIDDLE, block_x < MIDDLE))
augmented = AugmentedPolicy(neural, novel, familiar)

seeds = [seed for seed in range(60) if start_state(seed)[2] > 330][:N_EPISODES]  # the block starts far on the right
print(f"{len(seeds)} episodes that start with the block on the right")
for name, policy in (("network", neural), ("augmented network", augmented)):
    rollouts = roll_out_together([PushT() for _ in seeds], policy, seeds)
    plans = [(rollout.observations[step, 2] > MIDDLE, plan) for rollout in rollouts for step, plan in rollout.plans]
    print(f"{name}: score {np.mean([rollout.score for rollout in rollouts]):.2f}")
    for side, there in (("left", False), ("right", True)):
        shares = [plan.neural_share for right, plan in plans if right == there]
        if shares:
            print(f"  block on the {side}: the network has {np.mean(shares):.0%} of the weight")

augmented.save("outputs/augmented")
print("closedform eval --env pusht --policy outputs/augmented --episodes 20    # evaluates it")
