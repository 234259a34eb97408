"""The processors of the policy: LeRobot's own, since the policy takes and gives robot units."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lerobot.processor import make_default_pre_post_processors
from lerobot.utils.constants import POLICY_POSTPROCESSOR_DEFAULT_NAME, POLICY_PREPROCESSOR_DEFAULT_NAME

from lerobot_policy_closedform.configuration_closedform import ClosedformConfig


def make_closedform_pre_post_processors(
    config: ClosedformConfig, dataset_stats: dict[str, Any] | None = None
) -> tuple[Any, Any]:
    """The pre- and the postprocessor: names, batch dimension and device; nothing is normalized."""
    return make_default_pre_post_processors(config)


def complete_folder(folder: Path, config: ClosedformConfig) -> None:
    """Writes the processors into the folder of a policy that closedform saved, where LeRobot expects them."""
    names = POLICY_PREPROCESSOR_DEFAULT_NAME, POLICY_POSTPROCESSOR_DEFAULT_NAME
    for name, processor in zip(names, make_closedform_pre_post_processors(config), strict=True):
        if not (folder / f"{name}.json").exists():
            processor.save_pretrained(folder)
