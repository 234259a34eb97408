"""Ray on a real cluster: a head and several nodes of one machine, one of which is killed (make test-ray)."""

import csv
import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from closedform import ClosedFormPolicy, load_demos, save_demos
from closedform.analysis import tune
from closedform.cli import main
from closedform.evaluation import EvaluationError, EvaluationResult, Ray, Study, evaluate, ray_pool, sweep
from closedform.evaluation.environment_pool import EnvironmentPool
from closedform.evaluation.episodes_job import EpisodesJob
from closedform.evaluation.pool import Task
from closedform.store.recorded_steps import RecordedSteps
from studies import deadline
from studies.__main__ import Make
from tests.evaluation.test_workers import runs
from tests.evaluation.toy import LoadedOnce, Reach, Wide, reach_demos

pytest.importorskip("ray", reason="needs the extra ray: make test-ray")
import ray
from ray.cluster_utils import Cluster

TOY = "tests.evaluation.toy"
HERE = "tests.evaluation.test_ray_cluster"
ROOT = Path(__file__).parents[2]
NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder that the workers know; what they leave there says what ran where."""
    return tmp_path_factory.mktemp("marks")


@pytest.fixture(scope="module")
def cluster(folder):
    """A head without CPUs and two nodes; tests add others and take them away again."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "src")])  # of the nodes
    os.environ["TOY_MARKS"] = str(folder)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    made = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 0, "include_dashboard": False})
    for _ in range(2):
        made.add_node(**NODE)
    made.wait_for_nodes()
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture(scope="module")
def policy():
    return ClosedFormPolicy(reach_demos())


def by_seed(rows):
    return [dataclasses.replace(row, latency_ms=()) for row in sorted(rows, key=lambda row: row.seed)]


@pytest.mark.parametrize("n", [None, 1])
def test_the_rows_are_those_of_this_process(cluster, policy, n):
    alone = by_seed(evaluate(policy, f"{TOY}:Reach", range(20, 30)))
    assert by_seed(evaluate(policy, f"{TOY}:Reach", range(20, 30), workers=Ray(cluster.address, n))) == alone


def test_sweeps_and_tuning_are_those_of_this_process(cluster, tmp_path, monkeypatch):
    save_demos(reach_demos(), tmp_path / "demos")
    configurations = [{"tau": 0.0}, {"tau": 0.3, "n_execute": 2}]
    found = [
        sweep(
            Study.make_each(f"{TOY}:Reach", str(tmp_path / "demos"), "default", configurations, n_episodes=6),
            configurations,
            look=3,
            workers=workers,
        )
        for workers in (1, Ray(cluster.address))
    ]
    rows = [[by_seed(result.episodes) for result in one.results] for one in found]
    assert rows[0] == rows[1] and found[0].best == found[1].best
    monkeypatch.setitem(tune.__globals__, "GRID", {"n_obs_steps": (1, 2), "tau": (0.0, 0.07)})
    assert tune(reach_demos(), workers=Ray(cluster.address)) == tune(reach_demos())


class Marked(Reach):
    """Leaves a file named after seed, node and process, and from seed 4 on waits until it is released."""

    def reset(self, seed):
        folder = Path(os.environ["TOY_MARKS"])
        (folder / f"{seed} {ray.get_runtime_context().get_node_id()} {os.getpid()}").touch()
        while seed >= 4 and not (folder / "release").exists():
            time.sleep(0.02)
        return super().reset(seed)


def test_a_node_that_dies_loses_only_its_running_episodes(cluster, folder, policy):
    doomed = cluster.add_node(**NODE)
    cluster.wait_for_nodes()
    seeds = range(16)
    rows = evaluate(policy, f"{HERE}:Marked", seeds, workers=Ray(cluster.address))
    found = [next(rows) for _ in range(4)]

    def marks():
        return [tuple(path.name.split()) for path in folder.iterdir() if " " in path.name]

    def held(node):
        return {int(seed) for seed, place, _ in marks() if place == node and int(seed) >= 4}

    while not held(doomed.node_id) or len({int(seed) for seed, *_ in marks() if int(seed) >= 4}) < 3:
        time.sleep(0.05)
    lost = held(doomed.node_id)
    workers = [int(pid) for _, place, pid in marks() if place == doomed.node_id]
    cluster.remove_node(doomed, allow_graceful=False)
    while any(map(runs, workers)):  # or one could finish what it was doing
        time.sleep(0.05)
    (folder / "release").touch()
    found += rows
    assert by_seed(found) == by_seed(evaluate(policy, f"{TOY}:Reach", seeds))
    starts = {seed: [place for other, place, _ in marks() if int(other) == seed] for seed in seeds}
    assert {seed for seed in seeds if len(starts[seed]) > 1} == lost  # no other episode ran twice
    assert all(starts[seed][0] != starts[seed][1] for seed in lost)


