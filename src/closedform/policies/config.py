"""The parameters of the policies: frozen dataclasses that are the API, the command line and the saved configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from numbers import Integral
from typing import Any, ClassVar, Self

from closedform.demos.demos import Demos
from closedform.diffusion.process import DDPM, Flow, Process
from closedform.diffusion.sampler import SAMPLERS
from closedform.errors import ConfigError, meant
from closedform.parameters import Parameters, document, parameter
from closedform.policies.horizons import N_ACTION_STEPS, N_EXECUTE, horizons
from closedform.weights.metric import METRICS
from closedform.weights.terms import TermParameters

RENAMED = {
    "rest": "hold_at_end",
    "pace": "loop_delay",
    "distinct": "drop_redundant",
    "fair_frames": "position_frames",
}
"""Names that parameters had before version 0.2."""


@dataclass(frozen=True)
class Horizon(Parameters):
    """How much is seen, planned and executed at once."""

    n_obs_steps: int = parameter(1, 2, "N_o, observations in a window.", between=(1, 1_000))
    n_action_steps: int = parameter(
        N_ACTION_STEPS,
        12,
        "N_a, actions in a chunk; more for demonstrations at more than 10 Hz, see `horizons`.",
        between=(1, 10_000),
    )
    n_execute: int = parameter(
        N_EXECUTE,
        12,
        "H, actions of a chunk that are executed before the next plan (receding horizon); more likewise.",
        between=(1, 10_000),
    )
    padding: bool = parameter(
        True,
        False,
        "whether windows may extend past an episode, repeating its first observation before and its last action after.",
    )


@dataclass(frozen=True)
class MetricParameters(Parameters):
    """What is near: features, the distance between them, and how neighbors are found."""

    features: str = parameter(
        "geometric",
        "scaled",
        "feature map: identity (raw observations), scaled (each number to [-1, 1]), or geometric (uses the layout).",
        choices=("identity", "scaled", "geometric", "custom"),
    )
    rotation_weight: float = parameter(
        0.4,
        0.4,
        "length of the unit vectors of rotations in geometric features, where positions fill about [-1, 1].",
        between=(1e-6, 1e6),
    )
    metric: str = parameter(
        "local_mahalanobis",
        "local_mahalanobis",
        "distance between observations: euclidean, global_mahalanobis or local_mahalanobis (the paper's).",
        choices=METRICS,
    )
    n_neighbors: int | None = parameter(
        None,
        2000,
        "k_nn, the number of neighbors of a plan and its local metric; None is 2000, or all windows if there are "
        "fewer.",
        between=(1, 1_000_000_000),
    )
    regularization: float = parameter(
        1e-3, 1e-3, "lambda, added to the diagonal of the covariance of features.", between=(1e-12, 1e12)
    )
    shrinkage: float | None = parameter(
        None,
        0.0,
        "shrinkage of that covariance toward a multiple of the identity, 0 (the paper) to 1; None is D_z / (D_z + "
        "episodes / 4), unless `choose_shrinkage` finds a better one.",
        between=(0, 1),
    )
    choose_shrinkage: bool = parameter(
        True, False, "whether, where `shrinkage` is None, leave-one-out predictions may choose a smaller one."
    )
    relevance: bool = parameter(
        True,
        False,
        "whether to down-weight observation entries that worsen leave-one-out predictions; needs geometric features.",
    )
    selection: bool = parameter(
        True,
        False,
        "whether to leave out observed numbers without which leave-one-out predictions are surely better; needs "
        "geometric features.",
    )
    drop_redundant: bool = parameter(
        True,
        False,
        "whether to leave out observed numbers that are constant or exact copies of others, and not to stretch noise.",
    )
    index: str = parameter(
        "auto",
        "auto",
        "nearest-neighbor search: exact, faiss (approximate, extra `ann`, for millions of windows), or auto, which is "
        "exact and says where faiss would be faster.",
        choices=("auto", "exact", "faiss"),
    )
    recall: float = parameter(
        0.95,
        0.95,
        "recall target of approximate search: the fraction of neighbors that carry weight that it must find.",
        between=(0, 1),
        open_ends=(True, False),
    )


@dataclass(frozen=True)
class TransferParameters(Parameters):
    """How demonstrations apply to other scenes than theirs."""

    frames: str = parameter(
        "auto",
        "world",
        "frames that chunks are transferred in: world (the paper), auto, or a comma-separated list of names.",
    )
    position_frames: bool = parameter(
        True,
        False,
        "whether the frame of a body without a rotation counts as much as the whole pose of another, if it is better "
        "than the world's; needs frames=auto.",
    )
    missing_rotations: str = parameter(
        "identity",
        "none",
        "rotation of a hand whose actions command none: identity (it never turns, and can grasp) or none (it grasps "
        "nothing).",
        choices=("identity", "none"),
    )
    symmetry: bool = parameter(
        True,
        False,
        "whether demonstrations count in all poses in which bodies look the same, where layouts declare symmetries.",
    )
    find_symmetry: bool = parameter(
        True,
        False,
        "whether mirror symmetries that few demonstrations in the plane show count as if declared; off in the paper.",
    )
    targets: str = parameter(
        "auto",
        "off",
        "whether actions that displace an observed body are planned as the targets they command: auto or off.",
        choices=("auto", "off"),
    )


@dataclass(frozen=True)
class PolicyConfig(TermParameters, TransferParameters, MetricParameters, Horizon):
    """Parameters of every policy that acts on demonstrations, in groups: horizon, metric, transfer and terms."""

    PAPER: ClassVar[dict[str, Any]] = {}
    """Values of the preset `paper` that differ from those that are declared."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_execute > self.n_action_steps:
            raise ConfigError(
                f"n_execute: expected at most n_action_steps ({self.n_action_steps}), found {self.n_execute}"
            )

    @classmethod
    def preset(cls, name: str = "default", demos: Demos | None = None, **parameters: Any) -> Self:
        """The parameters of a preset, with some of them replaced.

        Args:
            name: `default` or `paper`.
            demos: the demonstrations that they are for, whose rate sets the `horizons` of the default.
            parameters: parameters to replace, by name.
        """
        if name not in ("default", "paper"):
            raise ConfigError(f"unknown preset {name!r}: expected 'default' or 'paper'")
        for given in parameters:
            cls.check_name(given)
        chosen = {**cls.papers(), **cls.PAPER} if name == "paper" else {}
        if name == "default" and demos is not None:
            chosen = horizons(demos)
        if isinstance(parameters.get("n_action_steps"), Integral) and "n_execute" not in parameters:
            chosen["n_execute"] = min(chosen.get("n_execute", cls.n_execute), parameters["n_action_steps"])
        return cls(**{**chosen, **parameters})

    @classmethod
    def check_name(cls, name: str) -> None:
        """Refuses a name that is no parameter's, with the name that was probably meant."""
        known = [each.name for each in fields(cls)]
        if name in RENAMED:
            raise ConfigError(f"the parameter {name!r} is called {RENAMED[name]!r} now")
        if name not in known:
            raise ConfigError(f"{cls.__name__} has no parameter {name!r}: {meant(name, known)}")

    def with_feature_map(self, feature_map: Callable[[Any], Any] | None) -> Self:
        """The configuration of a policy with this feature map, which `features` says where there is one."""
        if isinstance(feature_map, str) or not (feature_map is None or callable(feature_map)):
            raise ConfigError(f"feature_map: expected a function, found {feature_map!r}; features= takes a name")
        if feature_map is not None:
            return replace(self, features="custom")
        if self.features == "custom":
            raise ConfigError("features='custom' requires the argument feature_map, a function; found none")
        return self


