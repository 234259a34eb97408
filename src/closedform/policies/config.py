"""The parameters of the policies: frozen dataclasses that are the API, the command line and the saved configuration."""

from __future__ import annotations

from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, ClassVar, Self, get_args, get_type_hints

from closedform.diffusion.process import DDPM, Flow, Process
from closedform.diffusion.sampler import SAMPLERS, step_weights
from closedform.errors import ConfigError
from closedform.retrieval.metric import METRICS

PROCESSES = ("flow", "ddpm_cosine", "ddpm_linear")
FEATURES = ("identity", "scaled", "geometric", "custom")
_INDEXES = ("auto", "exact", "faiss")
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
    """Parameters of every policy that acts on demonstrations."""

    n_obs_steps: int = 1
    """N_o, observations in a window."""
    n_action_steps: int = 12
    """N_a, actions in a chunk."""
    n_execute: int = 4
    """H, actions of a chunk that are executed before the next plan."""
    padding: bool = True
    """Whether windows may begin before an episode's start (its first observation is repeated) and end after its end."""
    features: str = "geometric"
    """Feature map: identity (observations as they are), scaled (each entry to [-1, 1]), geometric (by the layout)."""
    rotation_weight: float = 0.4
    """Length of a rotation's unit vectors in geometric features, where positions fill about [-1, 1]."""
    metric: str = "local_mahalanobis"
    """Distance between observations: euclidean, global_mahalanobis or local_mahalanobis (the paper's)."""
    n_neighbors: int | None = None
    """k_nn, the neighborhood of the local metric; None is 2000, or all windows where there are fewer."""
    regularization: float = 1e-3
    """lambda, added to the diagonal of the covariance of features."""
    shrinkage: float | None = None
    """How far this covariance is drawn toward a sphere, 0 to 1; None is D_z / (D_z + episodes / 4), 0 the paper."""
    relevance: bool = True
    """Whether entries of observations that make predictions worse count less; needs geometric features."""
    frames: str = "auto"
    """Frames that chunks are transferred in: world (the paper), auto, or names with commas between them."""
    loop_memory: float = 1.0
    """How far a demonstration recedes once it was used, in units of the metric; 0 forgets at once (the paper)."""
    goal_weight: float = 0.3
    """How much demonstrations are preferred that still make the motion needed to end where they end; 0 is the paper."""
    index: str = "auto"
    """Search: exact, faiss (approximate, extra `ann`), or auto for what is faster at the size that it is made with."""
    recall: float = 0.95
    """Share of the neighbors that carry weight which an approximate search has to find."""

    PAPER: ClassVar[dict[str, Any]] = {
        "n_obs_steps": 2,
        "n_action_steps": 12,
        "n_execute": 12,
        "padding": False,
        "features": "scaled",
        "metric": "local_mahalanobis",
        "n_neighbors": 2000,
        "shrinkage": 0.0,
        "relevance": False,
        "frames": "world",
        "loop_memory": 0.0,
        "goal_weight": 0.0,
    }

    BEFORE: ClassVar[dict[str, Any]] = {"shrinkage": 0.0, "relevance": False}
    """What parameters were that policies had not yet when they were saved."""

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
        _check(self.index in _INDEXES, "index", _one_of(_INDEXES), self.index)
        _check(1e-12 <= self.regularization <= 1e12, "regularization", "1e-12 to 1e12", self.regularization)
        _check(self.shrinkage is None or 0 <= self.shrinkage <= 1, "shrinkage", "0 to 1", self.shrinkage)
        _check(1e-6 <= self.rotation_weight <= 1e6, "rotation_weight", "1e-6 to 1e6", self.rotation_weight)
        _check(0 < self.recall <= 1, "recall", "more than 0, and at most 1", self.recall)
        _check(0 <= self.loop_memory <= 1e6, "loop_memory", "0 to 1e6", self.loop_memory)
        _check(0 <= self.goal_weight <= 1e6, "goal_weight", "0 to 1e6", self.goal_weight)

    @classmethod
    def preset(cls, name: str = "default", **parameters: Any) -> Self:
        """The parameters of a preset, `default` or `paper`, with some of them replaced."""
        if name not in ("default", "paper"):
            raise ConfigError(f"no preset {name!r}: expected 'default' or 'paper'")
        known = [field.name for field in fields(cls)]
        for parameter in parameters:
            if parameter not in known:
                raise ConfigError(f"{cls.__name__} has no parameter {parameter!r}: expected some of {', '.join(known)}")
        chosen = {key: value for key, value in cls.PAPER.items() if key in known} if name == "paper" else {}
        if isinstance(parameters.get("n_action_steps"), Integral) and "n_execute" not in parameters:
            chosen["n_execute"] = min(chosen.get("n_execute", cls.n_execute), parameters["n_action_steps"])
        return cls(**{**chosen, **parameters})


