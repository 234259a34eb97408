"""What a policy is called elsewhere, and which of its names a user needs."""

from __future__ import annotations

from typing import NoReturn


class CalledElsewhere:
    """A name of other libraries: using it says in one line what to call. `hasattr` is false, as for any other name.

    Args:
        use: what to call instead.
    """

    def __init__(self, use: str):
        self._use = use

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AttributeError(f"{owner.__name__} has no {self._name!r}: {self._use}")


_ACT = "agent = policy.agent(seed=0), then agent.act(observation) at every step"
_AGENT_ACT = "agent.act(observation), at every step"
_FIT = "nothing is trained: ClosedFormPolicy(demos), then policy.add(episode) and policy.remove(episode_id)"


class PolicyNames:
    """What other libraries call a policy's methods, and a `dir` that shows what a user needs.

    `dir` shows the names below and public ones of classes of one's own; everything else is there, too.
    """

    predict = CalledElsewhere(f"policy.plan(observation) plans a chunk of actions; to act, {_ACT}")
    predict_action = CalledElsewhere(_ACT)
    get_action = CalledElsewhere(_ACT)
    select_action = CalledElsewhere(_ACT)
    act = CalledElsewhere(_ACT)
    step = CalledElsewhere(_ACT)
    infer = CalledElsewhere(_ACT)
    forward = CalledElsewhere(_ACT)
    predict_action_chunk = CalledElsewhere("policy.plan(observation).actions, (N_a, D_a)")
    reset = CalledElsewhere("policy.agent(seed=0) begins an episode, agent.reset() the next one")
    from_pretrained = CalledElsewhere("load_policy(folder) or load_policy(name) of closedform")
    save_pretrained = CalledElsewhere("policy.save(folder)")
    fit = CalledElsewhere(_FIT)
    train = CalledElsewhere(_FIT)
    learn = CalledElsewhere(_FIT)

    _FOR_USERS = frozenset(
        {
            *("action_layout", "observation_layout", "perceiver", "config", "device", "targets", "found_symmetry"),
            *("episodes", "episode_ids", "n_windows", "n_weights", "add", "remove", "load", "save", "close", "refresh"),
            *("agent", "plan", "sample", "denoiser", "distance", "to", "warm_up", "with_sampling"),
        }
    )

    def __dir__(self) -> list[str]:
        of_users = {
            name
            for kind in type(self).__mro__
            if not f"{kind.__module__}.".startswith(("closedform.", "builtins.", "typing."))
            for name in vars(kind)
            if not name.startswith("_")
        }
        return sorted(of_users | {name for name in self._FOR_USERS if hasattr(type(self), name) or name in vars(self)})


class AgentNames:
    """The same for an agent."""

    predict = CalledElsewhere(_AGENT_ACT)
    predict_action = CalledElsewhere(_AGENT_ACT)
    select_action = CalledElsewhere(_AGENT_ACT)
    get_action = CalledElsewhere(_AGENT_ACT)
    step = CalledElsewhere(_AGENT_ACT)
    infer = CalledElsewhere(_AGENT_ACT)