def test_a_job_is_loaded_once_by_a_process_not_once_by_a_task(cluster, folder):
    with Ray(cluster.address).pool([LoadedOnce(folder)]) as pool:
        results = dict(pool.results(Task(0, n) for n in range(12)))
        assert {task.task: done for task, done in results.items()} == {n: n * n for n in range(12)}
    loads = [path.name for path in folder.iterdir() if path.name.startswith("loaded")]
    assert 1 <= len(loads) == len(set(loads)) <= 2  # one by each of two nodes with one CPU


def copies_of_the_job(pool: Any) -> dict[str, Any]:
    """What Ray says of the only job of a pool: its size, and the nodes that have a copy."""
    (found,) = ray.experimental.get_object_locations(pool._shared).values()
    return found


def test_a_job_travels_once_to_a_node_whatever_the_number_of_its_processes(cluster, tmp_path):
    wide = cluster.add_node(**{**NODE, "num_cpus": 2})
    cluster.wait_for_nodes()
    try:
        job = Wide(tmp_path, n_processes=4)  # one of each of the others, and two of this one
        with Ray(cluster.address).pool([job]) as pool:
            places = {place for _, place in pool.results(Task(0, n) for n in range(8))}
            copies = copies_of_the_job(pool)
        assert len({process for node, process in places if node == wide.node_id}) == 2
        nodes = {node for node, _ in places} | {ray.get_runtime_context().get_node_id()}
        assert sorted(copies["node_ids"]) == sorted(nodes) and copies["object_size"] > job.numbers.nbytes
    finally:
        cluster.remove_node(wide)


def test_a_memory_mapped_policy_travels_as_its_path(cluster, tmp_path):
    pytest.importorskip("faiss", reason="needs the extra ann: make test-ray")
    ClosedFormPolicy(reach_demos(), index="faiss").save(tmp_path / "policy")
    mapped = ClosedFormPolicy.load(tmp_path / "policy")
    assert isinstance(mapped.model.storage, RecordedSteps)
    steps = sum(episode.observations.nbytes + episode.actions.nbytes for episode in mapped.episodes)
    seeds = range(30, 36)
    job = EpisodesJob(mapped, EnvironmentPool(f"{TOY}:Reach"), None)
    with Ray(cluster.address).pool([job]) as pool:
        rows = [row for _, some in pool.results(Task(0, block) for block in job.blocks(seeds)) for row in some]
        sent = copies_of_the_job(pool)["object_size"]
    assert by_seed(rows) == by_seed(evaluate(mapped, f"{TOY}:Reach", seeds))
    assert 0 < sent < steps / 2
    (tmp_path / "policy").rename(tmp_path / "elsewhere")
    with pytest.raises(EvaluationError, match="memory-mapped policies have to be at the same path on all nodes"):
        list(evaluate(mapped, f"{TOY}:Reach", seeds, workers=Ray(cluster.address)))


def test_generated_demonstrations_are_those_of_this_process(cluster, tmp_path, monkeypatch):
    pytest.importorskip("robosuite", reason="needs the extra robosuite: make test-ray")
    monkeypatch.chdir(tmp_path)
    main(["generate", "--task", "lift", "--episodes", "2", "--output", "alone.hdf5"])
    main(["generate", "--task", "lift", "--episodes", "2", "--output", "cluster.hdf5", "--ray", cluster.address])
    alone, together = load_demos("alone.hdf5"), load_demos("cluster.hdf5")
    assert len(alone) == len(together) == 2
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one.observations, other.observations)
        np.testing.assert_array_equal(one.actions, other.actions)


