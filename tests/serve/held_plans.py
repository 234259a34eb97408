"""HeldPlans: a policy whose plans wait until they are told to go on."""

import threading
from contextlib import contextmanager


class HeldPlans:
    """Holds the plans of a policy.

    Attributes:
        began: is set when the first one waits.
        go_on: lets all of them go on.
    """

    def __init__(self, policy, monkeypatch):
        self.began, self.go_on = threading.Event(), threading.Event()
        self._plan = policy.step_together
        monkeypatch.setattr(policy, "step_together", self._wait)

    def _wait(self, *arguments):
        self.began.set()
        assert self.go_on.wait(60)
        return self._plan(*arguments)


@contextmanager
def held_plans(policy, monkeypatch):
    """Plans that wait; at the end they go on in any case."""
    held = HeldPlans(policy, monkeypatch)
    try:
        yield held
    finally:
        held.go_on.set()
