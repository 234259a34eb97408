"""ClosedformPolicy: a closedform policy with the methods of LeRobot's `PreTrainedPolicy`."""

from __future__ import annotations

import inspect
import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

import draccus
import numpy as np
import torch
from huggingface_hub import snapshot_download
from lerobot.configs import FeatureType, PolicyFeature, PreTrainedConfig, parser
from lerobot.policies import PreTrainedPolicy
from lerobot.utils.constants import ACTION, OBS_STATE
from torch import Tensor, nn

from closedform import Agent, ClosedFormPolicy, Demos, load_demos, load_policy
from closedform.demos.chosen_layouts import choose_layouts
from closedform.errors import ConfigError
from closedform.files import crc32, read_json
from closedform.policies.agent import act_together
from closedform.policies.demonstration_policy import DemonstrationPolicy
from closedform.policies.folder import write_content
from closedform.policies.saving import POLICIES, write_policy
from closedform.weights.terms.action_prefix import ActionPrefix
from lerobot_policy_closedform.configuration_closedform import ClosedformConfig
from lerobot_policy_closedform.observations import observations_of, with_poses
from lerobot_policy_closedform.processor_closedform import complete_folder

LOG = logging.getLogger(__name__)


class ClosedformPolicy(PreTrainedPolicy):
    """Plans in closed form from demonstrations.

    Args:
        config: how to fit and run it.
        dataset_stats: not used.
        dataset_meta: the dataset to fit.
        policy: a fitted policy to wrap instead.

    Attributes:
        policy: the closedform policy.
        last_plans: of each episode of the batch, the plan being executed: which demonstrations it is made of, and how
            far they are.
    """

    config_class = ClosedformConfig
    name = "closedform"

    def __init__(
        self,
        config: ClosedformConfig,
        dataset_stats: Any = None,
        dataset_meta: Any = None,
        *,
        policy: DemonstrationPolicy[Any] | None = None,
        **_: Any,
    ):
        super().__init__(config)
        config.validate_features()
        if policy is None and dataset_meta is None:
            raise ConfigError(
                "expected demonstrations, found none: fit with lerobot-train --policy.type=closedform --steps=1, or "
                "load with --policy.path"
            )
        self.policy = _fit(config, dataset_meta) if policy is None else policy
        self.nothing = nn.Parameter(torch.zeros(1))  # LeRobot's optimizers need at least one
        self._n_episodes = 0
        self._adapt_config()
        self.reset()

    def _adapt_config(self) -> None:
        """Has the configuration say what the policy is."""
        config, policy = self.config, self.policy
        widths = policy.observation_layout.width, policy.action_layout.width
        given = (config.output_features or {}).get(ACTION)
        if given is not None and given.shape != (widths[1],):
            raise ConfigError(f"expected actions of {widths[1]} numbers, found {ACTION} of shape {given.shape}")
        config.policy, config.parameters = type(policy).__name__, asdict(policy.config)
        config.n_obs_steps = policy.config.n_obs_steps
        seen = {n: f for n, f in (config.input_features or {}).items() if f.type is not FeatureType.VISUAL}
        config.input_features = seen or {OBS_STATE: PolicyFeature(FeatureType.STATE, (widths[0],))}
        config.output_features = {ACTION: PolicyFeature(FeatureType.ACTION, (widths[1],))}

    @classmethod
    def from_pretrained(
        cls,
        pretrained_name_or_path: str | Path,
        *,
        config: PreTrainedConfig | None = None,
        revision: str | None = None,
        dataset_meta: Any = None,
        **_: Any,
    ) -> ClosedformPolicy:
        """Loads a policy saved by LeRobot or by closedform; no file in it can run code.

        Episodes of `dataset_meta` that the policy does not hold are added to it.
        """
        folder = Path(pretrained_name_or_path)
        if not folder.is_dir():
            folder = Path(snapshot_download(str(pretrained_name_or_path), revision=revision))
        if config is None:
            config = PreTrainedConfig.from_pretrained(folder)
        if not isinstance(config, ClosedformConfig):
            raise ConfigError(f"{folder}: expected a policy of type closedform, found {type(config).__name__}")
        policy = load_policy(folder)
        if not isinstance(policy, DemonstrationPolicy):
            raise ConfigError(f"{folder}: expected a policy made of demonstrations, found {type(policy).__name__}")
        if config.planning != policy.config:  # changed on the command line
            demos = Demos(policy.episodes, policy.observation_layout, policy.action_layout)
            policy = type(policy)(demos, config=config.planning)
        if dataset_meta is not None:
            held = {_checksum(episode) for episode in policy.episodes}
            for episode in _read(config, dataset_meta):
                if _checksum(episode) not in held:
                    policy.add(episode)
        made = cls(config, policy=policy)
        complete_folder(folder, config)
        return made.to(config.device).eval()

    def _save_pretrained(self, save_directory: Path, state_dict: dict[str, Tensor] | None = None) -> None:
        """Writes closedform's files, with LeRobot's entries in config.json besides its own."""
        write_policy(self.policy, save_directory)
        own, entries = read_json(save_directory / "config.json"), draccus.encode(self.config, PreTrainedConfig)
        write_content(save_directory, {**{k: v for k, v in entries.items() if v is not None}, **own})

    def get_optim_params(self) -> Any:
        """One parameter without effect, for which `lerobot-train` is made to stop after one step.

        LeRobot tells a policy nothing about a training; the function that asks for its parameters has the settings.
        """
        caller = inspect.currentframe()
        settings = None if caller is None or caller.f_back is None else caller.f_back.f_locals.get("cfg")
        if settings is not None and getattr(settings, "steps", 1) > 1:
            LOG.warning("closedform is fitted already: stopping after 1 step instead of %d", settings.steps)
            settings.steps = 1
        return self.parameters()

    def reset(self) -> None:
        """Begins new episodes."""
        self._agents: list[Agent] = []

    @property
    def last_plans(self) -> list[Any]:
        """The plans being executed."""
        return [agent.last_plan for agent in self._agents]

    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Any]]:
        """The mean squared error of chunks planned for the observations of a batch; there is nothing to learn."""
        windows = self._observations(batch)
        planned = torch.from_numpy(self.policy.sample(windows, seed=self.config.seed)[:, 0])
        wrong = ((planned - batch[ACTION].detach().cpu().double()) ** 2).mean(-1)
        within = ~batch[f"{ACTION}_is_pad"].cpu() if f"{ACTION}_is_pad" in batch else torch.ones_like(wrong).bool()
        loss = (wrong * within).sum() / within.sum()
        return loss.float().to(self.nothing.device) + 0 * self.nothing.sum(), {"n_episodes": len(self.policy.episodes)}

    @torch.no_grad()
    def select_action(self, batch: dict[str, Tensor], **_: Any) -> Tensor:
        """The next action (B, D_a) of each episode; plans where a chunk was executed."""
        seen = self._observations(batch)
        return self._tensor(act_together(self._running(len(seen)), list(seen)))

    def supports_rtc(self) -> bool:
        """Whether a plan can continue what is left of the last chunk."""
        policy = self.policy
        return isinstance(policy, ClosedFormPolicy) and policy.config.tau > 0 and policy.targets is None

    @torch.no_grad()
    def predict_action_chunk(
        self,
        batch: dict[str, Tensor],
        inference_delay: int | None = None,
        prev_chunk_left_over: Tensor | None = None,
        **_: Any,
    ) -> Tensor:
        """A chunk (B, N_a, D_a) for each episode, beginning at the newest observation.

        Args:
            batch: the observations.
            inference_delay: actions of the last chunk that will be executed before this one arrives, with which it
                then begins.
            prev_chunk_left_over: (n, D_a) or (B, n, D_a), what is left of the last chunk, which this one continues.
        """
        seen = self._observations(batch)
        agents = self._running(len(seen))
        before = _left_over(prev_chunk_left_over, inference_delay or 0, len(seen), self.config.chunk_size)
        plans = [agent.plan(*each) for agent, *each in zip(agents, seen, before, strict=True)]
        return self._tensor([plan.actions for plan in plans])

    def _observations(self, batch: dict[str, Tensor]) -> np.ndarray:
        return observations_of(batch, self.config, self.policy.observation_layout.width)

    def _running(self, n: int) -> list[Agent]:
        """The agents of the current episodes."""
        if not self._agents:
            first = self.config.seed + self._n_episodes
            self._agents = [self.policy.agent(seed=first + i) for i in range(n)]
            self._n_episodes += n
        if len(self._agents) != n:
            raise ConfigError(f"expected a batch of {len(self._agents)} episodes, found {n}: call reset between them")
        return self._agents

    def _tensor(self, actions: list[np.ndarray]) -> Tensor:
        return torch.from_numpy(np.stack(actions).astype(np.float32)).to(self.nothing.device)


