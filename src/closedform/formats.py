"""Registers readers for saved policies of the layers above `policies`, each imported only when it is needed."""

from __future__ import annotations

from typing import Any

from closedform.policies.folder import EDITED, LEROBOT, NEURAL
from closedform.policies.policy import Policy
from closedform.policies.saving import load_policy, register_reader
from closedform.snapshot import Snapshot

__all__ = ["load_policy"]


@register_reader(NEURAL)
def _read_neural(snapshot: Snapshot, content: dict[str, Any]) -> Policy[Any]:
    from closedform.neural.policy import read_neural  # needs torch

    return read_neural(snapshot, content)


@register_reader(LEROBOT)
def _read_lerobot(snapshot: Snapshot, content: dict[str, Any]) -> Policy[Any]:
    from closedform.neural.lerobot import read_lerobot  # needs torch

    return read_lerobot(snapshot, content)


@register_reader(EDITED)
def _read_edited(snapshot: Snapshot, content: dict[str, Any]) -> Policy[Any]:
    from closedform.editing.augmented_policy import AugmentedPolicy  # needs torch
    from closedform.editing.edited_policy import read_edited
    from closedform.editing.guided_policy import GuidedPolicy

    return read_edited(snapshot, content, {kind.edit: kind for kind in (GuidedPolicy, AugmentedPolicy)})
