"""My policy goes the wrong way round: a trained network is steered by demonstrations, without training.

The network inside the package has learned Push-T from people who went round the T either way. Suppose only clockwise is
wanted. Demonstrations of the clockwise way, against all demonstrations, tell how the two differ; that difference is
added to what the network predicts at every step of sampling (docs/results/guidance).

    pip install '.[neural,pusht]'
    python examples/03_wrong_way_round.py            # half a minute on a laptop
"""

import numpy as np

from closedform import load_demos
from closedform.editing.edited_policy import demonstrations_for
from closedform.editing.guided_policy import GuidedPolicy
from closedform.evaluation.turns import CENTER, clockwise_steps, find_turns
from closedform.neural.policy import NeuralPolicy

N_SAMPLES = 24

neural = NeuralPolicy.load("pusht-dit")
demos = load_demos("pusht-embedded")

# What is wanted: one true or false for each demonstrated step. Yours may come from a rule, as here, or from a person.
wanted = demos.where(clockwise_steps(demos))
everything, clockwise = demonstrations_for(neural, demos), demonstrations_for(neural, wanted)
guided = GuidedPolicy(neural, clockwise, everything)
print(f"{demos.n_steps} demonstrated steps, {wanted.n_steps} of them as wanted")

# Moments at which a demonstration began to go the wrong way round: what would the policies do?
moments = [
    episode.observations[turn.step - 1 : turn.step + 1]
    for episode in demos
    for turn in find_turns(episode.observations)
    if turn.step and turn.decided and not turn.clockwise
][:4]
for name, policy in (("network", neural), ("guided network", guided)):
    chunks = policy.sample(np.repeat(moments, N_SAMPLES, axis=0), seed=0)[:, 0]
    first = np.repeat([moment[-1:, :2] for moment in moments], N_SAMPLES, axis=0)
    path = np.concatenate([first, chunks], axis=1) - CENTER
    angles = np.unwrap(np.arctan2(path[..., 1], path[..., 0]), axis=1)
    turned = (angles[:, -1] - angles[:, 0]).reshape(len(moments), N_SAMPLES)
    shares = ", ".join(f"{share:.0%}" for share in (turned > 0).mean(1))
    print(f"{name}: of {N_SAMPLES} plans at each of {len(moments)} moments, {shares} go clockwise")

guided.save("outputs/guided")  # on the command line: closedform edit guide pusht-dit --demos WANTED --everything ALL
print("closedform eval --env pusht --policy outputs/guided --episodes 20    # evaluates it")
