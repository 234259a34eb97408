"""Planners: threads in which requests that wait together are answered together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

MOST = 64  # requests answered together


class Planners:
    """Answers requests in threads; while all of them are busy, requests wait, and are then answered together.

    A request never waits for others to come. A free thread takes its share of those that wait, and leaves a busy one
    the rest, so that all cores plan until there is nothing left. All methods belong to one event loop.

    Args:
        answer: answers some requests, in a thread; yields lists of pairs: the index of a request, and its reply or an
            exception.
        n_threads: how many.
    """

    def __init__(self, answer: Callable[[Sequence[Any]], Iterable[list[tuple[int, Any]]]], n_threads: int):
        self._answer = answer
        self._threads = ThreadPoolExecutor(n_threads, "closedform-plan")
        self._loop = asyncio.get_running_loop()
        self._n_threads = self._n_free = n_threads
        self._waiting: deque[tuple[Any, asyncio.Future[Any]]] = deque()
        self._alarm: asyncio.Handle | None = None

    async def ask(self, request: Any) -> Any:
        """The reply to a request."""
        future = self._loop.create_future()
        self._waiting.append((request, future))
        if self._alarm is None:  # after everything that has arrived by now
            self._alarm = self._loop.call_soon(self._dispatch)
        return await future

    def close(self) -> None:
        """Waits for the requests that are being answered."""
        self._threads.shutdown()

    def _dispatch(self) -> None:
        self._alarm = None
        share = min(MOST, -(-len(self._waiting) // self._n_threads))
        while self._n_free and self._waiting:
            together = [self._waiting.popleft() for _ in range(min(share, len(self._waiting)))]
            self._n_free -= 1
            self._threads.submit(self._run, together)

    def _run(self, together: list[tuple[Any, asyncio.Future[Any]]]) -> None:
        """Answers some requests, in a thread."""
        try:
            for replies in self._answer([request for request, _ in together]):
                done = [(together[index][1], reply) for index, reply in replies]
                self._loop.call_soon_threadsafe(_deliver, done)
        except BaseException as error:
            failed = [(future, error) for _, future in together]
            self._loop.call_soon_threadsafe(_deliver, failed)
        self._loop.call_soon_threadsafe(self._freed)

    def _freed(self) -> None:
        self._n_free += 1
        self._dispatch()


def _deliver(replies: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, reply in replies:
        if future.done():  # the client is gone
            continue
        if isinstance(reply, BaseException):
            future.set_exception(reply)
        else:
            future.set_result(reply)
