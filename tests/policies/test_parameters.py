"""Parameters of policies can be found where one looks for them: in signatures, in `help()` and in type checkers."""

import inspect
from dataclasses import fields
from typing import get_args, get_type_hints

import pytest

from closedform import ClosedFormConfig, ClosedFormPolicy, KernelRegressionPolicy, Layout, NearestNeighborPolicy
from closedform.demos.layout import Kind
from closedform.errors import ConfigError
from closedform.policies.parameters import ClosedFormParameters
from tests.evaluation.toy import reach_demos

POLICIES = (ClosedFormPolicy, KernelRegressionPolicy, NearestNeighborPolicy)


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


def test_type_checkers_know_the_same_parameters():
    configured = get_type_hints(ClosedFormConfig)
    assert get_type_hints(ClosedFormParameters) == {f.name: configured[f.name] for f in fields(ClosedFormConfig)}


def test_help_of_layouts_names_every_kind():
    assert [kind for kind in get_args(Kind) if f"`{kind}`" not in (Layout.__doc__ or "")] == []