@dataclass(frozen=True)
class KernelConfig(PolicyConfig):
    """Parameters of policies that weigh neighbors with the observation kernel."""

    bandwidth: float = 0.09
    """h sqrt(D_z), as the paper's tables report it, h being in units of the metric: fit for any width."""

    PAPER: ClassVar[dict[str, Any]] = {**PolicyConfig.PAPER, "bandwidth": 0.09}

    def __post_init__(self):
        super().__post_init__()
        _check(1e-9 <= self.bandwidth <= 1e9, "bandwidth", "1e-9 to 1e9", self.bandwidth)


@dataclass(frozen=True)
class ClosedFormConfig(KernelConfig):
    """Parameters of the closed-form diffusion policy."""

    tau: float = 0.07
    """Scale of the Monte Carlo smoothing, in normalized actions; 0 repeats demonstrations as they are."""
    n_perturbations: int = 32
    """M, perturbations that the score is averaged over."""
    n_diffusion_steps: int = 100
    """S, steps from noise to a chunk."""
    process: str = "flow"
    """Noising process: flow, ddpm_cosine or ddpm_linear."""
    sampler: str = "euler"
    """euler (the flow ODE), ddpm (ancestral) or ddim."""
    pruning_error: float = 1e-4
    """Error, in normalized actions, that the compiled kernel may make by dropping demonstrations; 0 drops none."""
    deadline: float | None = None
    """Seconds that a plan may take: diffusion stops early, with the best chunk so far. None lets it finish. Search,
    metric, frames and the first step are not cut short; a policy for which they alone take longer warns of it."""

    PAPER: ClassVar[dict[str, Any]] = {
        **KernelConfig.PAPER,
        "tau": 0.07,
        "n_diffusion_steps": 100,
        "process": "flow",
        "sampler": "euler",
    }

    def __post_init__(self):
        super().__post_init__()
        _check(0 <= self.tau <= 1e6, "tau", "0 to 1e6", self.tau)
        _check(self.process in PROCESSES, "process", _one_of(PROCESSES), self.process)
        _check(self.sampler in SAMPLERS, "sampler", _one_of(tuple(SAMPLERS)), self.sampler)
        _check(self.deadline is None or 0 < self.deadline <= 1e6, "deadline", "more than 0, or None", self.deadline)
        _check(0 <= self.pruning_error < 1, "pruning_error", "0 or more and below 1", self.pruning_error)
        step_weights(SAMPLERS[self.sampler], self.make_process(), self.n_diffusion_steps)

    def make_process(self) -> Process:
        """The noising process; a DDPM one has a level for each step, and 100 where fewer steps are taken."""
        if self.process == "flow":
            return Flow()
        levels = max(100, self.n_diffusion_steps)
        return DDPM(levels, "cosine" if self.process == "ddpm_cosine" else "linear")


def _check(holds: bool, name: str, expected: str, found: Any) -> None:
    if not holds:  # also where a comparison with NaN is false
        raise ConfigError(f"{name}: expected {expected}, found {shown(found)}")


def _check_counts(config: PolicyConfig) -> None:
    for name, most in MOST.items():
        count = getattr(config, name, None)
        if count is not None:
            _check(count >= 1, name, "at least 1", count)
            _check(count <= most, name, f"at most {most:,}", count)


def shown(value: Any) -> str:
    """A value as a message shows it, however long it is."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no whole number of more than 4300 digits
        return "a number of thousands of digits"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}... ({len(text)} characters)"


def _normalize_types(config: PolicyConfig) -> None:
    """Makes numbers of numpy's into Python's, and refuses what is not of a parameter's type."""
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
        except OverflowError as error:  # a whole number that no float holds
            raise ConfigError(f"{field.name}: expected a number below 1e308, found {shown(value)}") from error
        if isinstance(value, bool) or not isinstance(value, allowed):
            names = " or ".join(t.__name__ if t is not type(None) else "None" for t in allowed)
            raise ConfigError(f"{field.name}: expected {names}, found {shown(value)}")


def _one_of(choices: tuple[str, ...]) -> str:
    return f"one of {', '.join(choices)}"
