"""Ray: workers on a Ray cluster, or on a local one that is started for them (extra `ray`)."""

from __future__ import annotations

import os
import pickle
import socket
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from closedform import provenance
from closedform.errors import ClosedFormError, ConfigError, MissingExtraError
from closedform.evaluation.pool import AHEAD, EvaluationError, Job, Pool, Task
from closedform.evaluation.workers import THREAD_LIMITS, check_workers

_RETRIES = 5  # how often a task may lose its node or its process before it counts as the cause
_LOOK = 5.0  # seconds between looks at the size of the cluster, which may grow
_SAME_EVERYWHERE = ("CLOSEDFORM_DISABLE_KERNELS",)  # variables that results depend on
_ANSWER = 10.0  # seconds for a cluster to accept a connection
_SOURCE = "closedform's source"
_connected_as: list[str | None] = []  # the address that this process connected with; Ray spells localhost differently


@dataclass(frozen=True)
class Ray:
    """Runs tasks on a Ray cluster.

    A job travels to each node once, by Ray's object store, and memory-mapped policies by their path. Tasks of a node
    that dies run again on others. The connection is kept until this process ends.

    Attributes:
        address: of the cluster, HOST:PORT or `auto` for the one of this machine; None for the one that this process is
            connected to, or else a new local one that ends with this process.
        n: the most tasks at once; by default one per CPU of the cluster.
    """

    address: str | None = None
    n: int | None = None

    def __post_init__(self) -> None:
        check_workers(self.n)
        host, colon, port = (self.address or "").rpartition(":")
        if self.address not in (None, "auto") and not (host and colon and port.isdigit()):
            raise ConfigError(f"ray: expected an address HOST:PORT, or auto, found {self.address!r}")

    @contextmanager
    def pool(self, jobs: Sequence[Job], n_tasks: int | None = None) -> Iterator[Pool]:
        """Connects to the cluster and shares the jobs with it; see `Workers`."""
        ray = self._connected()
        pool = _RayPool(ray, jobs, self.n)
        try:
            yield pool
        finally:
            pool.stop()

    def _connected(self) -> Any:
        try:
            import ray
        except ImportError as error:
            raise MissingExtraError("ray", "ray", "running episodes on a cluster") from error
        if not ray.is_initialized():
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # of a local one
            os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # otherwise it warns of its own default
            local = {"num_cpus": self.n or provenance.n_cores(), "include_dashboard": False}
            options: Mapping[str, Any] = local if self.address is None else {}
            if self.address not in (None, "auto"):
                check_answers(self.address)
            try:
                ray.init(self.address or "local", log_to_driver=False, logging_level="ERROR", **options)
            except (ConnectionError, RuntimeError, ValueError) as error:  # other versions of Ray or Python, too
                raise EvaluationError(f"ray: expected a cluster at {self.address or 'local'}, found {error}") from error
            _connected_as[:] = [self.address]
        found = ray.get_runtime_context().gcs_address
        if self.address not in (None, "auto", found, *_connected_as):
            raise ConfigError(
                f"ray: expected the cluster that this process is connected to, {found}, found {self.address}"
            )
        return ray


