"""Any gymnasium environment: record demonstrations with a function, and evaluate a policy made of them.

Only what the environment observes and takes as actions has to be vectors of numbers. Run it with

    pip install '.[gym,pusht]'
    python examples/05_gymnasium.py       # a minute on a laptop
"""

import numpy as np

from closedform import ClosedFormPolicy, Layout, load_demos
from closedform.evaluation import evaluate, record

CAR = "gym:MountainCarContinuous-v0,success=terminated"
PUSHT = "gym:gym_pusht/PushT-v0,score=coverage"


def pump(observation: np.ndarray) -> list[float]:
    """Pushes the car the way it is already going, until it is over the hill."""
    return [1.0 if observation[1] >= 0 else -1.0]


# The car on a hill: ten demonstrations of a one-line script.
demos = record(CAR, pump, seeds=range(10))
policy = ClosedFormPolicy(demos)
results = list(evaluate(policy, CAR, range(100000, 100010)))
print(f"{CAR}: {sum(result.success for result in results)} of {len(results)} episodes succeed, with {policy}")

# Push-T as its package registers it: demonstrations of another policy, and what their numbers are.
teacher = ClosedFormPolicy(load_demos("pusht-embedded")).agent()
demos = record(
    PUSHT,
    teacher.act,
    seeds=range(20),
    start=teacher.reset,
    observation_layout=Layout.parse("agent position 2, block position 2, block angle"),
    action_layout=Layout.parse("agent position 2"),
)
results = list(evaluate(ClosedFormPolicy(demos), PUSHT, range(100000, 100010)))
score = np.mean([result.score for result in results])
print(
    f"{PUSHT}: {len(demos)} successful recordings; a policy made of them covers {score:.2f} of the outline on average"
)
