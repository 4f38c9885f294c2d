"""Runners with a GPU, and without: who takes which job, what is measured and kept, what is refused.

There is no GPU: what it would answer and measure is invented here, and handed to the real engine.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_gpu import ARCH, NAME, device, gpu_spec, made_records
from needs import import_ray_with_token, needs_nvrtc

from benchmarks.fake_children import FakeChildren
from dietcode.backends.cuda.backend import CudaBackend
from dietcode.errors import ConflictError, RecordsError
from dietcode.measure import gpu as gpu_module
from dietcode.measure import gpu_device, opening
from dietcode.measure.cpu_device import CpuDevices
from dietcode.measure.device_kinds import DEVICE_KINDS
from dietcode.measure.engine_spec import EngineSpec
from dietcode.measure.gpu import Gpu
from dietcode.measure.local import LocalMachine
from dietcode.protocol import JobState
from dietcode.target.cpu import Host
from dietcode.target.cuda import CudaTarget
from dietcode.tuner import tune
from dietcode.workload.identity import workload_digest
from dietcode.workload.parse import spec_from_data
from dietcode_server.engine import placement, targets, worker
from dietcode_server.engine.announced_targets import AnnouncedTargets, with_device
from dietcode_server.engine.announcer import announced
from dietcode_server.engine.holding import HeldChildren
from dietcode_server.engine.keeper import SqlKeeper
from dietcode_server.engine.placement import Placement
from dietcode_server.engine.targets import Resolved, Targets
from dietcode_server.store import (
    architectures,
    device_headers,
    exchange,
    jobs,
    leases,
    runners,
    waiting,
    wire,
)
from dietcode_server.store.database import Database
from dietcode_server.store.runners import AnnouncedDevice
from dietcode_server.store.subjects import remember_device, utc_now

pytestmark = needs_nvrtc
HOST = Host("A test CPU", os.uname().machine, "haswell", ("avx2", "fma"), 2, 1 << 15, 1 << 20)
GPU = Gpu(
    index=0, name=NAME, num_sms=4, capability=90, l2_bytes=1 << 20, bus_id="none", target=CudaTarget(ARCH)
)
TARGET = {"kind": "cuda", "arch": ARCH}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(f"sqlite:///{tmp_path / 'dietcode.db'}")
    made.upgrade()
    yield made
    made.dispose()


@pytest.fixture
def has_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Gpu]]:
    """Whether this machine has one: what the driver would say, and what the child that asks it answers."""
    there = [GPU]

    def ask(question: bytes) -> list[Resolved | str]:
        return [targets._read(answer) for answer in targets.answers(json.loads(question))]

    for module in (gpu_module, gpu_device):
        monkeypatch.setattr(module, "list_gpus", lambda: list(there))
    monkeypatch.setattr(CpuDevices, "here", lambda _: [HOST])
    monkeypatch.setattr(targets, "_answers_of_child", ask)
    monkeypatch.setattr(placement, "_TAKE_UP_SECS", 0.0)
    yield there


def submitted(database: Database, name: str = "on-gpu", **options: Any) -> str:
    """A job as the API makes it."""
    force, measure = options.get("force", False), options.get("measure", True)
    spec = spec_from_data(gpu_spec(name, **options.get("changes", {})))
    found = AnnouncedTargets(database, measures_here=True).resolve(spec)
    with database.write() as session:
        found = with_device(session, workload_digest(spec), found, force=force, measure=measure)
        row, _ = jobs.submit(
            session,
            spec=spec,
            target=found.target,
            device=found.device,
            runnable=found.runnable,
            force=force,
            measure=measure,
            idempotency_key=None,
        )
        return row.id


def announce(database: Database, devices: list[AnnouncedDevice], name: str = "mine") -> None:
    with database.write() as session:
        runners.announce(
            session,
            name=name,
            process=f"{name}/1/1.0",
            engine="local",
            version="1",
            devices=devices,
            started_at=utc_now(),
            lease_secs=600,
        )


def told(database: Database, job_id: str) -> Any:
    with database.read() as session:
        return wire.to_wire(session, jobs.get(session, job_id))


def imported(database: Database) -> exchange.Imported:
    with database.write() as session:
        return exchange.import_records(session, made_records(), spec_from_data(gpu_spec()))


def test_a_runner_announces_its_gpu_beside_its_cpu(has_gpu: list[Gpu]) -> None:
    found = announced(Targets(), "rack1")
    assert [(one.name, one.target.get("arch")) for one in found] == [
        (HOST.name, None),
        (NAME, "sm_90"),
        (NAME, ARCH),
    ]
    assert found[2].target == TARGET | {"num_sms": 4} and found[2].id == GPU.id
    assert {one.slot for one in found} == {"rack1"} and all(one.builds_for_gpus for one in found)


def test_of_two_gpus_of_one_capability_the_first_is_announced(has_gpu: list[Gpu]) -> None:
    has_gpu.append(replace(GPU, index=1, name="another GPU", bus_id="elsewhere"))
    assert [one.name for one in announced(Targets(), "rack1")] == [HOST.name, NAME, NAME]


@pytest.mark.parametrize("gone", ["no driver", "no compiler", "emulated"])
def test_a_gpu_that_cannot_be_used_is_not_announced(
    has_gpu: list[Gpu], gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if gone == "no driver":
        has_gpu.clear()
    elif gone == "emulated":
        has_gpu[:] = [replace(GPU, name="emulated GPU")]
    else:
        for module in (targets, gpu_device):
            monkeypatch.setattr(module, "missing_packages", lambda: ("cuda-bindings",))
    found = announced(Targets(), "rack1")
    assert [one.name for one in found] == [HOST.name]
    assert found[0].builds_for_gpus == (gone != "no compiler")


def test_a_driver_that_is_too_old_leaves_the_cpu(
    has_gpu: list[Gpu], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> None:
        raise targets.TargetError("the NVIDIA driver is for CUDA 11.8")

    monkeypatch.setattr(gpu_device, "list_gpus", refuse)
    assert [one.name for one in announced(Targets(), "rack1")] == [HOST.name]
    assert "is not measured on: the NVIDIA driver is for CUDA 11.8" in caplog.text


def test_jobs_go_to_the_runner_whose_gpu_it_is(has_gpu: list[Gpu], database: Database) -> None:
    early = submitted(database)
    assert told(database, early).state == JobState.WAITING_FOR_RUNNER
    here, other = Placement(Targets()), Targets()
    assert here.take_up(database) == [early]
    assert (told(database, early).device, told(database, early).state) == (NAME, JobState.QUEUED)
    announce(database, announced(Targets(), "rack1"))
    late = submitted(database, "late", changes={"dims": {"m": "T", "n": 64, "k": 48}})
    assert (told(database, late).device_id, told(database, late).state) == (GPU.id, JobState.QUEUED)
    has_gpu.clear()
    without = Placement(other)
    assert without.next_job(database) is None and without.here() == []
    has_gpu.append(GPU)
    found = here.next_job(database)
    assert found is not None and found.id == early and here.here() == [GPU.id]
    with database.write() as session:
        assert leases.reserve(session, "me", 60, of=without.here(), builds=True) is None
        assert leases.reserve(session, "me", 60, of=here.here(), builds=False) == early


def test_a_gpu_that_vanishes_takes_no_job_again_until_it_is_back(
    has_gpu: list[Gpu], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Targets()
    here = Placement(there)
    announce(database, announced(there, "rack1"))
    job = submitted(database)
    found = here.next_job(database)
    assert found is not None and found.id == job
    has_gpu.clear()
    worker.work(database, job, Path("unused"), 60.0, 600.0, None)  # which finds no GPU
    assert told(database, job).state == JobState.WAITING_FOR_RUNNER
    here.give_back(job)
    assert here.num_looks == 1 and [one.name for one in announced(there, "rack1")] == [HOST.name]
    assert here.take_up(database) == [] and here.next_job(database) is None
    has_gpu.append(GPU)
    assert here.take_up(database) == [], "it is left alone for a while"
    now = time.monotonic()
    monkeypatch.setattr(placement.time, "monotonic", lambda: now + 61.0)
    assert here.next_job(database) is None and here.num_looks == 2
    assert here.take_up(database) == [job] and told(database, job).device == NAME


def test_a_gpu_of_another_architecture_is_none(has_gpu: list[Gpu], database: Database) -> None:
    announce(database, announced(Targets(), "rack1"))
    job = submitted(database, changes={"arch": "sm_80"})
    assert told(database, job).waits_for.startswith("no runner has a GPU of sm_80;")
    assert Placement(Targets()).take_up(database) == []
    older = submitted(database, "older", changes={"arch": "sm_90"})
    assert told(database, older).state == JobState.QUEUED and told(database, older).device == NAME
    assert told(database, older).device_id != GPU.id, "what is measured for another target is another device"


def test_a_job_with_records_goes_to_whoever_builds(
    has_gpu: list[Gpu], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_gpu.clear()
    job = submitted(database)
    forced = submitted(database, force=True)
    assert imported(database).queued == []
    announce(database, announced(Targets(), "rack1"))
    here = Placement(Targets())
    assert here.take_up(database) == [job], "a forced one measures"
    assert told(database, job).device is None and told(database, forced).waits_for.endswith("with one")
    with monkeypatch.context() as patch:
        patch.setattr(targets, "missing_packages", lambda: ("cuda-bindings",))
        lacking = Placement(Targets())
        assert lacking.take_up(database) == [] and lacking.next_job(database) is None
    found = here.next_job(database)
    assert found is not None and found.id == job
    with database.write() as session:
        assert leases.reserve(session, "me", 60, of=[], builds=False) is None
        assert leases.reserve(session, "me", 60, of=[], builds=True) == job
        leases.release(session, job, "me")
        runners.withdraw(session, "mine/1/1.0")
    with database.write() as session:
        assert waiting.set_aside(session, -1.0) == [job], "nobody is there any more who builds"
    assert told(database, job).waits_for.startswith(f"no runner can build for {ARCH};")


def test_partial_records_of_a_job_that_goes_on_are_not_built_from(
    has_gpu: list[Gpu], database: Database, tmp_path: Path
) -> None:
    announce(database, announced(Targets(), "rack1"))
    first = submitted(database)
    with database.write() as session:
        assert jobs.claim(session, first, "me", lease_secs=600)
        row = jobs.get(session, first)
        session.expunge(row)
    store = SqlKeeper(database, row, tmp_path).open(row.workload, GPU.record)
    for line in list(made_records().lines())[1:3]:
        store.append(line)
    assert told(database, first).measured == 1
    other = submitted(database, "other-name")
    assert told(database, other).device_id == GPU.id, "it is measured, too"
    taken = submitted(database, "of-what-there-is", measure=False)
    assert told(database, taken).device_id is None and told(database, taken).state == JobState.QUEUED
    again = SqlKeeper(database, row, tmp_path).open(row.workload, GPU.record)
    assert again.records == store.records and len(again.records.measurements) == 1
    imported(database)
    with database.read() as session:
        assert len(exchange.export_records(session, row.workload, "f00d")) == 6


def test_other_devices_do_not_hide_who_measured(database: Database, has_gpu: list[Gpu]) -> None:
    submitted(database)
    imported(database)
    workload, (_, _, target) = made_records().workload, device_headers.device_row(device())
    with database.write() as session:
        for number in range(101):
            remember_device(session, f"{number:04}", "another GPU", target, utc_now())
    with database.read() as session:
        found = architectures.measured_on(session, workload, target)
        assert found is not None and found.id == "f00d"


def test_what_is_known_of_a_workload_is_bounded(
    database: Database, has_gpu: list[Gpu], monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted(database)
    monkeypatch.setattr(exchange, "MAX_KERNELS", 3)
    with pytest.raises(ConflictError, match="4 micro-kernels of one workload on one GPU; allowed: 3"):
        imported(database)
    monkeypatch.setattr(exchange, "MAX_KERNELS", 4)
    assert imported(database).num_known == imported(database).num_known == 4


def test_what_no_device_measured_is_not_kept(database: Database, has_gpu: list[Gpu], tmp_path: Path) -> None:
    job = submitted(database)
    with database.read() as session:
        row = jobs.get(session, job)
        session.expunge(row)
    with pytest.raises(RecordsError, match="synthetic"):
        SqlKeeper(database, row, tmp_path).open(row.workload, device(synthetic=True))
    store = SqlKeeper(database, row, tmp_path).open(row.workload, device())
    with pytest.raises(RecordsError, match="rows"):
        store.append({**list(made_records().lines())[2], "rows": "many"})
    assert not store.records.measurements


@pytest.fixture
def measures(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int | None], None]]:
    """Stand in for what runs on the GPU; says after how many lines it breaks."""
    most: list[int | None] = [None]

    def measure(task: Any, backend: Any, device: Any, keeper: Any, children: Any, *_: Any) -> Any:
        assert isinstance(children, HeldChildren)
        store = keeper.open(task.digest, device.record)
        known = {one.name for one in store.records.measurements}
        for number, line in enumerate(list(made_records().lines())[1:]):
            if number == most[0]:
                raise RuntimeError("the GPU fell off the bus")
            if line["kind"] == "calibration" or line["rows"] not in {int(n.split("x")[0]) for n in known}:
                store.append(line)
        return store.records, len(store.records.measurements) - len(known)

    monkeypatch.setattr(tune, "explore", measure)
    monkeypatch.setattr(tune, "verify", lambda *_: None)
    monkeypatch.setattr(LocalMachine, "children", lambda *_: contextlib.nullcontext(FakeChildren()))
    monkeypatch.setattr(CudaBackend, "archs", (ARCH,))

    def after(lines: int | None) -> None:
        most[0] = lines

    yield after


def test_a_job_is_measured_kept_and_published(
    has_gpu: list[Gpu], measures: Callable[[int | None], None], database: Database, tmp_path: Path
) -> None:
    def work(job_id: str) -> Any:
        worker.work(database, job_id, tmp_path, 60.0, 600.0, "rack1")
        return told(database, job_id)

    announce(database, announced(Targets(), "rack1"))
    job = submitted(database)
    measures(3)
    broken = work(job)
    assert broken.state == JobState.FAILED and "fell off the bus" in broken.error and broken.measured == 2
    measures(None)
    with database.write() as session:
        jobs.resume(session, job, runnable=True, device=(GPU.id, NAME, TARGET | {"num_sms": 4}))
    done = work(job)
    assert done.state == JobState.SUCCEEDED, done.error
    assert (done.measured, done.device_id, done.standing) == (4, GPU.id, f"measured on {NAME}")
    has_gpu.clear()
    second = submitted(database, "same-workload")
    assert told(database, second).device_id is None, "it is built from what the first one measured"
    moved = submitted(database, "moved", force=True)
    assert told(database, moved).device_id == GPU.id
    assert work(moved).state == JobState.WAITING_FOR_RUNNER, "its GPU is not here"
    has_gpu.append(replace(GPU, name="emulated GPU"))
    fake = has_gpu[0]
    odd = submitted(database, "emulated", force=True)
    with database.write() as session:
        remember_device(session, fake.id, fake.name, TARGET | {"num_sms": 4}, utc_now())
        jobs.get(session, odd).device_id = fake.id
    refused = work(odd)
    assert refused.state == JobState.FAILED and "synthetic" in refused.error


def test_a_ray_cluster_that_announces_a_gpu_takes_its_jobs(
    has_gpu: list[Gpu],
    measures: Callable[[int | None], None],
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    import_ray_with_token(monkeypatch)
    from dietcode.measure.ray_cluster import RayCluster
    from dietcode.measure.ray_nodes import RayNodes, slot_of

    there = {slot_of(DEVICE_KINDS["cuda"], GPU), slot_of(DEVICE_KINDS["llvm"], HOST)}
    cluster, engine = "10.0.0.5:6379", EngineSpec("ray", "10.0.0.5:6379")
    has_gpu.clear()  # the machine that sends it there has none
    monkeypatch.setattr(RayCluster, "__init__", lambda self, address: RayNodes.__init__(self, address, 0.0))
    monkeypatch.setattr(RayCluster, "resources", lambda _: there)
    monkeypatch.setattr(RayCluster, "children", lambda *_: contextlib.nullcontext(FakeChildren()))
    monkeypatch.setattr(RayCluster, "close", lambda _: None)
    monkeypatch.setitem(opening._ENGINES, "ray", lambda spec: RayCluster(cluster))
    monkeypatch.setattr(placement, "_KNOWN_SECS", -1.0)
    found = announced(Targets(engine), "own")
    assert [(one.name, one.target.get("arch")) for one in found] == [
        (HOST.name, None),
        (NAME, "sm_90"),
        (NAME, ARCH),
    ]
    assert {one.slot for one in found} == there
    job = submitted(database)
    here = Placement(Targets(engine))
    assert here.take_up(database) == [job] and told(database, job).device_id == GPU.id
    queued = here.next_job(database)
    assert queued is not None and queued.id == job
    worker.work(database, job, tmp_path, 60.0, 600.0, None, engine)
    done = told(database, job)
    assert (done.state, done.measured, done.device_id) == (JobState.SUCCEEDED, 4, GPU.id), done.error
    moved = submitted(database, "moved", force=True)
    announce(database, found)
    with database.write() as session:
        jobs.resume(session, moved, runnable=True, device=found[2].row)
    there.clear()
    worker.work(database, moved, tmp_path, 60.0, 600.0, None, engine)
    assert told(database, moved).state == JobState.WAITING_FOR_RUNNER, "the cluster's GPU is gone"
