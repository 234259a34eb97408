"""The specification of a model, from a policy's parameters and the demonstrations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from closedform.demos.demos import Demos
from closedform.errors import ConfigError
from closedform.geometry.layout import Layout
from closedform.judge.symmetry_search import find_mirrored
from closedform.policies.config import KernelConfig, PolicyConfig
from closedform.rewrites.copies import Symmetry
from closedform.rewrites.rewrite import Rewrites
from closedform.rewrites.targets import Targets
from closedform.store.in_memory import InMemory
from closedform.store.model import Model
from closedform.store.spec import ModelSpec, SearchSpec
from closedform.store.window_spec import WindowSpec
from closedform.transfer.transfer import TransferSpec
from closedform.weights.feature_map import make_feature_map
from closedform.weights.observation_kernel import KernelSpec
from closedform.weights.term import Term
from closedform.weights.terms import built_in

DEFAULT_NEIGHBORS = 2000


def model_spec(
    config: PolicyConfig,
    observation_layout: Layout,
    action_layout: Layout,
    feature_map: Callable[[Any], Any] | None,
    terms: Sequence[Term],
    rewrites: Rewrites,
) -> ModelSpec:
    """The specification of the model that a policy with these parameters plans from.

    Args:
        config: the parameters.
        observation_layout, action_layout: those of the demonstrations.
        feature_map: a function instead of the parameter `features`.
        terms: additional distance terms.
        rewrites: what the demonstrations are turned into.
    """
    for term in terms:
        if not isinstance(term, Term):
            raise ConfigError(f"terms: expected objects of closedform.Term, found a {type(term).__name__}")
    observation_layout, action_layout = rewrites.layouts(observation_layout, action_layout)
    return ModelSpec(
        WindowSpec(observation_layout, action_layout, config.n_obs_steps, config.n_action_steps, config.padding),
        KernelSpec(
            feature_map=make_feature_map(feature_map or config.features, observation_layout, config.rotation_weight),
            metric=config.metric,
            bandwidth=getattr(config, "bandwidth", KernelConfig.bandwidth),
            regularization=config.regularization,
            shrinkage=config.shrinkage,
            choose_shrinkage=config.choose_shrinkage,
            relevance=config.relevance,
            selection=config.selection,
            drop_redundant=config.drop_redundant,
            rotation_weight=config.rotation_weight,
            terms=(*built_in(config), *terms),
        ),
        TransferSpec(
            observation_layout,
            action_layout,
            config.frames,
            config.n_action_steps,
            identity=config.missing_rotations == "identity",
            position_frames=config.position_frames,
        ),
        SearchSpec(config.index, config.recall, config.n_neighbors or DEFAULT_NEIGHBORS),
        rewrites,
    )


class Choices(NamedTuple):
    """What a policy finds in the demonstrations that it is made of.

    Attributes:
        demos: these, with a layout that declares the symmetry that they show.
        rewrites: what they are turned into.
    """

    demos: Demos
    rewrites: Rewrites

    @classmethod
    def of(cls, demos: Demos, config: PolicyConfig) -> Choices:
        """The choices for demonstrations."""
        demos = show_symmetry(demos, config)
        symmetry = Symmetry.find(demos) if config.symmetry else None
        targets = find_targets(demos if symmetry is None else symmetry.demos(demos), config)
        return cls(demos, Rewrites(tuple(part for part in (symmetry, targets) if part is not None)))


def show_symmetry(demos: Demos, config: PolicyConfig) -> Demos:
    """Demonstrations whose layout declares the mirror symmetry that they show, if it is to be found."""
    if not (config.symmetry and config.find_symmetry) or config.features != "geometric":
        return demos
    unweighed = {"relevance": False, "selection": False, "choose_shrinkage": False, "goal_weight": 0.0}
    plain = replace(config, **unweighed, relation_weight=0.0, n_neighbors=None, index="exact")

    def build(images: Demos, symmetry: Symmetry) -> Model:
        layouts = images.observation_layout, images.action_layout
        spec = model_spec(plain, *layouts, None, (), Rewrites((symmetry,)))
        return InMemory.build(spec, images.episodes, np.arange(len(images)))

    layout = find_mirrored(demos, build)
    return demos if layout is None else demos.with_layouts(layout, demos.action_layout)


def find_targets(demos: Demos, config: PolicyConfig) -> Targets | None:
    """The targets that demonstrated displacements command, if they are to be planned."""
    if config.targets == "off" or not Targets.candidates(demos.observation_layout, demos.action_layout):
        return None
    targets = Targets.find(demos)
    if targets is not None and config.index == "faiss":
        raise ConfigError(
            "index: expected exact, since these actions are displacements that are planned as the targets they "
            "command, found faiss; targets=off plans them as they are"
        )
    return targets
