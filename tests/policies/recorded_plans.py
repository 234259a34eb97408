"""Plans recorded once, which no later change of the code may change: what is planned, and from what.

python -m tests.policies.recorded_plans    # records them anew, after a change of plans that is meant
"""

import os
import platform
from collections.abc import Iterator
from pathlib import Path

import numba
import numpy as np

from closedform import ClosedFormPolicy, Demos, Plan, kernels, load_demos
from tests.kernels.test_worlds import grasping_world, with_marker
from tests.worlds import random_world

FILE = Path(__file__).parents[1] / "data" / "recorded_plans.npz"
PRESETS = ("default", "paper")
WORLDS = tuple(range(16))


def machine() -> str:
    """What decides how numbers are rounded: the processor and the libraries that compute."""
    cpu = Path("/proc/cpuinfo")
    names = [line.split(":")[1].strip() for line in cpu.read_text().splitlines() if "model name" in line]
    return f"{platform.machine()} {(names or ['unknown'])[0]}, numpy {np.__version__}, numba {numba.__version__}"


def world(seed: int) -> Demos:
    """A random world, every other one with a grasp, every third with a marker that tells the goal."""
    rng = np.random.default_rng(seed)
    draw = grasping_world if seed % 2 else random_world
    demos = next(drawn for drawn in iter(lambda: draw(rng), None) if max(map(len, drawn)) > 12)  # the paper's windows
    return with_marker(rng, demos) if seed % 3 == 0 else demos


def plans(demos: Demos, preset: str, n_plans: int) -> dict[str, np.ndarray]:
    """What a policy plans along two episodes as they were recorded, and for some observations at once."""
    policy = ClosedFormPolicy(demos, preset)
    made: list[Plan] = []
    for number, which in enumerate((0, len(demos) // 2)):
        agent, last = policy.agent(seed=number), None
        for observation in demos[which].observations[: n_plans * policy.config.n_execute]:
            agent.act(observation)
            if agent.last_plan is not None and agent.last_plan is not last:
                last = agent.last_plan
                made.append(last)
    some = np.linspace(0, len(demos[0]) - 1, 3).astype(int)
    return {
        "actions": np.array([plan.actions for plan in made]),
        "distances": np.array([plan.distance for plan in made]),
        "weights": np.concatenate([plan.weights for plan in made]),
        "demonstrations": np.concatenate([[plan.episodes, plan.steps] for plan in made], axis=1),
        "transferred": np.array([f"{plan.frame}, {plan.held}" for plan in made]),
        "samples": policy.sample(demos[0].observations[some], 2, seed=7),
    }


def planned(case: str) -> dict[str, np.ndarray]:
    """The plans of a case, such as `world3/default/compiled`."""
    name, preset, way = case.split("/")
    demos = world(int(name[5:])) if name.startswith("world") else load_demos(name)
    before = os.environ.get("CLOSEDFORM_DISABLE_KERNELS")
    os.environ["CLOSEDFORM_DISABLE_KERNELS"] = "1" if way == "reference" else "0"
    try:
        assert kernels.enabled() == (way == "compiled")
        return plans(demos, preset, 3 if way == "reference" else 6)
    finally:
        if before is None:
            del os.environ["CLOSEDFORM_DISABLE_KERNELS"]
        else:
            os.environ["CLOSEDFORM_DISABLE_KERNELS"] = before


def cases() -> Iterator[str]:
    """All of them."""
    names = [*(f"world{seed}" for seed in WORLDS), "pusht-embedded", "pusht", "robomimic-lift-10"]
    return (f"{name}/{preset}/{way}" for name in names for preset in PRESETS for way in ("compiled", "reference"))


if __name__ == "__main__":
    recorded = {f"{case}/{field}": value for case in cases() for field, value in planned(case).items()}
    np.savez_compressed(FILE, machine=np.array(machine()), **recorded)  # pyright: ignore[reportArgumentType]
    print(f"{len(recorded)} arrays in {FILE}")
