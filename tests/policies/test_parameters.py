"""Parameters of policies can be found where one looks for them: in signatures, in `help()` and in type checkers."""

import inspect
from dataclasses import asdict, fields
from typing import get_args

import pytest

from closedform import (
    ClosedFormConfig,
    ClosedFormPolicy,
    KernelRegressionPolicy,
    Layout,
    NearestNeighborPolicy,
    VINNPolicy,
)
from closedform.errors import ConfigError
from closedform.geometry.layout import Kind
from closedform.policies.config import PAPER, RENAMED
from tests.evaluation.toy import reach_demos

POLICIES = (ClosedFormPolicy, KernelRegressionPolicy, NearestNeighborPolicy, VINNPolicy)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_parameter_is_in_the_signature_and_in_the_docstring(policy):
    parameters, documentation = inspect.signature(policy).parameters, inspect.getdoc(policy) or ""
    for field in fields(policy.config_class):
        assert parameters[field.name].default == field.default
        assert f"\n    {field.name}: " in documentation
    assert not [each for each in parameters.values() if each.kind is inspect.Parameter.VAR_KEYWORD]
    assert documentation.count("\n    demos: ") == documentation.count("Args:") == 1


def test_a_policy_has_no_parameters_of_another():
    assert "tau" in inspect.signature(ClosedFormPolicy).parameters
    assert "tau" not in inspect.signature(KernelRegressionPolicy).parameters
    assert "bandwidth" not in inspect.signature(NearestNeighborPolicy).parameters
    with pytest.raises(ConfigError, match="PolicyConfig has no parameter 'tau'"):
        NearestNeighborPolicy(reach_demos(2), tau=0.1)


def test_help_of_layouts_names_every_kind():
    assert [kind for kind in get_args(Kind) if f"`{kind}`" not in (Layout.__doc__ or "")] == []


def test_the_preset_paper_is_the_papers_algorithm_and_nothing_else():
    papers = {  # its appendix "Model Hyperparameters", row PushT
        "n_diffusion_steps": 100,
        "n_neighbors": 2000,
        "n_action_steps": 12,
        "n_obs_steps": 2,
        "tau": 0.07,
        "bandwidth": 0.09,
    }
    said = {  # in its text: chunks that fit, raw observations, a local Mahalanobis distance, Euler steps of a flow
        "padding": False,
        "features": "scaled",
        "metric": "local_mahalanobis",
        "process": "flow",
        "sampler": "euler",
    }
    beyond = {  # what it does not have
        "shrinkage": 0.0,
        "choose_shrinkage": False,
        "relevance": False,
        "selection": False,
        "drop_redundant": False,
        "frames": "world",
        "position_frames": False,
        "missing_rotations": "none",
        "loop_memory": 0.0,
        "hold_at_end": False,
        "loop_delay": False,
        "continuation": 0.0,
        "goal_weight": 0.0,
        "goals": "shared",
        "symmetry": False,
        "find_symmetry": False,
        "relation_weight": 0.0,
        "targets": "off",
        "deadline": None,
    }
    open_to_choice = {  # what it needs and does not give, or what changes no plan of it
        "n_execute": 12,
        "n_perturbations": 32,
        "regularization": 1e-3,
        "rotation_weight": 0.4,
        "index": "auto",
        "recall": 0.95,
        "pruning_error": 1e-4,
    }
    assert asdict(PAPER) == {**papers, **said, **beyond, **open_to_choice}


@pytest.mark.parametrize("name", RENAMED)
def test_an_old_name_is_answered_with_the_new_one(name):
    with pytest.raises(ConfigError, match=f"'{name}' is called '{RENAMED[name]}' now"):
        ClosedFormConfig.check_name(name)
    assert RENAMED[name] in asdict(PAPER)


def test_the_preset_paper_has_no_further_terms_with_other_features():
    policy = ClosedFormPolicy(reach_demos(3), "paper", features="geometric", n_neighbors=5)
    assert not policy.model.kernel.terms
