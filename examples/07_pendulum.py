"""Where imitation of positions ends: swinging up a pendulum and holding it upright, which is a matter of dynamics.

pip install '.[gym]'
python examples/07_pendulum.py       # half a minute on a laptop

The motor is too weak to lift the pendulum, and upright it falls at the slightest error. A policy that knows
demonstrations but no physics swings it up from few of them; holding it takes many, and more gravity than was
demonstrated is not compensated.
"""

from collections.abc import Callable

import gymnasium as gym
import numpy as np

from closedform import ClosedFormPolicy, Demos

N_STEPS, N_HELD, UPRIGHT = 200, 50, 0.95  # of an episode; of its end in which it has to stand; cosine of the angle
STARTS = range(100000, 100050)


def expert(observation: np.ndarray) -> np.ndarray:
    """Pumps energy until the pendulum is nearly up, and holds it there with a PD controller."""
    cosine, sine, speed = observation
    if cosine > 0.85:
        return np.clip([-12 * np.arctan2(sine, cosine) - 3 * speed], -2, 2)
    energy = speed**2 / 6 + 5 * (cosine - 1)  # less that of standing upright
    return np.clip([-3 * energy * (1 if speed >= 0 else -1)], -2, 2)


def roll_out(
    act: Callable[[np.ndarray], np.ndarray], seed: int, gravity: float = 10.0
) -> tuple[np.ndarray, np.ndarray]:
    """The observations and actions of one episode."""
    environment = gym.make("Pendulum-v1", g=gravity)
    observation, _ = environment.reset(seed=seed)
    observations, actions = [], []
    for _ in range(N_STEPS):
        action = np.asarray(act(observation), np.float32)
        observations.append(observation)
        actions.append(action)
        observation, *_ = environment.step(action)
    return np.array(observations), np.array(actions)


def show(name: str, act: Callable[[int], Callable[[np.ndarray], np.ndarray]]) -> None:
    """Prints how often something swings the pendulum up and holds it, also with more gravity."""
    for gravity in (10.0, 12.0):
        cosines = [roll_out(act(seed), seed, gravity)[0][:, 0] for seed in STARTS]
        up = sum(bool((cosine > UPRIGHT).any()) for cosine in cosines)
        held = sum(bool((cosine[-N_HELD:] > UPRIGHT).all()) for cosine in cosines)
        print(f"{name}, gravity {gravity:g}: up in {up} and held in {held} of {len(cosines)} episodes")


show("the expert", lambda seed: expert)
demonstrations = [roll_out(expert, seed) for seed in range(100)]
for n in (10, 25, 50, 100):
    policy = ClosedFormPolicy(Demos(demonstrations[:n]))
    show(f"{n} demonstrations", lambda seed, policy=policy: policy.agent(seed=seed).act)