def test_a_study_of_the_paper_has_the_scores_of_this_process(cluster, tmp_path, monkeypatch):
    pytest.importorskip("pymunk", reason="needs the extra pusht: make test-ray")
    for name, value in {"DEMOS": "pusht-embedded", "DEADLINES_MS": (None,), "N_EPISODES": 2, "N_PLANS": 5}.items():
        monkeypatch.setattr(deadline, name, value)
    where: dict[str, dict[str, Any]] = {"alone": {"workers": 1}, "cluster": {"ray": (cluster.address,)}}
    for folder, options in where.items():
        Make(study="deadline", output=tmp_path / folder, work=tmp_path / folder / "work", **options).run()
    rows = [list(csv.DictReader((tmp_path / name / "deadline/deadline.csv").open())) for name in ("alone", "cluster")]
    names = ("preset", "score", "score_low", "score_high", "success")
    assert [[row[name] for name in names] for row in rows[0]] == [[row[name] for name in names] for row in rows[1]]
    assert len(rows[0]) == 2 and (tmp_path / "cluster/deadline/README.md").is_file()


def test_what_goes_wrong_in_a_worker_names_the_seed(cluster, policy, monkeypatch):
    with pytest.raises(EvaluationError, match=r"^the episode of seed 3 failed: ValueError: no more$"):
        list(evaluate(policy, f"{TOY}:StopsAtSeed3", range(6), workers=Ray(cluster.address)))
    monkeypatch.setattr(ray_pool, "_RETRIES", 1)
    with pytest.raises(EvaluationError, match=r"^the worker of seed 7 died 2 times"):
        list(evaluate(policy, f"{TOY}:CrashesAtSeed7", range(6, 8), workers=Ray(cluster.address)))


def test_another_cluster_than_the_connected_one_is_refused(cluster, policy):
    list(evaluate(policy, f"{TOY}:Reach", [1], workers=Ray(cluster.address)))
    with pytest.raises(ValueError, match="expected the cluster that this process is connected to"):
        list(evaluate(policy, f"{TOY}:Reach", [1], workers=Ray("10.9.9.9:6379")))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_this_machine_has_several_names(cluster, host):
    """Ray replaces them by another address. In a process that is not connected yet, and then is."""
    address = f"{host}:{cluster.address.rpartition(':')[2]}"
    twice = f"""
from closedform import ClosedFormPolicy
from closedform.evaluation import Ray, evaluate
from tests.evaluation.toy import Reach, reach_demos
for seed in range(2):
    (row,) = evaluate(ClosedFormPolicy(reach_demos(), n_diffusion_steps=5), Reach, [seed], workers=Ray("{address}"))
    print(row.seed)
"""
    ran = subprocess.run([sys.executable, "-c", twice], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.stdout.split() == ["0", "1"], ran.stderr


def test_a_node_with_other_versions_is_refused(cluster, policy, tmp_path):
    info = tmp_path / "numpy-0.0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 0.0.1\n")
    path = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    other = cluster.add_node(**NODE, env_vars={"PYTHONPATH": path})
    cluster.wait_for_nodes()
    try:
        with pytest.raises(EvaluationError, match=r"expected numpy .*, as here, found 0\.0\.1; install the same"):
            list(evaluate(policy, f"{TOY}:Slow", range(2000), workers=Ray(cluster.address)))
    finally:
        cluster.remove_node(other)


def test_an_interrupted_evaluation_on_a_local_cluster_resumes(policy, tmp_path):
    policy.save(tmp_path / "policy")
    path, release = tmp_path / "results.json", tmp_path / "release"
    often = "from closedform.evaluation import study; study.SAVE_EVERY = 0; from closedform.cli import main; main()"
    command = [sys.executable, "-c", often, "eval", "--env", f"{TOY}:Held", "--policy", str(tmp_path / "policy")]
    command += ["--episodes", "40", "--workers", "2", "--json", str(path), "--ray"]
    options: dict[str, Any] = {"stderr": subprocess.PIPE, "text": True, "cwd": ROOT, "start_new_session": True}
    options["preexec_fn"] = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    environment = {**os.environ, "TOY_RELEASE": str(release)}
    with subprocess.Popen(command, env=environment, **options) as process:
        while not path.exists() and process.poll() is None:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, said = process.communicate()
    assert process.returncode == 130, said
    assert "of 40 episodes, which are in" in said and "run the same command to resume" in said
    assert 0 < len(EvaluationResult.load(path).episodes) <= 4
    release.touch()
    os.environ["TOY_RELEASE"] = str(release)
    study = Study.make(f"{TOY}:Held", None, str(tmp_path / "policy"), n_episodes=40)
    results = study.run(path, 1)  # in this process: whatever ran the first part
    assert results.complete and by_seed(results.episodes) == by_seed(
        evaluate(policy, f"{TOY}:Held", range(100000, 100040))
    )
