"""Monitor: judges the observations that somebody else's policy is asked about."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from reprlib import repr as brief
from typing import Any, Literal

import numpy as np

from closedform.demos.episode import real_array
from closedform.errors import ClosedFormError, ConfigError, DataError
from closedform.policies.demonstration_policy import DemonstrationPolicy
from closedform.serve.observations import WHOLE, ObservationReader
from closedform.serve.service import Service, session_name
from closedform.serve.session import Session
from closedform.wire import pack, unpack, with_key

Then = Literal["tell", "stop", "fallback"]
KEY = "monitor"  # under which it adds to replies and metadata
_N_ROBOTS = 64  # named ones on one connection that are told apart


@dataclass(frozen=True)
class MonitorVerdict:
    """What the monitor says about a request.

    Attributes:
        facts: familiarity, the nearest demonstrations, the alarm, and how many observations it has lasted.
        due: whether the alarm has lasted long enough to stop or fall back.
        request: read, for the policy to fall back to; empty if it cannot be.
        asks: whether it asks for actions; if not, a reply with some is refused.
    """

    facts: dict[str, Any]
    due: bool
    request: Mapping[Any, Any]
    asks: bool = True


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
        policy = service.policy
        self._reader = ObservationReader(policy.observation_layout, policy.config.n_obs_steps, keys, newest=True)

    def metadata(self) -> dict[str, Any]:
        """What is added to the metadata of the policy behind it."""
        familiarity = self.service.familiarity
        assert familiarity is not None
        return {
            "false_alarm_rate": familiarity.false_alarm_rate,
            "threshold": familiarity.threshold,
            "then": self.then,
            "after": self.after,
            "observation_keys": self._reader.keys,
        }

    def open(self) -> ConnectionMonitor:
        """Begins to watch a connection."""
        return ConnectionMonitor(self)

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
        return self._reader.read(request)[0]


class ConnectionMonitor:
    """One connection: for how long the alarm of each robot has lasted, and the agents of the fallback.

    Args:
        monitor: what judges.
    """

    def __init__(self, monitor: Monitor):
        self._monitor = monitor
        self._robots: OrderedDict[str, _Robot] = OrderedDict()

    def look(self, message: Any) -> MonitorVerdict:
        """Judges a packed request, whatever it says that it asks for.

        One that cannot be unpacked raises the alarm, since the policy behind it may be able to read it.
        """
        try:
            request = unpack(message) if isinstance(message, bytes) else None
            if not isinstance(request, dict):
                raise DataError(f"expected a request that is a map, found {'text' if request is None else 'another'}")
        except DataError as error:
            return self._verdict(self._robot({}), {"alarm": True, "problem": str(error)}, {})
        robot, endpoint = self._robot(request), request.get("endpoint")
        if isinstance(endpoint, str) and endpoint in ("reset", "add"):
            if endpoint == "reset":
                robot.lasted, robot.session, robot.begins = 0, None, True
            return MonitorVerdict({}, False, request, asks=False)
        facts = self._monitor.judge(request, first=robot.begins)
        robot.begins = False
        return self._verdict(robot, facts, request)

    def _verdict(self, robot: _Robot, facts: dict[str, Any], request: Mapping[Any, Any]) -> MonitorVerdict:
        robot.lasted = robot.lasted + 1 if facts["alarm"] else 0
        due = self._monitor.then != "tell" and robot.lasted >= self._monitor.after
        acting = "fallback" if due and self._monitor.then == "fallback" else "upstream"
        return MonitorVerdict({**facts, "lasted": robot.lasted, "acting": acting}, due, request)

    def stopped(self, verdict: MonitorVerdict) -> str:
        """What is said to a robot that is stopped."""
        known = verdict.facts.get("familiarity", {})
        why = verdict.facts.get("problem") or f"distance {known['distance']:.3g}, threshold {known['threshold']:.3g}"
        return f"stopped: out of the range of the demonstrations for {verdict.facts['lasted']} observations ({why})"

    def reply(self, reply: Any, verdict: MonitorVerdict) -> Any:
        """The reply of the policy behind it, with what the monitor says; byte for byte the same besides, unless it
        falls back. A `DataError` if a robot must not get it."""
        if not isinstance(reply, bytes):
            return reply
        try:
            content = unpack(reply)
        except DataError as error:
            raise DataError(f"the reply of the policy behind this monitor: {error}") from error
        actions = content.get("actions") if isinstance(content, dict) else None
        if not verdict.asks:
            if actions is not None:
                found = brief(verdict.request.get("endpoint"))
                raise DataError(f"expected no actions in the reply to {found}, which is not judged, found some")
            return reply
        facts, problem = verdict.facts, _unsound(actions)
        if problem is not None and self._monitor.then == "stop":
            raise DataError(f"stopped: {problem}")
        if self._monitor.then == "fallback":
            if problem is not None:
                verdict, facts = replace(verdict, due=True), {**facts, "acting": "fallback"}
            reply = self._with_fallback(reply, content, verdict)
        if problem is not None:
            facts = {**facts, "alarm": True, "problem": problem}
        return with_key(reply, KEY, facts)

    def _with_fallback(self, packed: bytes, reply: Any, verdict: MonitorVerdict) -> bytes:
        """The reply with the actions of the fallback, if that is due; refuses replies whose actions do not match."""
        service, robot = self._monitor.fallback, self._robot(verdict.request)
        assert service is not None
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
        """What is known of a robot; a new name goes on where the longest alarm of this connection is."""
        try:
            name = session_name(request.get("session_id", ""))
        except DataError:
            name = ""
        if name not in self._robots:
            self._robots[name] = _Robot(max((robot.lasted for robot in self._robots.values()), default=0))
        self._robots.move_to_end(name)
        while len(self._robots) > _N_ROBOTS:
            self._robots.popitem(last=False)
        return self._robots[name]


def _unsound(actions: Any) -> str | None:
    """What is wrong with the actions of a reply, one array or several by name; None if nothing."""
    parts = {} if actions is None else actions if isinstance(actions, dict) else {"actions": actions}
    try:
        sound = all(np.isfinite(real_array(part, "actions")).all() for part in parts.values())
    except DataError as error:
        return str(error)
    return None if sound else "the actions of the policy behind this monitor are not finite"


class _Robot:
    """Whether an episode begins, how long the alarm has lasted, and the session of the fallback while that acts."""

    def __init__(self, lasted: int) -> None:
        self.begins, self.lasted = True, lasted
        self.session: Session | None = None
