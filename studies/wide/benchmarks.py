"""The parts of the wide benchmark: tasks, demonstrations, start states, and the policies compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from closedform.demos.demos import Demos
from closedform.demos.robomimic_tasks import TASKS as ROBOMIMIC_TASKS
from closedform.evaluation.environment import make_environment
from closedform.evaluation.episodes_job import Describe
from closedform.evaluation.study import demos_for
from closedform.geometry.layout import Layout
from closedform.policies.choice import CHOICES, make_policy
from closedform.policies.policy import Policy
from studies.wide.gpi import Displacements, GPIConfig, GPIPolicy
from studies.wide.lasa import SHAPES, VARIANTS, follow, load_shape
from studies.wide.mlp import MLPConfig, MLPPolicy
from studies.wide.record import demonstrations

SEED, DEVELOPMENT_SEED = 100_000, 50_000  # of the first start; demonstrations have seeds from 0
METAWORLD = (
    *("assembly-v3", "basketball-v3", "bin-picking-v3", "box-close-v3", "button-press-topdown-v3"),
    *("button-press-topdown-wall-v3", "button-press-v3", "button-press-wall-v3", "coffee-button-v3", "coffee-pull-v3"),
    *("coffee-push-v3", "dial-turn-v3", "disassemble-v3", "door-close-v3", "door-lock-v3", "door-open-v3"),
    *("door-unlock-v3", "drawer-close-v3", "drawer-open-v3", "faucet-close-v3", "faucet-open-v3", "hammer-v3"),
    *("hand-insert-v3", "handle-press-side-v3", "handle-press-v3", "handle-pull-side-v3", "handle-pull-v3"),
    *("lever-pull-v3", "peg-insert-side-v3", "peg-unplug-side-v3", "pick-out-of-hole-v3", "pick-place-v3"),
    *("pick-place-wall-v3", "plate-slide-back-side-v3", "plate-slide-back-v3", "plate-slide-side-v3"),
    *("plate-slide-v3", "push-back-v3", "push-v3", "push-wall-v3", "reach-v3", "reach-wall-v3", "shelf-place-v3"),
    *("soccer-v3", "stick-pull-v3", "stick-push-v3", "sweep-into-v3", "sweep-v3", "window-close-v3", "window-open-v3"),
)
# Chosen before any of them was run, one or two of each kind: reaching, pushing, grasping and placing, inserting, tools,
# buttons, hinges and slides. The other forty are not examined before they are reported.
DEVELOPMENT = (
    "pick-place-v3",
    "peg-insert-side-v3",
    "assembly-v3",
    "button-press-topdown-v3",
    "drawer-open-v3",
    "door-open-v3",
    "push-v3",
    "reach-v3",
    "hammer-v3",
    "shelf-place-v3",
)
POLICIES = {
    "default": "closed form, default",
    "paper": "closed form, preset `paper`",
    "1nn": "1-NN",
    "regression": "kernel regression",
    "mlp": "behavior cloning, MLP",
    "gpi": "GPI, flow fields",
}


@dataclass(frozen=True)
class Benchmark:
    """Tasks of one kind.

    Attributes:
        title: for the report.
        tasks: their names.
        sizes: numbers of demonstrations.
        n_episodes: start states per task.
        env: the environment's name with `{task}` in it.
        read: reads all demonstrations of a task; recordings are in a folder.
        displacements: what its actions displace, which GPI needs to know; None if they are targets.
        describe: returns additional fields for the result of an episode.
    """

    title: str
    tasks: tuple[str, ...]
    sizes: tuple[int, ...]
    n_episodes: int
    env: str
    read: Callable[[str, Path], Demos]
    displacements: Callable[[str], Displacements | None] = lambda task: None
    describe: Callable[[str], Describe] | None = None

    def make(self, policy: str, task: str, demos: Demos) -> Policy[Any]:
        """A policy for a task."""
        if policy == "mlp":
            return MLPPolicy(demos)
        if policy == "gpi":
            return GPIPolicy(demos, self.displacements(task))
        return make_policy(policy, _with_layouts(demos) if policy == "default" else demos)

    def parameters(self, policy: str, task: str) -> dict[str, Any]:
        """The parameters of such a policy, known without demonstrations."""
        if policy == "mlp":
            return asdict(MLPConfig())
        if policy == "gpi":
            return asdict(GPIConfig(displacements=self.displacements(task)))
        policy_class, preset = CHOICES[policy]
        return asdict(policy_class.config_class.preset(preset))


def _with_layouts(demos: Demos) -> Demos:
    """Demonstrations with inferred layouts if none are declared."""
    declared = demos.observation_layout, demos.action_layout
    plain = all(layout == Layout.plain(layout.width) for layout in declared)
    return Layout.infer(demos).relabel(demos) if plain else demos


def _metaworld(task: str, folder: Path) -> Demos:
    return demonstrations(task, folder / "metaworld")


def _hand(task: str) -> Displacements:
    return Displacements([0, 1, 2], [0, 1, 2], 0.01)


def _lasa(variant: str, task: str, folder: Path) -> Demos:
    action, n_points = VARIANTS[variant]
    return load_shape(task, n_points).demos(action)


def _follow(variant: str, task: str) -> Describe:
    return partial(follow, load_shape(task, VARIANTS[variant][1]))


def _velocity(task: str) -> Displacements:
    return Displacements([0, 1], [0, 1], load_shape(task, VARIANTS["velocity"][1]).dt)


def _pusht(task: str, folder: Path) -> Demos:
    return demos_for(make_environment("pusht"), "pusht")


def _mirrored_pusht(task: str, folder: Path) -> Demos:
    demos = _pusht(task, folder)
    layout = Layout.parse("agent position 2, block position 2, block angle 1 mirror_x")
    return demos.with_layouts(layout, demos.action_layout)


def _robomimic(task: str, folder: Path) -> Demos:
    from closedform.experts.generation import generate

    path = folder / "robomimic" / f"{task}.hdf5"
    if not path.exists():
        generate(task, BENCHMARKS["robomimic"].sizes[0], path, workers=1)
    return demos_for(make_environment(task), str(path))


def _lasa_benchmark(variant: str, title: str, n_episodes: int) -> Benchmark:
    return Benchmark(
        title=f"LASA handwriting, {title}",
        tasks=SHAPES,
        sizes=(7,),
        n_episodes=n_episodes,
        env=f"studies.wide.lasa:{{task}}_{variant}",
        read=partial(_lasa, variant),
        displacements=_velocity if variant == "velocity" else lambda task: None,
        describe=partial(_follow, variant),
    )


BENCHMARKS = {
    "metaworld": Benchmark("Meta-World", METAWORLD, (25, 10), 50, "metaworld:{task}", _metaworld, _hand),
    "lasa-position": _lasa_benchmark("position", "next positions as actions", 14),
    "lasa-velocity": _lasa_benchmark("velocity", "velocities as actions", 14),
    "lasa-fine": _lasa_benchmark("fine", "next positions, 1000 per path", 7),
    "pusht": Benchmark("Push-T", ("pusht",), (5, 10, 25, 50, 100, 206), 100, "{task}", _pusht),
    "pusht-mirrored": Benchmark(
        "Push-T, the T's mirror symmetry declared", ("pusht",), (10, 25), 100, "{task}", _mirrored_pusht
    ),
    "robomimic": Benchmark("robomimic's tasks", tuple(ROBOMIMIC_TASKS), (10,), 50, "{task}", _robomimic),
}
