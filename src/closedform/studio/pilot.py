"""Pilot: the thread that steps a session on the wall clock, and does what pages ask for in between."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from closedform.errors import ClosedFormError
from closedform.studio.answers import Job
from closedform.studio.messages import TUNABLE
from closedform.studio.picture import data_address
from closedform.studio.session import Point, StudioSession

_MOST_WAITING = 64  # commands
_LATE = 0.010  # seconds
_BETWEEN_PICTURES = 0.08  # seconds, at least
_N_LATENESS = 3000  # steps that lateness is counted over

Publish = Callable[[str, dict[str, Any]], None]


class Pilot:
    """Steps a session at the environment's rate.

    The newest pointer counts, however many arrive between two steps. Slow jobs of the session run in a further thread.

    Args:
        make_session: makes the session, given what runs its slow jobs.
        publish: called in this thread with the kind and the content of what pages should know.

    Attributes:
        pointer: where a page drives to; None if it does not.
    """

    def __init__(self, make_session: Callable[[Callable[[Job, Callable[[Any], None]], None]], StudioSession]):
        self.pointer: Point | None = None
        self._publish: Publish = lambda kind, content: None
        self._condition = threading.Condition()
        self._waiting: deque[Callable[[], None]] = deque()
        self._pool = ThreadPoolExecutor(1, "closedform-studio-job")
        self._closed = False
        self._lateness: deque[float] = deque(maxlen=_N_LATENESS)
        self._told: dict[str, Any] = {}
        self._picture_after = 0.0
        self.session = make_session(self._in_background)
        self._thread = threading.Thread(target=self._run, name="closedform-studio", daemon=True)

    def start(self, publish: Publish) -> None:
        """Begins to step."""
        self._publish = publish
        self._thread.start()

    def close(self) -> None:
        """Stops; a stretch that is being driven is kept."""
        with self._condition:
            self._closed = True
            self._condition.notify()
        if self._thread.ident is not None:
            self._thread.join()
        self._pool.shutdown(cancel_futures=True)

    def do(self, command: Callable[[StudioSession], None]) -> bool:
        """Has the session do something before its next step; False if too much is waiting."""
        with self._condition:
            if len(self._waiting) >= _MOST_WAITING:
                return False
            self._waiting.append(lambda: command(self.session))
            self._condition.notify()
        return True

    def ask(self, question: Callable[[StudioSession], Any]) -> Any:
        """The answer of the session to a question, computed in its thread."""
        answer: Future[Any] = Future()

        def reply(session: StudioSession) -> None:
            try:
                answer.set_result(question(session))
            except BaseException as error:
                answer.set_exception(error)

        if not self.do(reply):
            raise ClosedFormError("too many commands are waiting: try again")
        return answer.result(timeout=30)

    def _in_background(self, job: Job, then: Callable[[Any], None]) -> None:
        def finished(future: Future[Any]) -> None:
            if future.cancelled():
                return
            with self._condition:
                self._waiting.append(lambda: self._finished(future, then))
                self._condition.notify()

        if not self._closed:
            self._pool.submit(job).add_done_callback(finished)

    def _finished(self, future: Future[Any], then: Callable[[Any], None]) -> None:
        error = future.exception()  # not raised: a traceback through here would keep the future, which keeps the error
        then(None if error is not None else future.result())
        if error is not None and not isinstance(error, (IndexError, KeyError)):  # not an episode that was removed
            raise error

    def _run(self) -> None:
        period = 1 / self.session.environment.rate
        due = time.monotonic()
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._closed or self._waiting, max(0.0, due - time.monotonic()))
                if self._closed:
                    break
                waiting, self._waiting = self._waiting, deque()
            while waiting:
                self._guarded(waiting.popleft())
            now = time.monotonic()
            if now >= due:
                self._lateness.append(now - due)
                pointer = self.pointer
                self._guarded(lambda pointer=pointer: self.session.step(pointer))
                due = max(due + period, now)  # a late step is not made up for
            self._tell()
        self._guarded(lambda: self.session.step(None) if self.session.driver == "person" else None)

    def _guarded(self, do: Callable[[], Any]) -> None:
        try:
            do()
        except ClosedFormError as error:
            self.session.notices.append(str(error))
        except Exception as error:  # of the environment, for instance: the session goes on once it is told to
            self.session.notices.append(f"paused after an unexpected error: {error!r:.200}")
            self.session.paused = True

    def _show_picture(self) -> None:
        """Publishes a picture if the scene cannot be drawn and has changed."""
        session, told = self.session, self._told
        state, now = (session.seed, session.n_steps), time.monotonic()
        if session.placement is not None or state == told.get("state") or now < self._picture_after:
            return
        told["state"] = state
        self._guarded(lambda: self._publish("picture", {"address": data_address(session.render())}))
        took = time.monotonic() - now
        self._picture_after = now + max(_BETWEEN_PICTURES, 2 * took)  # slow rendering leaves half of the time to steps

    def _tell(self) -> None:
        session, told = self.session, self._told
        self._show_picture()
        self._publish("frame", session.frame())
        if session.insight is not told.get("insight", self):
            told["insight"] = session.insight
            self._publish("insight", {"plan": session.insight})
        for kind in ("paired", "map", "findings"):
            if getattr(session.answers, kind) is not told.get(kind, self):
                told[kind] = getattr(session.answers, kind)
                self._publish(kind, {"answer": told[kind]})
        board = session.board.to_json(), session.answers.version
        if board != told.get("board"):
            told["board"] = board
            self._publish("board", board[0])
        if session.answers.version != told.get("version"):
            told["version"] = session.answers.version
            self._publish("takes", takes_of(session))
            self._publish("parameters", parameters_of(session))
        late = sum(value > _LATE for value in self._lateness)
        if len(self._lateness) % 20 == 0 or late != told.get("late"):
            told["late"] = late
            self._publish("clock", {"late": late, "steps": len(self._lateness)})
        notices, session.notices = session.notices, []
        for text in notices:
            self._publish("notice", {"text": text})


def takes_of(session: StudioSession) -> dict[str, Any]:
    """The strip of takes for a page."""
    held = [take.summary(session.placement) for take in session.collection.held]
    return {"takes": held, "can_undo": session.collection.can_undo}


def parameters_of(session: StudioSession) -> dict[str, Any]:
    """The parameters that a page can change; those that the policy does not have are missing."""
    config = session.collection.config
    return {"values": {name: getattr(config, name) for name in TUNABLE if hasattr(config, name)}}
