"""Planners: which requests are answered together, and by which thread."""

import asyncio
import threading
from collections import defaultdict

import pytest

from closedform.serve.planners import Planners


class Held:
    """Answers each batch of requests only once its first request is let go."""

    def __init__(self):
        self.batches = []
        self._gates = defaultdict(threading.Event)

    def answer(self, requests):
        self.batches.append(list(requests))
        assert self._gates[requests[0]].wait(60)
        yield [(index, -request) for index, request in enumerate(requests)]

    async def let_go(self, first, n_batches):
        """Lets a batch go, and waits until there were so many."""
        self._gates[first].set()
        await self.taken(n_batches)

    async def taken(self, n_batches):
        while len(self.batches) < n_batches:
            await asyncio.sleep(1e-3)


async def ask(planners, requests):
    """The replies to come of requests that arrive together."""
    asked = [asyncio.create_task(planners.ask(request)) for request in requests]
    await asyncio.sleep(0)
    return asked


def test_a_thread_that_is_free_leaves_a_busy_one_its_share():
    """Otherwise one core would plan for all that wait, and the other for none."""
    held = Held()

    async def run():
        planners = Planners(held.answer, 2)
        asked = await ask(planners, [1, 2])
        await held.taken(2)
        assert sorted(held.batches) == [[1], [2]]
        asked += await ask(planners, range(3, 11))
        await held.let_go(1, 3)
        assert held.batches[2] == [3, 4, 5, 6]
        await held.let_go(2, 4)
        assert held.batches[3] == [7, 8]
        await held.let_go(7, 5)
        await held.let_go(9, 6)
        await held.let_go(10, 6)
        await held.let_go(3, 6)
        replies = await asyncio.gather(*asked)
        planners.close()
        return replies

    assert asyncio.run(run()) == [-request for request in range(1, 11)]


@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_requests_of_one_instant_are_shared_among_the_threads(n_threads):
    held = Held()

    async def run():
        planners = Planners(held.answer, n_threads)
        asked = await ask(planners, range(1, 7))
        await held.taken(n_threads)
        share = 6 // n_threads
        assert sorted(held.batches) == [list(range(first, first + share)) for first in range(1, 7, share)]
        for first in range(1, 7, share):
            await held.let_go(first, n_threads)
        await asyncio.gather(*asked)
        planners.close()

    asyncio.run(run())
