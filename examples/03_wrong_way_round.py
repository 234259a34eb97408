"""My policy goes around the wrong way: guide a trained network with demonstrations, without training.

The network in the package has learned Push-T from people who went around the T in either direction. Suppose that only
clockwise is wanted. The difference between the closed-form scores of the clockwise demonstrations and of all
demonstrations is added to the network's prediction at every sampling step (docs/results/guidance).

    pip install '.[neural,pusht]'
    python examples/03_wrong_way_round.py            # a quarter of a minute on a laptop
"""

import numpy as np

from closedform import load_demos
from closedform.editing import GuidedPolicy, demonstrations_for
from closedform.evaluation.turns import CENTER, clockwise_steps, find_turns
from closedform.neural import NeuralPolicy

N_SAMPLES = 12

neural = NeuralPolicy.load("pusht-dit")
demos = load_demos("pusht-embedded")

# The wanted behavior: a boolean for each demonstrated step. Yours may come from a rule, as here, or from labels.
wanted = demos.where(clockwise_steps(demos))
everything, clockwise = demonstrations_for(neural, demos), demonstrations_for(neural, wanted)
guided = GuidedPolicy(neural, clockwise, everything)
print(f"{demos.n_steps} demonstrated steps, {wanted.n_steps} of them wanted")

# Moments at which a demonstration started to go around the wrong way: what would the policies do?
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
