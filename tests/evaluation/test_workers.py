"""Workers: none outlives the process that started it, and what goes wrong in one is said in one line."""

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from closedform import ClosedFormPolicy, errors
from closedform.errors import ConfigError, MissingExtraError
from closedform.evaluation.evaluate import evaluate
from closedform.evaluation.pool import EvaluationError, Task
from closedform.evaluation.processes import Processes
from closedform.experts import generation
from tests.evaluation.toy import Reach, reach_demos

ROOT = Path(__file__).parents[2]
PARENTS = {
    "busy": """
import os
from closedform import ClosedFormPolicy
from closedform.evaluation.evaluate import evaluate
from closedform.evaluation.pool import Task
from closedform.evaluation.processes import Processes
from tests.evaluation.toy import Slow, reach_demos

def pid(rollout):
    return {"pid": os.getpid()}

if __name__ == "__main__":
    seen = set()
    for row in evaluate(ClosedFormPolicy(reach_demos()), Slow, range(10_000), workers=2, describe=pid):
        seen.add(row.extra["pid"])
        if len(seen) == 2:
            print(*seen, flush=True)
""",
    "idle": """
import os, time
from closedform.evaluation.workers import make_pool

if __name__ == "__main__":
    with make_pool(2, os.getpid, ()) as pool:
        tasks = [pool.submit(time.sleep, 0.5) for _ in range(4)]
        [task.result() for task in tasks]
        print(*pool._processes, flush=True)
        time.sleep(600)
""",
}


def runs(pid):
    """Whether a process is there and has not ended; one that nobody asks about any more is a zombie."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (ProcessLookupError, FileNotFoundError):
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks /proc which processes there are")
@pytest.mark.parametrize("parent", PARENTS)
def test_workers_end_when_their_parent_is_killed(tmp_path, parent):
    (tmp_path / "parent.py").write_text(PARENTS[parent])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, str(tmp_path / "parent.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        workers = [int(pid) for pid in process.stdout.readline().split()]
        assert len(workers) == 2 and all(map(runs, workers))
        process.send_signal(signal.SIGKILL)
        process.stdout.close()
    for _ in range(1200):  # two minutes; they need milliseconds
        if not any(map(runs, workers)):
            break
        time.sleep(0.1)
    assert not any(map(runs, workers))


def test_what_a_worker_misses_is_one_line(capfd, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with pytest.raises(MissingExtraError, match=r"pip install 'closedform\[robosuite\]'"):
        list(evaluate(ClosedFormPolicy(reach_demos()), "tests.evaluation.test_workers:Missing", range(4), workers=2))
    assert capfd.readouterr().err == ""


class Missing(Reach):
    """Needs what is not installed."""

    def __init__(self):
        raise MissingExtraError("robots", "robosuite", "the environment")


class Backwards:
    """Workers that finish the later one of two tasks first."""

    @contextmanager
    def pool(self, jobs, n_tasks=None):
        assert [type(job) for job in jobs] == [generation.ExpertJob]
        yield self

    def results(self, tasks):
        for first in tasks:
            yield next(tasks), None
            yield first, None


def test_episodes_of_experts_are_in_order_whatever_order_they_finish_in():
    recordings = generation._recordings("lift", iter(range(3, 13)), Backwards())
    assert list(recordings) == [(seed, None) for seed in range(3, 13)]


@pytest.mark.parametrize("n", [0, -1, 1025, 2**70])
def test_numbers_of_workers_are_bounded(n):
    with pytest.raises(ConfigError, match="workers: expected at least 1 and at most 1024"):
        list(evaluate(ClosedFormPolicy(reach_demos()), Reach, range(4), workers=n))


def test_errors_come_out_of_workers_as_they_are():
    for kind in [*errors.ClosedFormError.__subclasses__(), errors.ClosedFormError]:
        error = kind("a", "b", "c") if kind is MissingExtraError else kind("what is wrong")
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is kind and str(again) == str(error)


@pytest.mark.parametrize("score", [float("nan"), float("inf"), 1e200])
def test_a_score_that_is_no_number_stops_the_episode(score):
    class Odd(Reach):
        def step(self, action):
            return super().step(action)._replace(score=score)

    with pytest.raises(errors.DataError, match="expected the environment to return a score from 0 to 1, found"):
        list(evaluate(ClosedFormPolicy(reach_demos()), Odd, [3]))


class WhichProcess:
    def run(self, task):
        return os.getpid()

    def label(self, task):
        return "a question"


def test_a_daemonic_process_does_the_work_itself(monkeypatch):
    """It may start no others; the workers of data loaders are such."""
    monkeypatch.setattr(type(multiprocessing.current_process()), "daemon", True)
    with Processes(2).pool([WhichProcess()]) as pool:
        assert [result for _, result in pool.results([Task(0, 1)])] == [os.getpid()]


class Starting:
    """A job that is large, and kills as many of the processes that receive it as are told."""

    def __init__(self, deaths):
        self.deaths = deaths

    def __getstate__(self):
        return Killing(self.deaths), bytes(2**20), self.deaths

    def __setstate__(self, state):
        self.deaths = state[2]

    def run(self, task):
        return task + 1

    def label(self, task):
        return f"task {task}"


class Killing:
    """Kills the process that reads it, as long as there are files to count down with."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return _kill, (self.folder,)


def _kill(folder):
    for mark in sorted(Path(folder).iterdir()):
        mark.unlink(missing_ok=True)
        os.kill(os.getpid(), signal.SIGKILL)


def _deaths(folder, n):
    folder.mkdir()
    for i in range(n):
        (folder / str(i)).touch()
    return str(folder)


def test_a_worker_that_dies_while_it_starts_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with Processes(2).pool([Starting(_deaths(tmp_path / "deaths", 1))]) as pool:
        assert sorted(result for _, result in pool.results(Task(0, i) for i in range(20))) == list(range(1, 21))


def test_workers_that_always_die_end_the_evaluation(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with (
        pytest.raises(EvaluationError, match=r"a worker process died around .*, 3 times in a row"),
        Processes(2).pool([Starting(_deaths(tmp_path / "deaths", 100))]) as pool,
    ):
        list(pool.results(Task(0, i) for i in range(20)))