def check_answers(address: str) -> None:
    """Refuses an address where nothing listens, for which Ray would wait minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), _ANSWER).close()
    except (OSError, OverflowError, UnicodeError) as error:
        raise EvaluationError(f"ray: expected a cluster at {address}, found {error}") from error


class _RayPool:
    def __init__(self, ray: Any, jobs: Sequence[Job], n: int | None):
        self._ray, self._jobs, self._n = ray, jobs, n
        self._name = uuid.uuid4().hex
        self._shared = [ray.put(_Parcel.of(job)) for job in jobs]
        self._waiting: dict[Any, Task] = {}
        self._here = installation()
        variables = dict.fromkeys(THREAD_LIMITS, "1")
        variables |= {name: os.environ[name] for name in _SAME_EVERYWHERE if name in os.environ}
        options: dict[str, Any] = {"max_retries": _RETRIES, "runtime_env": {"env_vars": variables}}
        self._remote = ray.remote(num_cpus=1, **options)(_run)
        self._looked, self._room = -_LOOK, 0

    def results(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Any]]:
        """Runs tasks, a few more at a time than there are CPUs; Ray repeats those whose node dies."""
        tasks = iter(tasks)
        while True:
            for task in islice(tasks, max(0, self._most() - len(self._waiting))):
                shared = (self._name, task.job, [self._shared[task.job]])  # in a list, so that Ray leaves it there
                self._waiting[self._remote.remote(*shared, self._here, task.task)] = task
            if not self._waiting:
                return
            (done, *_), _ = self._ray.wait(list(self._waiting), num_returns=1)
            task = self._waiting.pop(done)
            yield task, self._outcome(done, self._jobs[task.job].label(task.task))

    def stop(self) -> None:
        """Cancels what is left after an error or interrupt, so that the cluster is free for others."""
        for waiting in self._waiting:
            self._ray.cancel(waiting, force=True)
        self._waiting.clear()

    def _most(self) -> int:
        """How many tasks may wait or run."""
        if self._n is not None:
            return self._n
        if time.monotonic() - self._looked >= _LOOK:
            self._looked = time.monotonic()
            self._room = max(1, AHEAD * int(self._ray.cluster_resources().get("CPU", 0)))
        return self._room

    def _outcome(self, done: Any, label: str) -> Any:
        from ray.exceptions import RayError, RayTaskError

        try:
            outcome = self._ray.get(done)
        except RayTaskError as error:  # our own errors are returned; these are those of importing the package
            raise EvaluationError(
                f"a Ray node could not run {label}: {error.cause!r}; install the same closedform on all nodes"
            ) from error
        except RayError as error:
            raise EvaluationError(
                f"the worker of {label} died {_RETRIES + 1} times ({type(error).__name__}), out of memory or in a "
                "crash; try fewer workers"
            ) from error
        if isinstance(outcome, ClosedFormError):
            raise outcome
        return outcome


@dataclass(frozen=True)
class _Parcel:
    """A pickled job: its bytes are shared by all processes of a node, and each makes its own job of them.

    They come from the process that started the pool, as all that Ray moves within a cluster; no file is read.
    """

    content: Any

    @classmethod
    def of(cls, job: Job) -> _Parcel:
        import numpy as np
        from ray import cloudpickle

        return cls(np.frombuffer(cloudpickle.dumps(job), np.uint8))

    def job(self) -> Job:
        return pickle.loads(self.content.data)


_jobs: dict[tuple[str, int], Job] = {}  # of a worker process


def _run(pool: str, index: int, shared: list[Any], expected: Mapping[str, str], task: Any) -> Any:
    """Runs a task in a worker process; returns the package's own errors, to which Ray would add pages."""
    try:
        if (pool, index) not in _jobs:
            _load(pool, index, shared[0], expected)
        return _jobs[pool, index].run(task)
    except ClosedFormError as error:
        return error


def _load(pool: str, index: int, shared: Any, expected: Mapping[str, str]) -> None:
    import ray

    for old in [key for key in _jobs if key[0] != pool]:
        del _jobs[old]
    node = ray.util.get_node_ip_address()
    check_installation(expected, installation(), node)
    try:
        _jobs[pool, index] = ray.get(shared).job()
    except ClosedFormError as error:
        raise EvaluationError(
            f"the Ray node {node} cannot load the policy: {error}; memory-mapped policies have to be at the same path "
            "on all nodes"
        ) from error


@cache
def installation() -> dict[str, str]:
    """The versions of everything that results can depend on, and a checksum of this package's source."""
    package, value = Path(__file__).parents[1], 0
    for path in sorted(package.rglob("*.py")):
        value = zlib.crc32(str(path.relative_to(package)).encode() + path.read_bytes(), value)
    return {**provenance.versions(), _SOURCE: f"{value:08x}"}


def check_installation(expected: Mapping[str, str], found: Mapping[str, str], node: str) -> None:
    """Refuses a node on which a package has another version than here; packages that one of the two lacks may do so."""
    for name in expected.keys() & found.keys():
        if expected[name] != found[name]:
            raise EvaluationError(
                f"the Ray node {node}: expected {name} {expected[name]}, as here, found {found[name]}; install the "
                "same versions on all nodes"
            )
