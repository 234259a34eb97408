"""A fake UR controller in a process of its own: ur_rtde holds the interpreter's lock while it connects."""

import multiprocessing
import os
import socket

from closedform.robot.drivers.fake_ur import FakeUr
from tests.robot.arms import LaggingArm, joints_at

CENTER = (0.256, 0.256, 0.008)


def serve(host, pipe):
    fake = FakeUr(host, LaggingArm(joints_at(CENTER)))
    fake.start()
    pipe.send("ready")
    try:
        while True:
            name, arguments = pipe.recv()
            if name == "set":
                setattr(fake, *arguments)
                pipe.send(None)
            elif name == "get":
                pipe.send(getattr(fake, arguments[0]))
            else:
                found = getattr(fake, name)(*arguments)
                pipe.send(None if found is fake else found)
    except EOFError:
        fake.stop()


class FakeProcess:
    """Speaks to the fake controller."""

    def __init__(self, host):
        self.host = host
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(host, theirs))
        self._process.start()
        theirs.close()
        self._pipe.recv()

    def call(self, name, *arguments):
        self._pipe.send((name, arguments))
        return self._pipe.recv()

    def set(self, **values):
        for name, value in values.items():
            self.call("set", name, value)

    def __getattr__(self, name):
        return self.call("get", name)

    def close(self):
        self._pipe.close()
        self._process.join(10)
        self._process.kill()


def own_address():
    """A loopback address that no other test listens on."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    return f"127.17.{worker}.17"


def can_listen():
    try:
        socket.create_server((own_address(), 0)).close()
    except OSError:
        return False
    return True
