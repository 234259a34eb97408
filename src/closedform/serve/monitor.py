"""Monitor: judges the observations that somebody else's policy is asked about."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from closedform.demos.episode import real_array
from closedform.errors import ClosedFormError, ConfigError, DataError
from closedform.policies.demonstration_policy import DemonstrationPolicy
from closedform.serve.observations import WHOLE, ObservationReader
from closedform.serve.service import Service
from closedform.serve.session import Session
from closedform.wire import pack, unpack, with_key

Then = Literal["tell", "stop", "fallback"]
KEY = "monitor"  # under which it adds to replies and metadata
_N_ROBOTS = 64  # named ones on one connection that are told apart


@dataclass(frozen=True)
class Verdict:
    """What the monitor says about a request.

    Attributes:
        facts: familiarity, the nearest demonstrations, the alarm, and how many observations it has lasted.
        due: whether the alarm has lasted long enough to stop or fall back.
        request: read, for the policy to fall back to.
    """

    facts: dict[str, Any]
    due: bool
    request: Mapping[Any, Any]


class Monitor:
    """Compares the observations in requests with demonstrations; what is asked of whom is none of its business.

    Args:
        service: of a policy made of at least two demonstrations, which familiarity is measured against.
        then: what happens when the alarm has lasted: nothing but `tell`, `stop`, or `fallback` to another policy.
        after: for how many observations in a row the alarm has to last.
        fallback: the service to fall back to.
        keys: of a request, whose numbers in this order are an observation; by default as for a `Service`.
    """

    def __init__(
        self,
        service: Service,
        *,
        then: Then = "tell",
        after: int = 3,
        fallback: Service | None = None,
        keys: Sequence[str] = (),
    ):
        if not isinstance(service.policy, DemonstrationPolicy) or len(service.policy.episode_ids) < 2:
            raise ConfigError("monitor: expected at least two demonstrations to compare with, found none or one")
        if after < 1:
            raise ConfigError(f"after: expected at least 1 observation, found {after}")
        if (then == "fallback") != (fallback is not None):
            raise ConfigError("monitor: expected a policy to fall back to if and only if that is what happens")
        self.service, self.fallback, self.then, self.after = service, fallback, then, after
        self._keys = tuple(keys)
        policy = service.policy
        self._reader = ObservationReader(policy.observation_layout, policy.config.n_obs_steps, newest=True)

    def metadata(self) -> dict[str, Any]:
        """What is added to the metadata of the policy behind it."""
        familiarity = self.service.familiarity
        assert familiarity is not None
        return {
            "false_alarm_rate": familiarity.false_alarm_rate,
            "threshold": familiarity.threshold,
            "then": self.then,
            "after": self.after,
            "observation_keys": list(self._keys) or self._reader.keys,
        }

    def open(self) -> Watch:
        """Begins to watch a connection."""
        return Watch(self)

    def judge(self, request: Mapping[Any, Any], *, first: bool) -> dict[str, Any]:
        """Familiarity, nearest demonstrations and alarm for the observation in a request, as lists and numbers.

        An observation that cannot be read or compared raises the alarm, and the `problem` says why.

        Args:
            request: of a robot.
            first: whether it is the first one of an episode.
        """
        try:
            window = self.read(request)
            found = self.service.provenance(self.service.policy.plan(window, seed=0), first=first)
        except ClosedFormError as error:
            return {"alarm": True, "problem": str(error)}
        names = ("familiarity", "demonstrations", "steps", "weights")
        return {"alarm": found["familiarity"]["alarm"], **{name: found[name] for name in names}}

    def read(self, request: Mapping[Any, Any]) -> np.ndarray:
        """The observation (D_o,) or window (N_o, D_o) in a request."""
        if not self._keys:
            return self._reader.read(request)[0]
        missing = [key for key in self._keys if key not in request]
        if missing:
            raise DataError(f"expected the keys {', '.join(self._keys)} in a request, found none of {missing[0]!r}")
        parts = [np.atleast_1d(real_array(request[key], key)) for key in self._keys]
        return self._reader.read({WHOLE: np.concatenate([part[-1] if part.ndim > 1 else part for part in parts])})[0]


class Watch:
    """One connection: for how long the alarm of each robot has lasted, and the agents of the fallback.

    Args:
        monitor: what judges.
    """

    def __init__(self, monitor: Monitor):
        self._monitor = monitor
        self._robots: OrderedDict[str, _Robot] = OrderedDict()

    def look(self, message: Any) -> Verdict | None:
        """Judges a packed request; None if it asks for no action.

        One that cannot be unpacked raises the alarm, since the policy behind it may be able to read it.
        """
        try:
            request, problem = unpack(message) if isinstance(message, bytes) else None, ""
        except DataError as error:
            request, problem = {}, str(error)
        if not isinstance(request, dict) or request.get("endpoint", "infer") not in ("infer", "reset"):
            return None
        robot = self._robot(request)
        if request.get("endpoint") == "reset":
            robot.lasted, robot.session, robot.begins = 0, None, True
            return None
        facts = {"alarm": True, "problem": problem} if problem else self._monitor.judge(request, first=robot.begins)
        robot.begins = False
        robot.lasted = robot.lasted + 1 if facts["alarm"] else 0
        facts["lasted"] = robot.lasted
        due = self._monitor.then != "tell" and robot.lasted >= self._monitor.after
        facts["acting"] = "fallback" if due and self._monitor.then == "fallback" else "upstream"
        return Verdict(facts, due, request)

    def stopped(self, verdict: Verdict) -> str:
        """What is said to a robot that is stopped."""
        known = verdict.facts.get("familiarity", {})
        why = verdict.facts.get("problem") or f"distance {known['distance']:.3g}, threshold {known['threshold']:.3g}"
        return f"stopped: out of the range of the demonstrations for {verdict.facts['lasted']} observations ({why})"

    def reply(self, reply: Any, verdict: Verdict | None) -> Any:
        """The reply of the policy behind it, with what the monitor says; byte for byte the same besides, unless it
        falls back."""
        if verdict is None or not isinstance(reply, bytes):
            return reply
        if self._monitor.then == "fallback":
            reply = self._with_fallback(reply, verdict)
        return with_key(reply, KEY, verdict.facts)

    def _with_fallback(self, packed: bytes, verdict: Verdict) -> bytes:
        """The reply with the actions of the fallback, if that is due; refuses replies whose actions do not match."""
        service, robot = self._monitor.fallback, self._robot(verdict.request)
        assert service is not None
        reply = unpack(packed)
        chunk = reply.get("actions") if isinstance(reply, dict) else None
        width, length = service.policy.action_layout.width, service.policy.config.n_action_steps
        if not isinstance(chunk, np.ndarray) or chunk.ndim != 2 or chunk.shape[1] != width or len(chunk) > length:
            found = f"shape {chunk.shape}" if isinstance(chunk, np.ndarray) else "none"
            raise DataError(
                f"fallback: expected actions of the policy behind the monitor, at most {length} of {width} numbers, "
                f"found {found}; choose another --fallback, or set n_action_steps"
            )
        if not verdict.due:
            robot.session = None  # the next time is a new episode for it
            return packed
        if robot.session is None:
            robot.session = service.open()
        window = self._monitor.read(verdict.request)
        answer = service.answer({WHOLE: window[-1] if window.ndim == 2 else window}, robot.session)
        return pack({**reply, "actions": answer["actions"][: len(chunk)].astype(chunk.dtype)})

    def _robot(self, request: Mapping[Any, Any]) -> _Robot:
        name = str(request.get("session_id"))[:200]
        robot = self._robots.setdefault(name, _Robot())
        self._robots.move_to_end(name)
        while len(self._robots) > _N_ROBOTS:
            self._robots.popitem(last=False)
        return robot


class _Robot:
    """Whether an episode begins, how long the alarm has lasted, and the session of the fallback while that acts."""

    def __init__(self) -> None:
        self.begins, self.lasted = True, 0
        self.session: Session | None = None