def _left_over(actions: Tensor | None, delay: int, n: int, most: int) -> list[ActionPrefix | None]:
    """What is left of the last chunk of each episode; LeRobot fills it up with zeros to a fixed length."""
    if actions is None:
        return [None] * n
    rows = actions.detach().cpu().double().numpy()
    rows = np.broadcast_to(rows, (n, *rows.shape[-2:]))[:, :most]
    parts = [each[: each.any(1).nonzero()[0].max(initial=-1) + 1] for each in rows]
    return [ActionPrefix(part, min(delay, len(part))) if len(part) else None for part in parts]


def _fit(config: ClosedformConfig, dataset_meta: Any) -> DemonstrationPolicy[Any]:
    return POLICIES[config.policy](_read(config, dataset_meta), config=config.planning)


def _read(config: ClosedformConfig, dataset_meta: Any) -> Demos:
    """The demonstrations of a dataset, from its files."""
    for name in ("dataset.episodes", "dataset.eval_split"):
        if parser.parse_arg(name) not in (None, "null", "0", "0.0"):
            raise ConfigError(f"--{name}: expected none, since policies do not see it; use --policy.episodes")
    demos = load_demos(dataset_meta.root, observation_keys=config.observation_keys, episodes=config.episodes)
    if config.only_task is not None:
        demos = demos.of_task(config.only_task)
    if demos.cameras:
        LOG.warning("closedform does not use the images of %s", ", ".join(demos.cameras))
    if config.keypoints is not None:
        demos = with_poses(demos)
    return choose_layouts(demos, config.layout).demos


def _checksum(episode: Any) -> Any:
    return crc32([episode.observations, episode.actions])
