"""The parameters of the policies: frozen dataclasses that are the API, the command line and the saved configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from typing import Any, ClassVar, Self, get_args, get_type_hints

from closedform.demos.demos import Demos
from closedform.diffusion.process import DDPM, Flow, Process
from closedform.diffusion.sampler import SAMPLERS
from closedform.errors import ConfigError, meant
from closedform.policies.horizons import N_ACTION_STEPS, N_EXECUTE, horizons
from closedform.weights.metric import METRICS

PROCESSES = ("flow", "ddpm_cosine", "ddpm_linear")
TARGETS = ("auto", "off")
FEATURES = ("identity", "scaled", "geometric", "custom")
_INDEXES = ("auto", "exact", "faiss")
_ROTATIONS = ("identity", "none")
_GOALS = ("observed", "shared")
MOST = {
    "n_obs_steps": 1_000,
    "n_action_steps": 10_000,
    "n_execute": 10_000,
    "n_neighbors": 1_000_000_000,
    "n_perturbations": 10_000,
    "n_diffusion_steps": 100_000,
}
_LONGEST_SHOWN = 80  # characters of a value in a message


@dataclass(frozen=True)
class PolicyConfig:
    """Parameters of every policy that acts on demonstrations.

    Attributes:
        n_obs_steps: N_o, observations in a window.
        n_action_steps: N_a, actions in a chunk; more for demonstrations at more than 10 Hz, see `horizons`.
        n_execute: H, actions of a chunk that are executed before the next plan (receding horizon); more likewise.
        padding: whether windows may extend past an episode, repeating its first observation before and its last action
            after.
        features: feature map: identity (raw observations), scaled (each number to [-1, 1]), or geometric (uses the
            layout).
        rotation_weight: length of the unit vectors of rotations in geometric features, where positions fill about [-1,
            1].
        metric: distance between observations: euclidean, global_mahalanobis or local_mahalanobis (the paper's).
        n_neighbors: k_nn, the number of neighbors of a plan and its local metric; None is 2000, or all windows if there
            are fewer.
        regularization: lambda, added to the diagonal of the covariance of features.
        shrinkage: shrinkage of that covariance toward a multiple of the identity, 0 (the paper) to 1; None is D_z /
            (D_z + episodes / 4), unless `choose_shrinkage` finds a better one.
        choose_shrinkage: whether, where `shrinkage` is None, leave-one-out predictions may choose a smaller one.
        relevance: whether to down-weight observation entries that worsen leave-one-out predictions; needs geometric
            features.
        selection: whether to leave out observed numbers without which leave-one-out predictions are surely better;
            needs geometric features.
        distinct: whether to leave out observed numbers that are constant or exact copies of others, and not to stretch
            noise.
        frames: frames that chunks are transferred in: world (the paper), auto, or a comma-separated list of names.
        fair_frames: whether the frame of a body without a rotation counts as much as the whole pose of another, if it
            is better than the world's; needs frames=auto.
        missing_rotations: rotation of a hand whose actions command none: identity (it never turns, and can grasp) or
            none (it grasps nothing).
        loop_memory: distance penalty on recently used demonstrations, in units of the metric, to escape loops; 0 is the
            paper.
        rest: whether a policy that has arrived stays: the last windows of demonstrations are never penalized, unless
            objects have a goal (`goal_weight`); off in the paper.
        pace: whether demonstrations recede only once they would have moved on at their own speed; off in the paper.
        continuation: what it costs to leave the demonstration that is being followed, relative to how near it is; 0 is
            the paper.
        goal_weight: preference for demonstrations whose remaining object motion leads to the shared goal; 0 is the
            paper.
        goals: where goals are: observed (at a body that is never moved, if ends vary far less around it; hands have
            goals where nothing else moves) or shared (of objects, the same in all episodes).
        symmetry: whether demonstrations count in all poses in which bodies look the same, where layouts declare
            symmetries.
        find_symmetry: whether mirror symmetries that few demonstrations in the plane show count as if declared; off in
            the paper.
        relation_weight: preference for demonstrations in which hands are at the same place relative to objects; 0 is
            the paper.
        targets: whether actions that displace an observed body are planned as the targets they command: auto or off.
        index: nearest-neighbor search: exact, faiss (approximate, extra `ann`, for millions of windows), or auto, which
            is exact and says where faiss would be faster.
        recall: recall target of approximate search: the fraction of neighbors that carry weight that it must find.
    """

    n_obs_steps: int = 1
    n_action_steps: int = N_ACTION_STEPS
    n_execute: int = N_EXECUTE
    padding: bool = True
    features: str = "geometric"
    rotation_weight: float = 0.4
    metric: str = "local_mahalanobis"
    n_neighbors: int | None = None
    regularization: float = 1e-3
    shrinkage: float | None = None
    choose_shrinkage: bool = True
    relevance: bool = True
    selection: bool = True
    distinct: bool = True
    frames: str = "auto"
    fair_frames: bool = True
    missing_rotations: str = "identity"
    loop_memory: float = 1.0
    rest: bool = True
    pace: bool = True
    continuation: float = 0.5
    goal_weight: float = 0.3
    goals: str = "observed"
    symmetry: bool = True
    find_symmetry: bool = True
    relation_weight: float = 6.4
    targets: str = "auto"
    index: str = "auto"
    recall: float = 0.95

    PAPER: ClassVar[dict[str, Any]] = {
        "n_obs_steps": 2,
        "n_action_steps": 12,
        "n_execute": 12,
        "padding": False,
        "features": "scaled",
        "rotation_weight": 0.4,
        "metric": "local_mahalanobis",
        "n_neighbors": 2000,
        "regularization": 1e-3,
        "shrinkage": 0.0,
        "choose_shrinkage": False,
        "relevance": False,
        "selection": False,
        "distinct": False,
        "frames": "world",
        "fair_frames": False,
        "missing_rotations": "none",
        "loop_memory": 0.0,
        "rest": False,
        "pace": False,
        "continuation": 0.0,
        "goal_weight": 0.0,
        "goals": "shared",
        "symmetry": False,
        "find_symmetry": False,
        "relation_weight": 0.0,
        "targets": "off",
        "index": "auto",
        "recall": 0.95,
    }
    """Every parameter of the preset `paper`; those that the paper does not name have no effect with the others, or are
    what reproduces its results."""

    BEFORE: ClassVar[dict[str, Any]] = {
        "shrinkage": 0.0,
        "choose_shrinkage": False,
        "relevance": False,
        "selection": False,
        "distinct": False,
        "rest": False,
        "pace": False,
        "continuation": 0.0,
        "fair_frames": False,
        "missing_rotations": "none",
        "symmetry": False,
        "find_symmetry": False,
        "targets": "off",
        "relation_weight": 0.0,
        "goals": "shared",
    }
    """Values of parameters that are missing in policies saved by older versions."""

    def __post_init__(self):
        _normalize_types(self)
        _check_counts(self)
        _check(
            self.n_execute <= self.n_action_steps,
            "n_execute",
            f"at most n_action_steps ({self.n_action_steps})",
            self.n_execute,
        )
        _check(self.features in FEATURES, "features", _one_of(FEATURES), self.features)
        _check(self.metric in METRICS, "metric", _one_of(METRICS), self.metric)
        _check(self.missing_rotations in _ROTATIONS, "missing_rotations", _one_of(_ROTATIONS), self.missing_rotations)
        _check(self.goals in _GOALS, "goals", _one_of(_GOALS), self.goals)
        _check(self.targets in TARGETS, "targets", _one_of(TARGETS), self.targets)
        _check(self.index in _INDEXES, "index", _one_of(_INDEXES), self.index)
        _check(1e-12 <= self.regularization <= 1e12, "regularization", "1e-12 to 1e12", self.regularization)
        _check(self.shrinkage is None or 0 <= self.shrinkage <= 1, "shrinkage", "0 to 1", self.shrinkage)
        _check(1e-6 <= self.rotation_weight <= 1e6, "rotation_weight", "1e-6 to 1e6", self.rotation_weight)
        _check(0 < self.recall <= 1, "recall", "more than 0, and at most 1", self.recall)
        _check(0 <= self.loop_memory <= 1e6, "loop_memory", "0 to 1e6", self.loop_memory)
        _check(0 <= self.continuation <= 1e6, "continuation", "0 to 1e6", self.continuation)
        _check(0 <= self.goal_weight <= 1e6, "goal_weight", "0 to 1e6", self.goal_weight)
        _check(0 <= self.relation_weight <= 1e6, "relation_weight", "0 to 1e6", self.relation_weight)

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
        known = [field.name for field in fields(cls)]
        for parameter in parameters:
            if parameter not in known:
                raise ConfigError(f"{cls.__name__} has no parameter {parameter!r}: {meant(parameter, known)}")
        if name == "paper":
            chosen = {key: value for key, value in cls.PAPER.items() if key in known}
        else:
            chosen = {} if demos is None else horizons(demos)
        if isinstance(parameters.get("n_action_steps"), Integral) and "n_execute" not in parameters:
            chosen["n_execute"] = min(chosen.get("n_execute", cls.n_execute), parameters["n_action_steps"])
        return cls(**{**chosen, **parameters})

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
        **PolicyConfig.PAPER,
        "n_obs_steps": 1,
        "n_action_steps": 1,
        "n_execute": 1,
        "metric": "euclidean",
        "n_neighbors": 16,
    }


@dataclass(frozen=True)
class KernelConfig(PolicyConfig):
    """Parameters of policies that weight neighbors with the observation kernel.

    Attributes:
        bandwidth: h sqrt(D_z), as in the paper's tables, with h in units of the metric; comparable across feature
            widths D_z.
    """

    bandwidth: float = 0.09

    PAPER: ClassVar[dict[str, Any]] = {**PolicyConfig.PAPER, "bandwidth": 0.09}

    def __post_init__(self):
        super().__post_init__()
        _check(1e-9 <= self.bandwidth <= 1e9, "bandwidth", "1e-9 to 1e9", self.bandwidth)


@dataclass(frozen=True)
class ClosedFormConfig(KernelConfig):
    """Parameters of the closed-form diffusion policy, besides those of `PolicyConfig` and `KernelConfig`.

    Attributes:
        tau: scale of the Monte Carlo smoothing, in normalized actions; 0 for no smoothing.
        n_perturbations: M, the number of perturbations that the score is averaged over.
        n_diffusion_steps: S, the number of diffusion steps.
        process: noising process: flow, ddpm_cosine or ddpm_linear.
        sampler: sampler: euler (the flow ODE), ddpm (ancestral) or ddim.
        pruning_error: error bound, in normalized actions, for pruning demonstrations in the compiled kernel; 0 disables
            pruning.
        deadline: seconds that a plan may take: diffusion then stops early and returns the best chunk so far; None for
            no limit. Search, metric, frames and the first step always run in full; a warning says if they alone exceed
            the deadline.
    """

    tau: float = 0.07
    n_perturbations: int = 32
    n_diffusion_steps: int = 100
    process: str = "flow"
    sampler: str = "euler"
    pruning_error: float = 1e-4
    deadline: float | None = None

    PAPER: ClassVar[dict[str, Any]] = {
        **KernelConfig.PAPER,
        "tau": 0.07,
        "n_perturbations": 32,
        "n_diffusion_steps": 100,
        "process": "flow",
        "sampler": "euler",
        "pruning_error": 1e-4,
        "deadline": None,
    }

    def __post_init__(self):
        super().__post_init__()
        _check(0 <= self.tau <= 1e6, "tau", "0 to 1e6", self.tau)
        _check(self.process in PROCESSES, "process", _one_of(PROCESSES), self.process)
        _check(self.sampler in SAMPLERS, "sampler", _one_of(tuple(SAMPLERS)), self.sampler)
        _check(self.deadline is None or 0 < self.deadline <= 1e6, "deadline", "more than 0, or None", self.deadline)
        _check(0 <= self.pruning_error < 1, "pruning_error", "0 or more and below 1", self.pruning_error)
        SAMPLERS[self.sampler].steps(self.make_process(), self.n_diffusion_steps)

    def make_process(self) -> Process:
        """The noising process; DDPM has a noise level for each step, and at least 100."""
        if self.process == "flow":
            return Flow()
        levels = max(100, self.n_diffusion_steps)
        return DDPM(levels, "cosine" if self.process == "ddpm_cosine" else "linear")


def _check(holds: bool, name: str, expected: str, found: Any) -> None:
    if not holds:  # also if a comparison with NaN is false
        raise ConfigError(f"{name}: expected {expected}, found {shown(found)}")


def _check_counts(config: PolicyConfig) -> None:
    for name, most in MOST.items():
        count = getattr(config, name, None)
        if count is not None:
            _check(count >= 1, name, "at least 1", count)
            _check(count <= most, name, f"at most {most:,}", count)


def shown(value: Any) -> str:
    """A value for an error message, truncated if it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python does not print integers of more than 4300 digits
        return "a number of thousands of digits"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}... ({len(text)} characters)"


def _normalize_types(config: PolicyConfig) -> None:
    """Converts numpy numbers to Python's, and refuses values of the wrong type."""
    hints = get_type_hints(type(config))
    for field in fields(config):
        value, hint = getattr(config, field.name), hints[field.name]
        allowed = get_args(hint) or (hint,)
        if isinstance(value, bool) and bool in allowed:
            continue
        try:
            if isinstance(value, Integral) and not isinstance(value, bool) and int in allowed:
                object.__setattr__(config, field.name, int(value))
                continue
            if isinstance(value, Real) and not isinstance(value, bool) and float in allowed:
                object.__setattr__(config, field.name, float(value))
                continue
        except OverflowError as error:  # an integer that no float holds
            raise ConfigError(f"{field.name}: expected a number below 1e308, found {shown(value)}") from error
        if isinstance(value, bool) or not isinstance(value, allowed):
            names = " or ".join(t.__name__ if t is not type(None) else "None" for t in allowed)
            raise ConfigError(f"{field.name}: expected {names}, found {shown(value)}")


def _one_of(choices: tuple[str, ...]) -> str:
    return f"one of {', '.join(choices)}"
