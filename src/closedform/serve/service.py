"""Service: what every dialect serves, without the wire: sessions, plans and their provenance, new demonstrations."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from reprlib import repr as brief
from typing import Any

import numpy as np

from closedform import __version__
from closedform.analysis.familiarity import Familiarity, measure_familiarity
from closedform.demos.episode import Episode, real_array
from closedform.errors import ClosedFormError, ConfigError, DataError
from closedform.policies.demonstration_policy import DemonstrationPolicy
from closedform.policies.named_observation import entry_names
from closedform.policies.plan import Plan
from closedform.policies.policy import Policy
from closedform.serve.action_range import ActionRange
from closedform.serve.observations import ObservationReader
from closedform.serve.session import Asked, Session, plan_together
from closedform.weights.terms.action_prefix import ActionPrefix

N_SESSIONS = 1024  # named ones that are remembered; beyond that, the one not used for longest is forgotten
_OPTIONS = ("endpoint", "session_id", "executed", "seed", "left_over", "delay")


class Service:
    """Answers the requests of many robots from one policy; any number of threads may call it.

    Args:
        policy: what plans.
        learn: whether requests may add demonstrations.
        false_alarm_rate: the fraction of familiar observations that may raise an alarm.
        keys: of a request, whose numbers in this order are an observation; see `ObservationReader`.
        any_actions: whether actions far outside the demonstrated range are served, too.
    """

    def __init__(
        self,
        policy: Policy[Any],
        *,
        learn: bool = False,
        false_alarm_rate: float = 0.01,
        keys: Sequence[str] = (),
        any_actions: bool = False,
    ):
        if not 0 < false_alarm_rate < 1:
            raise ConfigError(f"false_alarm_rate: expected a number between 0 and 1, found {false_alarm_rate!r}")
        if learn and not isinstance(policy, DemonstrationPolicy):
            raise ConfigError(
                f"learn: expected a policy made of demonstrations, found {type(policy).__name__}, which cannot add any"
            )
        self.policy, self.learn = policy, learn
        self.reader = ObservationReader(policy.observation_layout, policy.config.n_obs_steps, keys)
        self._any_actions = any_actions
        self._range: ActionRange | None = None  # of the newest model that was asked about
        self._rate = false_alarm_rate
        self._familiarity = self._measure()
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._taught: set[int] = set()  # ids of episodes that clients added
        self._lock, self._learning = threading.Lock(), threading.Lock()
        self._warm_up()

    @property
    def familiarity(self) -> Familiarity | None:
        """What the alarm is measured with; None for networks and single demonstrations."""
        return self._familiarity

    def metadata(self) -> dict[str, Any]:
        """What a client is told when it connects; the keys after `n_execute` are those of RoboArena."""
        config = self.policy.config
        return {
            "policy": type(self.policy).__name__,
            "closedform": __version__,
            "observation_keys": self.reader.keys,
            "action_keys": entry_names(self.policy.action_layout),
            "observation_width": self.policy.observation_layout.width,
            "action_width": self.policy.action_layout.width,
            "learn": self.learn,
            "n_obs_steps": config.n_obs_steps,
            "action_horizon": config.n_action_steps,
            "n_execute": config.n_execute,
            "image_resolution": None,
            "n_external_cameras": 0,
            "needs_wrist_camera": False,
            "needs_stereo_camera": False,
            "needs_session_id": True,
            "action_space": ", ".join(entry_names(self.policy.action_layout)),
        }

    def open(self) -> Session:
        """A session for a robot that does not name one."""
        return Session(self.policy)

    def answer(self, request: Any, session: Session | None = None) -> dict[str, Any]:
        """Answers a request of openpi's protocol.

        Args:
            request: the observation, or with `endpoint` `reset` a new episode; see docs/serving.md.
            session: that of the connection, for requests without `session_id`.
        """
        for replies in self.answer_together([(request, session)]):
            for _, reply in replies:
                if isinstance(reply, Exception):
                    raise reply
                return reply
        raise AssertionError("every request is answered")

    def answer_together(
        self, requests: Sequence[tuple[Any, Session | None]]
    ) -> Iterator[list[tuple[int, dict[str, Any] | Exception]]]:
        """Answers requests, each as `answer` would alone; plans are made together.

        Yields lists of pairs: the index of a request, and its reply or why there is none. Requests whose session is
        busy come last.
        """
        read: dict[int, _Read] = {}
        refused: list[tuple[int, dict[str, Any] | Exception]] = []
        for index, (request, session) in enumerate(requests):
            try:
                read[index] = self._read(request, session)
            except Exception as error:
                refused.append((index, error))
        free = [index for index, each in read.items() if each.session.take()]
        try:
            replies = self._reply([read[index] for index in free])
        finally:
            for index in free:
                read[index].session.release()
        yield [*refused, *zip(free, replies, strict=True)]
        for index in read.keys() - set(free):
            try:
                with read[index].session.alone():
                    replies = self._reply([read[index]])
            except DataError as error:
                replies = [error]
            yield [(index, replies[0])]

    def _read(self, request: Any, session: Session | None) -> _Read:
        if not isinstance(request, dict):
            raise DataError(f"expected a request that is a map of names to values, found {type(request).__name__}")
        endpoint = request.get("endpoint", "infer")
        if not isinstance(endpoint, str) or endpoint not in ("infer", "reset"):
            raise DataError(f"endpoint: expected infer, reset, add or remove, found {brief(endpoint)}")
        name, seed = request.get("session_id"), whole(request, "seed")
        session = self.session(name) if name is not None or session is None else session
        resets = endpoint == "reset" or seed is not None
        if endpoint == "reset":
            return _Read(session, resets, seed)
        window, used = self.reader.read(request)
        asked = Asked(session, window, whole(request, "executed"), _prefix(request))
        ignored = [str(key)[:100] for key in request if key not in used and key not in _OPTIONS]
        return _Read(session, resets, seed, asked, ignored)

    def _reply(self, requests: Sequence[_Read]) -> list[dict[str, Any] | Exception]:
        """The replies to requests whose sessions are taken."""
        began = time.perf_counter()
        for each in requests:
            if each.resets:
                each.session.reset(each.seed)
        asked = [each.asked for each in requests if each.asked is not None]
        first = [each.session.agent.last_plan is None for each in asked]
        plans = iter(zip(plan_together(asked), first, strict=True))
        timing = {"infer_ms": 1e3 * (time.perf_counter() - began)}
        replies: list[dict[str, Any] | Exception] = []
        for each in requests:
            if each.asked is None:
                replies.append({"status": "reset successful"})
                continue
            plan, begins = next(plans)
            if isinstance(plan, Exception):
                replies.append(plan)
                continue
            reply = {"actions": np.ascontiguousarray(plan.actions), **self.provenance(plan, first=begins)}
            refusal = self._refusal(plan, reply["familiarity"])
            replies.append(refusal or {**reply, "ignored_keys": each.ignored, "policy_timing": timing})
        return replies

    def provenance(self, plan: Plan, *, first: bool) -> dict[str, Any]:
        """What is behind a plan, without arrays: openpi's `ActionChunkBroker` would slice them like actions.

        Args:
            plan: what is explained.
            first: whether it is for the first observation of an episode.
        """
        return {
            "demonstrations": plan.episodes.tolist(),
            "steps": plan.steps.tolist(),
            "weights": plan.weights.tolist(),
            "neural_share": float(plan.neural_share),
            "frame": plan.frame,
            "held": plan.held,
            "familiarity": self._familiar(plan, first),
            "cut_short": not plan.complete,
            "replica": None if plan.replica is None else plan.replica._asdict(),
        }

    def _refusal(self, plan: Plan, familiarity: dict[str, Any] | None) -> DataError | None:
        """Why a plan is not served: the alarm is raised, or there is none, and its actions are far from all others."""
        policy = self.policy
        if (
            self._any_actions
            or not isinstance(policy, DemonstrationPolicy)
            or (familiarity or {}).get("alarm") is False
        ):
            return None
        found = self._range
        if found is None or found.model is not policy.model:
            found = self._range = ActionRange.of(policy)
        problem = found.problem(plan.actions)
        if problem is None:
            return None
        alarm = f" (threshold {familiarity['threshold']:.4g})" if familiarity else ""
        return DataError(
            f"alarm: the observation is at distance {plan.distance:.4g} from the demonstrations{alarm}, and {problem}; "
            "such actions are served only with --any-actions"
        )

    def session(self, name: Any) -> Session:
        """The session of this name, a text or a number, which may be in an array of one; a new one if there is none."""
        name = session_name(name)
        with self._lock:
            session = self._sessions.get(name)
            if session is None:
                session = self._sessions[name] = Session(self.policy, name)
                while len(self._sessions) > N_SESSIONS:
                    self._sessions.popitem(last=False)
            self._sessions.move_to_end(name)
            return session

    def add(self, request: Mapping[Any, Any]) -> dict[str, Any]:
        """Adds the episode in a request; the next plan of every robot sees it, and the alarm is calibrated again."""
        if not self.learn:
            raise ConfigError("add: expected a server that may learn, found one started without --learn")
        assert isinstance(self.policy, DemonstrationPolicy)
        extra = sorted(str(key)[:100] for key in request if key not in (*_OPTIONS, "observations", "actions"))
        if "observations" not in request or "actions" not in request or extra:
            found = ", ".join(extra or sorted(str(key)[:100] for key in request))
            raise DataError(f"add: expected observations (T, D_o) and actions (T, D_a), found {found}")
        arrays = (real_array(request[name], name) for name in ("observations", "actions"))
        with self._learning:
            number = self.policy.add(Episode(*arrays))
            try:
                self._familiarity = self._measure()
            except ClosedFormError:  # nothing can be compared with it, so it must not stay
                self.policy.remove(number)
                raise
            self._taught.add(number)
        return {"episode": number, "episodes": len(self.policy.episode_ids)}

    def remove(self, request: Mapping[Any, Any]) -> dict[str, Any]:
        """Removes an episode that `add` added, by its id: the next plan of every robot is as if it had never been."""
        if not self.learn:
            raise ConfigError("remove: expected a server that may learn, found one started without --learn")
        assert isinstance(self.policy, DemonstrationPolicy)
        number = whole(request, "episode")
        with self._learning:
            if number not in self._taught:
                known = ", ".join(map(str, sorted(self._taught))) or "none"
                raise DataError(f"remove: expected an episode that was added ({known}), found {brief(number)}")
            self.policy.remove(number)
            self._taught.discard(number)
            self._familiarity = self._measure()
        return {"episode": number, "episodes": len(self.policy.episode_ids)}

    def change(self, request: Mapping[Any, Any]) -> dict[str, Any]:
        """`add` or `remove`, as the request says."""
        return self.remove(request) if request.get("endpoint") == "remove" else self.add(request)

    def _measure(self) -> Familiarity | None:
        policy = self.policy
        if not isinstance(policy, DemonstrationPolicy) or len(policy.episode_ids) < 2:
            return None
        return measure_familiarity(policy, self._rate)

    def _warm_up(self) -> None:
        """Plans alone and together, so that compiled code is loaded before a robot waits for it."""
        self.policy.warm_up()
        if isinstance(self.policy, DemonstrationPolicy):
            first = next(episode for episode in self.policy.episodes if len(episode)).observations[0]
            pair = [self.open(), self.open()]
            plan_together([Asked(session, first) for session in pair])

    def _familiar(self, plan: Plan, first: bool) -> dict[str, Any] | None:
        if self._familiarity is None:
            return None
        familiarity = self._familiarity.at(first=first)
        return {
            "alarm": bool(familiarity.alarm(plan)),
            "distance": float(plan.distance),
            "threshold": familiarity.threshold,
            "share_nearer": familiarity.share_nearer(plan.distance),
            "false_alarm_rate": float(familiarity.false_alarm_rate),
        }


@dataclass(frozen=True)
class _Read:
    """A request, read: what to do in which session, and the keys that were not understood."""

    session: Session
    resets: bool
    seed: int | None
    asked: Asked | None = None
    ignored: list[str] = field(default_factory=list)


def _prefix(request: Mapping[Any, Any]) -> ActionPrefix | None:
    """What a plan has to continue, if the request says so."""
    delay = whole(request, "delay")
    if request.get("left_over") is not None:
        return ActionPrefix(real_array(request["left_over"], "left_over"), delay or 0)
    if delay:
        raise DataError("delay: expected with left_over, the actions that are executed meanwhile, found without")
    return None


def session_name(name: Any) -> str:
    """The name of a session, a text or a number, which may be in an array of one."""
    if isinstance(name, np.ndarray) and name.size == 1:
        name = name.reshape(-1)[0]
    long = isinstance(name, str | bytes | Integral) and len(name if isinstance(name, str | bytes) else str(name)) > 200
    if long or not isinstance(name, str | bytes | Integral) or isinstance(name, bool):
        raise DataError(f"session_id: expected a text of at most 200 characters or a number, found {brief(name)}")
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)


def whole(request: Mapping[Any, Any], name: str) -> int | None:
    """A whole number of at least 0 in a request, or None."""
    value = request.get(name)
    if value is None:
        return None
    if not isinstance(value, Integral) or isinstance(value, bool) or not 0 <= int(value) < 2**63:
        raise DataError(f"{name}: expected a whole number of 0 or more, found {brief(value)}")
    return int(value)