@dataclass(frozen=True)
class VINNConfig(PolicyConfig):
    """Parameters of `VINNPolicy`, whose preset `paper` is that of VINN's paper."""

    PAPER: ClassVar[dict[str, Any]] = {
        "n_obs_steps": 1,
        "n_action_steps": 1,
        "n_execute": 1,
        "metric": "euclidean",
        "n_neighbors": 16,
    }


@dataclass(frozen=True)
class KernelConfig(PolicyConfig):
    """Parameters of policies that weight neighbors with the observation kernel."""

    bandwidth: float = parameter(
        0.09,
        0.09,
        "h sqrt(D_z), as in the paper's tables, with h in units of the metric; comparable across feature widths D_z.",
        between=(1e-9, 1e9),
    )


@dataclass(frozen=True)
class ClosedFormConfig(KernelConfig):
    """Parameters of the closed-form diffusion policy: those of every policy, and of sampling."""

    tau: float = parameter(
        0.07,
        0.07,
        "scale of the Monte Carlo smoothing, in normalized actions; 0 for no smoothing.",
        between=(0, 1e6),
    )
    n_perturbations: int = parameter(
        32, 32, "M, the number of perturbations that the score is averaged over.", between=(1, 10_000)
    )
    n_diffusion_steps: int = parameter(100, 100, "S, the number of diffusion steps.", between=(1, 100_000))
    process: str = parameter(
        "flow",
        "flow",
        "noising process: flow, ddpm_cosine or ddpm_linear.",
        choices=("flow", "ddpm_cosine", "ddpm_linear"),
    )
    sampler: str = parameter(
        "euler", "euler", "sampler: euler (the flow ODE), ddpm (ancestral) or ddim.", choices=SAMPLERS
    )
    pruning_error: float = parameter(
        1e-4,
        1e-4,
        "error bound, in normalized actions, for pruning demonstrations in the compiled kernel; 0 disables pruning.",
        between=(0, 1),
        open_ends=(False, True),
    )
    deadline: float | None = parameter(
        None,
        None,
        "seconds that a plan may take: diffusion then stops early and returns the best chunk so far; None for no "
        "limit. Search, metric, frames and the first step always run in full; a warning says if they alone exceed the "
        "deadline.",
        between=(0, 1e6),
        open_ends=(True, False),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        SAMPLERS[self.sampler].steps(self.make_process(), self.n_diffusion_steps)

    def make_process(self) -> Process:
        """The noising process; DDPM has a noise level for each step, and at least 100."""
        if self.process == "flow":
            return Flow()
        levels = max(100, self.n_diffusion_steps)
        return DDPM(levels, "cosine" if self.process == "ddpm_cosine" else "linear")


for _config in (PolicyConfig, VINNConfig, KernelConfig, ClosedFormConfig):
    document(_config)

PAPER = ClosedFormConfig.preset("paper")
"""The paper's algorithm: what it names has its value, what it does not have is off, the rest changes no plan of it."""
