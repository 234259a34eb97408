"""ClosedformConfig: LeRobot's configuration of the policy, which is also closedform's config.json."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lerobot.configs import FeatureType, NormalizationMode, PreTrainedConfig
from lerobot.optim import AdamConfig, OptimizerConfig

from closedform.errors import ConfigError
from closedform.policies.saving import POLICIES


@PreTrainedConfig.register_subclass("closedform")
@dataclass
class ClosedformConfig(PreTrainedConfig):
    """How to fit and run a policy.

    LeRobot refuses entries of config.json that are not fields, and closedform writes its own there, so that one folder
    is a policy of both; the fields from `format` on are these, and are not for users.

    Attributes:
        policy: the class: ClosedFormPolicy, NearestNeighborPolicy or KernelRegressionPolicy.
        parameters: its parameters by name, as in `closedform fit --set`; those left out have their defaults.
        layout: as `closedform eval --layout`: infer, none, or a JSON file; None is what the dataset declares, or
            inferred if it declares nothing.
        observation_keys: the features that make up an observation, in this order; None is `observation.state` followed
            by `observation.environment_state`.
        keypoints: `pusht` if observations are those of LeRobot's Push-T, the agent and eight keypoints of the block,
            and the policy is to see the pose of the block; None to take observations as they are.
        episodes: numbers of the episodes of a dataset to fit; None for all.
        only_task: the task whose episodes to fit, of a dataset with several, or a pattern such as `*` for all.
        seed: of the random numbers of the first episode, counted up from episode to episode.
    """

    policy: str = "ClosedFormPolicy"
    parameters: dict[str, Any] = field(default_factory=dict)
    layout: str | None = None
    observation_keys: list[str] | None = None
    keypoints: str | None = None
    episodes: list[int] | None = None
    only_task: str | None = None
    seed: int = 0
    normalization_mapping: dict[str, NormalizationMode] = field(
        default_factory=lambda: dict.fromkeys(("STATE", "ENV", "ACTION"), NormalizationMode.IDENTITY)
    )

    format: str | None = None
    format_version: int | None = None
    observation_layout: list[Any] | None = None
    action_layout: list[Any] | None = None
    observation_names: list[str] | None = None
    n_episodes: int | None = None
    n_steps: int | None = None
    next_episode_id: int | None = None
    crc32: Any = None
    config_crc32: Any = None
    targets: Any = None
    symmetry: Any = None
    terms: Any = None
    index: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.policy not in POLICIES:
            raise ConfigError(f"policy: expected one of {', '.join(POLICIES)}, found {self.policy!r}")
        if self.keypoints not in (None, "pusht"):
            raise ConfigError(f"keypoints: expected pusht or null, found {self.keypoints!r}")
        self.n_obs_steps = self.planning.n_obs_steps

    @property
    def planning(self) -> Any:
        """The parameters, checked, with defaults."""
        return POLICIES[self.policy].config_class.preset(**self.parameters)

    @property
    def n_action_steps(self) -> int:
        """Actions of a chunk that are executed, which is what LeRobot calls it."""
        return self.planning.n_execute

    @property
    def chunk_size(self) -> int:
        """Actions in a chunk."""
        return self.planning.n_action_steps

    @property
    def observation_delta_indices(self) -> list[int]:
        """A window of observations, the newest last."""
        return list(range(1 - self.n_obs_steps, 1))

    @property
    def action_delta_indices(self) -> list[int]:
        """The chunk that begins at the newest observation."""
        return list(range(self.chunk_size))

    @property
    def reward_delta_indices(self) -> None:
        """None: rewards are not used."""
        return

    def get_optimizer_preset(self) -> OptimizerConfig:
        """Any: there is nothing to optimize."""
        return AdamConfig()

    def get_scheduler_preset(self) -> None:
        """None, for the same reason."""
        return

    def validate_features(self) -> None:
        """Refuses data with nothing but pictures to observe."""
        if self.input_features and all(f.type is FeatureType.VISUAL for f in self.input_features.values()):
            found = ", ".join(self.input_features)
            raise ConfigError(f"expected numbers to observe, such as observation.state, found only {found}")
