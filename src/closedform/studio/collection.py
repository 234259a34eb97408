"""Collection: the episodes of a session and the policy made of them, with edits that can be undone and repeated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from closedform.demos.demos import Demos
from closedform.demos.episode import Episode
from closedform.errors import ClosedFormError, DataError, LoadError
from closedform.geometry.layout import Layout
from closedform.policies.demonstration_policy import DemonstrationPolicy
from closedform.studio.edit_log import EditLog, read_edits
from closedform.studio.take import Kind, Take

_MOST_UNDONE = 1000  # edits that are remembered


class Collection:
    """The takes of a session; the policy always holds exactly those that are not deleted.

    Every edit takes effect at the next plan: episodes are added to and removed from the policy, and other parameters
    make another policy of the same episodes.

    Args:
        template: a policy of the class and with the parameters to use; its episodes do not count.
        policy: what to begin with; None to begin with nothing. It is changed.
        rate: steps per second.
        env: the name of the environment, for the log.
        log: where edits are noted.

    Attributes:
        takes: all of them, deleted ones included, by number.
        policy: None while there is no take.
        config: the parameters.
    """

    def __init__(
        self,
        template: DemonstrationPolicy[Any],
        policy: DemonstrationPolicy[Any] | None = None,
        *,
        rate: float | None = None,
        env: str = "",
        log: EditLog | None = None,
    ):
        self._class, self.rate = type(template), rate
        self.layouts: tuple[Layout, Layout] = template.observation_layout, template.action_layout
        self.policy, self.config = policy, template.config if policy is None else policy.config
        self.takes: list[Take] = []
        self._inverses: list[tuple[str, Callable[[], None]]] = []
        if policy is not None:
            for number, (episode, held) in enumerate(zip(policy.episodes, policy.episode_ids, strict=True)):
                self.takes.append(Take(number, "recorded", episode, policy_id=held))
        self.log = log or EditLog()
        self.log.begin(env=env, demos=self._fingerprint(), parameters=_parameters(self.config))

    @property
    def held(self) -> list[Take]:
        """The takes that the policy is made of."""
        return [take for take in self.takes if take.policy_id is not None]

    def take(self, number: Any) -> Take:
        """A take by its number."""
        if type(number) is not int or not 0 <= number < len(self.takes):
            raise DataError(f"expected the number of an episode below {len(self.takes)}, found {number!r:.40}")
        return self.takes[number]

    def demos(self, leaving_out: Take | None = None) -> Demos:
        """The takes that are not deleted, as demonstrations, but for one of them."""
        return Demos([take.episode for take in self.held if take is not leaving_out], *self.layouts, self.rate)

    def add(self, episode: Episode, kind: Kind, success: bool | None = None, **facts: Any) -> Take:
        """Adds an episode; `facts` are noted in the log."""
        take = Take(len(self.takes), kind, episode, success)
        self._insert(take)
        self.takes.append(take)
        self._undoable(f"episode {take.number} deleted", lambda: self._delete(take))
        numbers = {"observations": episode.observations.tolist(), "actions": episode.actions.tolist()}
        self.log.append("add", take=take.number, kind=kind, success=success, **facts, **numbers)
        return take

    def delete(self, number: Any) -> Take:
        """Deletes a take."""
        take = self.take(number)
        if take.policy_id is None:
            raise DataError(f"expected an episode that is not deleted, found {number}")
        self._undoable(f"episode {number} is back", lambda: self._restore(take))
        self._delete(take)
        return take

    def set_parameters(self, **parameters: Any) -> None:
        """Replaces parameters by name."""
        before = {name: getattr(self.config, name, None) for name in parameters}
        self._set(parameters)
        self._undoable("parameters changed back", lambda: self._set(before))

    def make_anew(self, policy: DemonstrationPolicy[Any]) -> None:
        """Takes a policy that was made of the same takes with the same parameters, and may have found a symmetry."""
        self._hold(policy)
        self.log.append("anew")

    def undo(self) -> str:
        """Undoes the last edit that was not undone yet and says what that did; "" if there is none."""
        if not self._inverses:
            return ""
        said, inverse = self._inverses.pop()
        inverse()
        return said

    @property
    def can_undo(self) -> bool:
        """Whether there is an edit to undo."""
        return bool(self._inverses)

    def replay(self, text: str) -> None:
        """Repeats the edits of a session that began with what this collection holds now."""
        first, *edits = read_edits(text)
        if first.get("demos") != self._fingerprint():
            raise LoadError(
                f"the edits: expected the demonstrations that their session began with, {first.get('demos')!r:.120}, "
                f"found {self._fingerprint()}"
            )
        try:
            self._set(_changed(self.config, first["parameters"]))
            for edit in edits:
                self._repeat(edit)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, ClosedFormError):
                raise
            raise LoadError(f"the edits: expected edits of a session, found {error!r:.120}") from error

    def _repeat(self, edit: dict[str, Any]) -> None:
        if edit["edit"] == "add":
            arrays = [np.array(edit[name], np.float64) for name in ("observations", "actions")]
            self.add(Episode(*arrays), edit["kind"], edit["success"])
        elif edit["edit"] == "delete":
            self.delete(edit["take"])
        elif edit["edit"] == "restore":
            self._restore(self.take(edit["take"]))
        elif edit["edit"] == "parameters":
            self.set_parameters(**edit["parameters"])
        elif edit["edit"] == "anew":
            self.make_anew(self._class(self.demos(), config=self.config))
        else:
            raise ValueError(edit["edit"])

    def _undoable(self, said: str, inverse: Callable[[], None]) -> None:
        self._inverses = [*self._inverses[1 - _MOST_UNDONE :], (said, inverse)]

    def _insert(self, take: Take) -> None:
        if self.policy is None:
            self.policy = self._class(Demos([take.episode], *self.layouts, self.rate), config=self.config)
            take.policy_id = self.policy.episode_ids[0]
        else:
            take.policy_id = self.policy.add(take.episode)

    def _restore(self, take: Take) -> None:
        if take.policy_id is None:
            self._insert(take)
            self.log.append("restore", take=take.number)

    def _delete(self, take: Take) -> None:
        if take.policy_id is None:
            return
        if self.policy is not None and len(self.held) > 1:
            self.policy.remove(take.policy_id)
        else:
            self.policy = None
        take.policy_id = None
        self.log.append("delete", take=take.number)

    def _set(self, parameters: dict[str, Any]) -> None:
        if not parameters:
            return
        unknown = [name for name in parameters if name not in self.config.__dataclass_fields__]
        if unknown:
            raise DataError(f"expected parameters of {self._class.__name__}, found {unknown[0]!r:.40}")
        config = replace(self.config, **parameters)
        if self.held:
            self._hold(self._class(self.demos(), config=config))
        self.config = config
        self.log.append("parameters", parameters=parameters)

    def _hold(self, policy: DemonstrationPolicy[Any]) -> None:
        for take, number in zip(self.held, policy.episode_ids, strict=True):
            take.policy_id = number
        self.policy = policy

    def _fingerprint(self) -> dict[str, Any] | None:
        return None if self.policy is None else self.policy.fingerprint()


def _parameters(config: Any) -> dict[str, Any]:
    return {name: getattr(config, name) for name in config.__dataclass_fields__}


def _changed(config: Any, parameters: dict[str, Any]) -> dict[str, Any]:
    now = _parameters(config)
    return {name: value for name, value in parameters.items() if now.get(name, value) != value}
