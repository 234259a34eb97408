"""Fixtures that many tests share."""

import contextlib
import os
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is imported; two workers share two cores
os.environ.setdefault("TRITON_INTERPRET", "1")  # the GPU's kernels on the CPU

import hypothesis
import numpy as np
import pytest

from closedform import Demos, Layout, kernels, load_demos
from closedform.demos.catalog import CATALOG, cache_folder, cached_path
from closedform.evaluation.mujoco_library import import_mujoco

hypothesis.settings.register_profile(
    "closedform",
    deadline=None,  # no test depends on how busy the machine is
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture],
)
hypothesis.settings.load_profile("closedform")
with contextlib.suppress(ImportError):
    import_mujoco()  # with a rendering library, before a test imports it without one and nothing can be rendered
kernels.PATIENCE = 3600.0  # tests of what is printed do not depend on how long compiling takes
DATA = Path(__file__).parents[2] / "shared" / "data"


def pytest_configure(config):
    """Uses the data beside the checkout."""
    if DATA.parent.exists():
        os.environ.setdefault("CLOSEDFORM_DATA", str(DATA))


def pytest_collection_modifyitems(config, items):
    """A run on the reference leaves out what runs both ways by itself."""
    if os.environ.get("CLOSEDFORM_DISABLE_KERNELS") == "1":
        split: dict[bool, list[pytest.Item]] = {True: [], False: []}
        for item in items:
            split["both_ways" in getattr(item, "fixturenames", ())].append(item)
        config.hook.pytest_deselected(items=split[True])
        items[:] = split[False]


slow_on_the_reference = pytest.mark.skipif(
    os.environ.get("CLOSEDFORM_DISABLE_KERNELS") == "1", reason="takes minutes on the reference mathematics"
)


@pytest.fixture(scope="session")
def pusht() -> Demos:
    """The real Push-T demonstrations."""
    return real_demos("pusht")


@pytest.fixture(scope="session")
def lift() -> Demos:
    """Ten real demonstrations of Lift."""
    return real_demos("robomimic-lift-10")


def real_file(*parts: str) -> Path:
    """A real file from the cache, under the same rule as `real_demos`."""
    path = cache_folder().joinpath(*parts)
    if not path.exists() and not DATA.parent.exists():
        pytest.skip(f"there is no {path} here: set CLOSEDFORM_DATA to a folder with it")
    return path


def real_demos(name: str) -> Demos:
    """Real demonstrations from the cache; skips where there are none, fails where there should be."""
    if not DATA.parent.exists() and cached_path(CATALOG[name]) is None:
        pytest.skip(f"there are no demonstrations here: closedform data get {name}, or set CLOSEDFORM_DATA")
    return load_demos(name)


@pytest.fixture(params=["compiled", "reference"])
def both_ways(request, monkeypatch) -> str:
    """Runs a test on the kernels and on the reference mathematics."""
    monkeypatch.setenv("CLOSEDFORM_DISABLE_KERNELS", "0" if request.param == "compiled" else "1")
    return request.param


PLANAR_OBSERVATIONS = Layout.of(("hand", "position", 2), ("block", "position", 2), ("block", "angle"))
PLANAR_ACTIONS = Layout.of(("hand", "position", 2))


def planar_demos(rng: np.random.Generator, n_episodes: int = 6, n_steps: int = 30) -> Demos:
    """A hand that circles around a block which lies still at another place and angle in each episode."""
    episodes = []
    for _ in range(n_episodes):
        position, angle = rng.uniform(-1, 1, 2), rng.uniform(-np.pi, np.pi)
        around = angle + np.linspace(0, 3, n_steps + 1) + rng.normal(scale=0.02, size=n_steps + 1)
        hand = position + 0.3 * np.stack([np.cos(around), np.sin(around)], 1)
        block = np.broadcast_to([*position, angle], (n_steps, 3))
        episodes.append((np.concatenate([hand[:-1], block], 1), hand[1:]))
    return Demos(episodes, PLANAR_OBSERVATIONS, PLANAR_ACTIONS)


def random_demos(rng: np.random.Generator, n_episodes: int, n_steps: int, d_o: int, d_a: int) -> Demos:
    """Random walks with actions that depend on the observation."""
    episodes = []
    mix = rng.normal(size=(d_o, d_a))
    for _ in range(n_episodes):
        observations = np.cumsum(rng.normal(scale=0.2, size=(n_steps, d_o)), axis=0)
        episodes.append((observations, np.sin(observations @ mix) + rng.normal(scale=0.1, size=(n_steps, d_a))))
    return Demos(episodes)
