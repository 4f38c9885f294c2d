"""`dietcode serve --no-jobs` and `dietcode worker`: who takes which job, and what if one is lost."""

from __future__ import annotations

import itertools
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from child_processes import gone
from cluster import Cluster
from postgres_server import Postgres
from sqlalchemy import delete, select
from storm import NUM_KERNELS

from dietcode.errors import SpecError
from dietcode.protocol import JobState
from dietcode_server.store import slots
from dietcode_server.store.tables import RunnerRow, TuningRecord


@pytest.fixture(scope="module")
def served(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    url = postgres.create(migrated=True)
    made = Cluster(tmp_path_factory.mktemp("server"), url)
    yield made
    made.close()
    postgres.drop(url)


@pytest.fixture
def cluster(served: Cluster, tmp_path: Path) -> Cluster:
    """No worker, and nothing to do."""
    served.begin_test(tmp_path)
    return served


@pytest.mark.long  # as where a worker is killed
def test_a_job_waits_for_a_worker_which_takes_it_and_publishes(cluster: Cluster) -> None:
    job_id = cluster.submit("early")
    job = cluster.client.job(job_id)
    assert job.state == JobState.WAITING_FOR_RUNNER and job.target == {"kind": "llvm"}
    assert job.waits_for is not None and "`dietcode worker`" in job.waits_for
    assert cluster.client.runners() == []
    (worker,) = cluster.workers("one")
    (runner,) = cluster.client.runners()
    assert [(device.name, device.id) for device in runner.devices] == [("A CPU alpha", "alpha-2")]
    assert (runner.name, runner.engine) == ("one", "local") and runner.devices[0].slot == runner.host
    done = cluster.reach(job_id, JobState.SUCCEEDED)
    assert (done.device_id, done.target["mcpu"], done.waits_for) == ("alpha-2", "alpha", None)
    assert cluster.client.library(cluster.spec["name"]).job == job_id
    assert cluster.client.submit(cluster.spec).id == job_id, "the same, now that its target is known"
    assert cluster.client.job(cluster.submit("late")).state != JobState.WAITING_FOR_RUNNER
    assert cluster.end(worker)[0] == 0
    assert cluster.client.runners() == []


def test_a_target_that_names_none_of_several_machines_is_refused(cluster: Cluster) -> None:
    cluster.workers("one")
    cluster.workers("two", mcpu="beta")
    with pytest.raises(SpecError, match=r"mcpu: alpha, num_cores: 2\}, \{kind: llvm, mcpu: beta"):
        cluster.submit("which")
    job_id = cluster.submit("that", target={"kind": "llvm", "mcpu": "beta"})
    assert cluster.reach(job_id, JobState.SUCCEEDED).device_id == "beta-2"
    smaller = cluster.submit("smaller", target={"kind": "llvm", "mcpu": "alpha", "num_cores": 1})
    assert cluster.reach(smaller, JobState.SUCCEEDED).device_id == "alpha-1"
    assert not cluster.measured_by("server")


@pytest.mark.long
def test_workers_on_one_machine_measure_one_after_the_other(cluster: Cluster) -> None:
    cluster.workers("one", "two")
    ids = [cluster.submit("slow") for _ in range(2)]
    jobs = [cluster.reach(job_id, JobState.SUCCEEDED) for job_id in ids]
    spans = sorted((job.started_at, job.finished_at) for job in jobs)
    for (_, finished), (started, _) in itertools.pairwise(spans):
        assert finished <= started
    assert all(job.attempt == 1 for job in jobs)


@pytest.mark.long
def test_workers_with_slots_of_their_own_measure_side_by_side(cluster: Cluster) -> None:
    for name in ("one", "two"):
        cluster.workers(name, job="simple_worker.py", DIETCODE_SERVE_SLOT=name)
    ids = [cluster.submit("waits") for _ in range(2)]
    for job_id in ids:  # both go on until they are ended
        cluster.reach(job_id, JobState.RUNNING)
    with cluster.database.read() as session:
        assert sorted(slots.holders(session)) == ["one", "two"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("alone", "num_jobs"), [(("three",), 3), pytest.param(("three", "four"), 8, marks=pytest.mark.long)]
)
def test_a_process_is_started_for_each_job_and_none_in_vain(
    alone: tuple[str, ...], num_jobs: int, cluster: Cluster
) -> None:
    """Idle workers alike look at one queue; two of them share a slot."""
    given = {"DIETCODE_SERVE_LOST_AFTER_SECS": "60"}
    cluster.workers("one", "two", **given)
    for name in alone:
        cluster.workers(name, DIETCODE_SERVE_SLOT=name, **given)
    ids = [cluster.submit("many") for _ in range(num_jobs)]
    for job_id in ids:
        assert cluster.reach(job_id, JobState.SUCCEEDED, 60.0).attempt == 1
    assert cluster.starts("one", "two", *alone) == sorted(ids)


@pytest.mark.thorough
def test_a_job_of_a_worker_that_is_killed_goes_on_at_another(cluster: Cluster) -> None:
    (one,) = cluster.workers("one")
    job_id = cluster.submit("slow")
    cluster.wait(lambda: cluster.client.job(job_id).measured >= 2)
    processes = cluster.tree(one)
    one.kill()
    assert gone(processes), "its job's process went with it"
    cluster.workers("two")
    done = cluster.reach(job_id, JobState.SUCCEEDED)
    assert (done.attempt, done.measured) == (2, NUM_KERNELS)
    cluster.wait(lambda: cluster.runners() == {"two"})  # what is not repeated does not count
    assert cluster.measured_by("two") and len(cluster.measured_by("one")) >= 2


@pytest.mark.long
def test_a_worker_that_stood_still_measures_and_writes_nothing_more(cluster: Cluster) -> None:
    """It is stopped with all its processes for longer than its lease, and wakes up while another measures."""
    (one,) = cluster.workers("one")
    job_id = cluster.submit("slow")
    cluster.wait(lambda: cluster.client.job(job_id).measured >= 2)
    processes = cluster.tree(one)
    for process in processes:
        process.suspend()
    before = cluster.measured_by("one")
    cluster.workers("two")
    cluster.wait(lambda: len(cluster.measured_by("two")) >= 2)
    assert cluster.wait(lambda: cluster.runners() == {"two"}), "it is announced no more"
    for process in reversed(processes):
        process.resume()
    assert gone(processes[1:]), "its job's process ended itself"
    assert cluster.reach(job_id, JobState.SUCCEEDED).attempt == 2
    assert cluster.measured_by("one") == before
    with cluster.database.read() as session:
        rows = session.execute(select(TuningRecord.workload, TuningRecord.micro_kernel))
        assert set(Counter(map(tuple, rows)).values()) == {1}
    assert cluster.wait(lambda: cluster.runners() == {"one", "two"}), "the worker itself goes on"


@pytest.mark.long  # as where another server cancels
def test_a_cancel_at_the_server_ends_all_processes_at_the_worker(cluster: Cluster) -> None:
    """With the heartbeat there is by default, every 2 s."""
    given = {"DIETCODE_SERVE_LOST_AFTER_SECS": "15"}
    (worker,) = cluster.workers("one", job="simple_worker.py", **given)
    job_id = cluster.submit("waits")
    pids = cluster.folder / "one" / "work" / f"{cluster.spec['name']}.pids"
    text = cluster.wait(lambda: pids.exists() and pids.read_text())
    processes = [psutil.Process(int(pid)) for pid in text.split()]
    cluster.wait(lambda: [runner.job for runner in cluster.client.runners()] == [job_id])
    assert len(processes) == 2 and processes[0] in cluster.tree(worker)
    began = time.monotonic()
    cluster.client.cancel(job_id)
    assert gone(processes, 5.0)
    cluster.reach(job_id, JobState.CANCELLED, 5.0)
    assert time.monotonic() - began < 5.0


@pytest.mark.long
def test_a_worker_that_is_stopped_hands_its_job_back(cluster: Cluster) -> None:
    (one,) = cluster.workers("one")
    job_id = cluster.submit("slow")
    cluster.wait(lambda: cluster.client.job(job_id).measured >= 1)
    processes = cluster.tree(one)
    status, said = cluster.end(one, signal.SIGINT)
    assert status == 0 and "Traceback" not in said and gone(processes)
    assert cluster.client.job(job_id).state == JobState.QUEUED
    once = cluster.begin("once", "storm_worker.py", "worker", "--once")
    assert once.wait(30) == 0
    done = cluster.client.job(job_id)
    assert (done.state, done.attempt) == (JobState.SUCCEEDED, 2)
    assert cluster.begin("again", "storm_worker.py", "worker", "--once").wait(30) == 0, "nothing to do"


@pytest.mark.long
def test_jobs_whose_machine_left_wait_until_one_like_it_is_there(cluster: Cluster) -> None:
    (one,) = cluster.workers("one", DIETCODE_SERVE_LOST_AFTER_SECS="60")
    for process in cluster.tree(one):
        process.suspend()
    job_id = cluster.submit("left", target={"kind": "llvm", "mcpu": "alpha"})
    assert cluster.client.job(job_id).state == JobState.QUEUED
    one.kill()
    with cluster.database.write() as session:
        session.execute(delete(RunnerRow))
    job = cluster.reach(job_id, JobState.WAITING_FOR_RUNNER)
    assert job.device_id == "alpha-2" and job.waits_for is not None
    assert "mcpu alpha with 2 cores" in job.waits_for
    cluster.workers("other", mcpu="beta")
    (two,) = cluster.workers("two")
    assert cluster.reach(job_id, JobState.SUCCEEDED).device_id == "alpha-2"
    assert cluster.measured_by("two") and not cluster.measured_by("other")
    assert cluster.end(two)[0] == 0


@pytest.mark.long
def test_a_name_has_one_worker_and_a_data_folder_too(cluster: Cluster) -> None:
    cluster.workers("one")
    same = cluster.begin("other", "storm_worker.py", "worker", "--name", "one")
    beside = cluster.begin("one", "storm_worker.py", "worker")
    _, said = beside.communicate(timeout=20)
    assert beside.returncode == 1 and "another worker uses this data folder" in said
    _, said = same.communicate(timeout=30)
    assert same.returncode == 2 and "--name: given 'one'" in said and said.count("\n") == 1
