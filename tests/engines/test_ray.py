"""A real Ray cluster of several nodes on this machine, with its token: what is lost, and what is not."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from child_processes import gone, is_child
from made_libraries import CRASH, HANG, SLEEP, c_library, timing_request
from needs import of_extra
from ray_nodes import Node, descendants, environment, free_port, wait_until
from small_libraries import ROOT, SAFE_ERROR, error, spec_data

import dietcode
from dietcode.backends.cpu.measuring import MeasuringCpu
from dietcode.errors import RequestError, TargetError, TuningError
from dietcode.lean import without_torch
from dietcode.measure.calibration import reference_problem
from dietcode.measure.device_kinds import DEVICE_KINDS
from dietcode.measure.engine import Device
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.target.cpu import CpuTarget, Host
from dietcode.workload.spec import TargetSpec

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason=of_extra("ray"))

ANY = TargetSpec(kind="llvm")
CPUS = DEVICE_KINDS["llvm"]
LOST_SECS = 4.0
HERE = Path(__file__).parent


class Cluster:
    """A head that builds, another that builds, and a machine that measures."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.nodes = [Node(folder, "--head", "--address", self.address, "--builds", "1")]
        self.nodes[0].wait()
        self.builder = self.join("--builds", "1")
        self.measurer = self.join("--measures")

    def join(self, *options: str) -> Node:
        self.nodes.append(Node(self.folder, "--address", self.address, *options))
        self.nodes[-1].wait()
        return self.nodes[-1]

    def close(self) -> None:
        for node in reversed(self.nodes):
            node.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="rt", dir="/tmp"))  # short: the paths of sockets are
    made = Cluster(folder)
    yield made
    made.close()


@pytest.fixture(scope="module")
def engine(cluster: Cluster) -> Iterator[Any]:
    """This process as a driver."""
    before = dict(os.environ)
    os.environ.update(environment(cluster.folder))
    from dietcode.measure.ray_cluster import RayCluster

    made = RayCluster(cluster.address, wait_secs=LOST_SECS)
    wait_until(lambda: bool(made.slots(CPUS)) and made.num_builders() == 2)
    yield made
    made.close()
    os.environ.clear()
    os.environ.update(before)


def is_free(place: str) -> bool:
    import ray

    return bool(ray.available_resources().get(place, 0) >= 1)


def driver(cluster: Cluster, library: Path, calls: int) -> subprocess.Popen[str]:
    command = [sys.executable, str(HERE / "ray_driver.py"), cluster.address, str(library), str(calls)]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=without_torch(environment(cluster.folder) | {"PYTHONPATH": paths}),
        start_new_session=True,
    )


def tiles(device: Device, num: int) -> list[MicroKernel]:
    assert isinstance(device.target, CpuTarget)
    lanes = Limits.of(device.target).lanes
    return [MicroKernel(1 + i, lanes * 2) for i in range(num)]


def test_builds_go_to_every_node_and_measurements_to_one(engine: Any, tmp_path: Path) -> None:
    device = engine.resolve(ANY)
    with engine.children(device, print) as children:
        measuring = MeasuringCpu(children, reference_problem(), (), device.target, tmp_path)
        kernels, points = tiles(device, 6), [{"m": 5, "n": 70, "k": 2048}]
        requests = [measuring.build_request([kernel], kernel.name) for kernel in kernels]
        results = list(children.build(requests))
        assert [result.path for result in results] == [r.path for r in requests], results
        assert len({result.node for result in results}) == 2
        assert measuring.check(kernels[0], results[0], points, math.inf) is None
        timed = measuring.time(kernels[0], results[0], points)
        assert timed.error is None
        assert 1e-7 < timed.secs[0] < 1e-2
        assert not is_free(device.slot)
    wait_until(lambda: is_free(device.slot), 5.0)


def test_a_bad_candidate_costs_itself_alone(engine: Any, tmp_path: Path) -> None:
    device = engine.resolve(ANY)
    good = timing_request(c_library(tmp_path, "good", ""), device.target)
    with engine.children(device, print) as children:
        assert children.time(good, 60.0).error is None
        crash = timing_request(c_library(tmp_path, "crash", CRASH), device.target)
        assert "ChildProcessError" in str(children.time(crash, 60.0).error)
        hang = timing_request(c_library(tmp_path, "hang", HANG), device.target)
        assert "no answer within 1 s" in str(children.time(hang, 1.0).error)
        assert children.time(good, 60.0).error is None


@pytest.mark.long
def test_two_jobs_never_measure_at_once(cluster: Cluster, engine: Any, tmp_path: Path) -> None:
    library, held = c_library(tmp_path, "sleep", SLEEP), []
    drivers = [driver(cluster, library, 5) for _ in range(2)]
    for process in drivers:
        out, _ = process.communicate(timeout=90.0)
        assert process.returncode == 0, out
        assert out.count("secs") == 5 and "error='" not in out, out
        held.append([float(re.findall(rf"^{word} (.*)$", out, re.M)[0]) for word in ("from", "to")])
    first, second = sorted(held)
    assert first[1] < second[0]


@pytest.mark.long
def test_a_killed_driver_leaves_nothing(cluster: Cluster, engine: Any, tmp_path: Path) -> None:
    device = engine.resolve(ANY)
    process = driver(cluster, c_library(tmp_path, "hang", HANG), 1)
    assert process.stdout is not None
    assert "holds" in process.stdout.readline()
    wait_until(lambda: any(p.cpu_times().user > 3 for p in measuring(cluster)), 60.0)
    held = {above for p in measuring(cluster) for above in p.parents()[:2]}  # what forked it, and the actor
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    wait_until(lambda: not measuring(cluster), 20.0)
    wait_until(lambda: is_free(device.slot), 20.0)
    assert gone([*held])


def measuring(cluster: Cluster) -> list[Any]:
    """Child processes of the job that is held there."""
    return [process for process in descendants(cluster.measurer.process.pid) if is_child(process)]


@pytest.mark.long
def test_builds_of_a_lost_node_are_made_elsewhere(cluster: Cluster, engine: Any, tmp_path: Path) -> None:
    device = engine.resolve(ANY)
    with engine.children(device, print) as children:
        measuring = MeasuringCpu(children, reference_problem(), (), device.target, tmp_path)
        builds = children.build([measuring.build_request([k], k.name) for k in tiles(device, 8)])
        results = [next(builds)]
        cluster.builder.kill()
        results += list(builds)
    assert all(result.error is None for result in results), results
    wait_until(lambda: engine.num_builders() == 1)
    cluster.builder = cluster.join("--builds", "1")


@pytest.mark.long
def test_where_the_machine_that_measures_is_lost(cluster: Cluster, engine: Any, tmp_path: Path) -> None:
    device = engine.resolve(ANY)
    good = timing_request(c_library(tmp_path, "good", ""), device.target)
    hang = timing_request(c_library(tmp_path, "hang", HANG), device.target)
    with engine.children(device, print) as children:
        threading.Timer(1.0, cluster.measurer.kill).start()
        started = time.monotonic()
        assert "was lost" in str(children.time(hang, 60.0).error)
        assert time.monotonic() - started < 30.0
        with pytest.raises(TuningError, match=r"no machine of the Ray cluster at .* for 4 s"):
            children.time(good, 60.0)
        cluster.measurer = cluster.join("--measures")
        wait_until(lambda: device.slot in engine.slots(CPUS))
        assert children.time(good, 60.0).error is None


@pytest.mark.long
def test_a_job_of_a_server_is_measured_on_the_cluster(cluster: Cluster, engine: Any, tmp_path: Path) -> None:
    data = spec_data(
        "tiny",
        shape_vars={"T": {"min": 1, "max": 2}},
        dims={"m": "4*T", "n": 32, "k": 24},
        budget={"trials": 4, "seconds": 400},
    )
    spec, folder = tmp_path / "tiny.json", tmp_path / "tiny"
    spec.write_text(json.dumps(data))
    variables = environment(cluster.folder) | {
        "DIETCODE_SERVE_ENGINE": "ray",
        "DIETCODE_SERVE_RAY_ADDRESS": cluster.address,
        "DIETCODE_CACHE": str(tmp_path / "cache"),
    }
    serve = [sys.executable, "-m", "dietcode", "serve", "--port", "0", "--data-dir", str(tmp_path / "data")]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(serve, env=variables, cwd=ROOT, stderr=log)

    def said() -> str:
        return (tmp_path / "log").read_text()

    def command(*arguments: object) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "dietcode", *map(str, arguments)],
            env=variables,
            cwd=tmp_path,  # where `pull` writes its lock file
            capture_output=True,
            text=True,
            timeout=250.0,
            check=False,
        )
        assert done.returncode == 0, (done.stdout, done.stderr, said())
        return done.stdout

    try:
        wait_until(lambda: "serving http" in said(), 60.0)
        variables["DIETCODE_SERVER"] = said().split("serving ")[1].split(",")[0]
        wait_until(lambda: json.loads(command("runners", "--json")) != [], 90.0)
        (runner,) = json.loads(command("runners", "--json"))
        device = engine.resolve(ANY).record
        assert runner["engine"] == "ray" and [d["id"] for d in runner["devices"]] == [device["id"]]
        job = command("submit", spec, "--wait").split()[-1]
        shown = json.loads(command("show", job, "--json"))
        assert (shown["state"], shown["device_id"]) == ("succeeded", device["id"])
        command("pull", "tiny", "-o", folder)
    finally:
        server.terminate()
        assert server.wait(30.0) == 0, said()
    assert json.loads((folder / "report.json").read_text())["seed"]["trials"] >= 1, (
        "MetaSchedule ran there too"
    )
    library = dietcode.load(folder)
    weights = np.random.default_rng(0).standard_normal((32, 24), dtype=np.float32)
    for t in (1, 2):
        x = np.random.default_rng(t).standard_normal((4 * t, 24), dtype=np.float32)
        expected = x.astype(np.float64) @ weights.T
        assert error(library(X=x, W=library.pack(W=weights)), expected) <= SAFE_ERROR


@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"RAY_AUTH_MODE": "disabled"}, "RAY_AUTH_MODE: given 'disabled'"),
        ({"RAY_AUTH_TOKEN": "f" * 32}, "does not take this machine"),
    ],
)
def test_without_the_token_there_is_no_way_in(
    changes: dict[str, str], message: str, cluster: Cluster, engine: Any, tmp_path: Path
) -> None:
    spec = tmp_path / "tiny.json"
    spec.write_text(json.dumps(spec_data("tiny")))
    done = subprocess.run(
        [sys.executable, "-m", "dietcode", "tune", spec, "--ray", cluster.address, "-o", tmp_path / "out"],
        env=environment(cluster.folder) | changes,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100.0,
        check=False,
    )
    assert done.returncode in {1, 2}
    assert message in done.stderr
    assert done.stderr.splitlines()[-1].startswith("dietcode: ")


def test_an_address_where_nothing_listens(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from dietcode.measure.ray_cluster import RayCluster

    started = time.monotonic()
    with pytest.raises(TuningError, match=r"the Ray cluster at 127\.0\.0\.1:\d+ cannot be reached"):
        RayCluster(f"127.0.0.1:{free_port()}")
    assert time.monotonic() - started < 6.0
    monkeypatch.delenv("RAY_AUTH_MODE")
    with pytest.raises(RequestError, match="set RAY_AUTH_MODE=token"):
        RayCluster("127.0.0.1:1")


def test_the_device_is_the_node_s(engine: Any) -> None:
    (slot, host), *others = engine.slots(CPUS).items()
    assert not others
    (device,) = engine.devices(print)
    assert (device.slot, device.host, device.refusal) == (slot, host, None)
    assert device.record["name"] == host.name
    more = engine.resolve(TargetSpec(kind="llvm", num_cores=host.num_cores + 1))
    assert more.refusal is not None and "cores" in more.refusal
    with pytest.raises(TargetError):
        engine.resolve(TargetSpec(kind="cuda", arch="sm_90"))


@pytest.mark.long
def test_the_command_that_starts_a_node(inside: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from dietcode.measure.ray_nodes import described_by

    def command(*options: str) -> list[str]:
        done = inside("ray-node", "--address", "10.0.0.5:6379", "--dry-run", *options)
        assert done.returncode == 0, done.stderr
        started: list[str] = json.loads(done.stdout)
        return started

    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    head = command("--head", "--builds", "0")
    assert {"--head", "--port=6379", "--include-dashboard=false", "--num-cpus=0"} <= set(head)
    (resources,) = [o.partition("=")[2] for o in command("--measures") if o.startswith("--resources=")]
    slots = json.loads(resources)
    assert [host for slot in slots if (host := described_by(slot, CPUS))] == [Host.here()]
    assert set(slots.values()) == {1}
    assert "would disturb it" in inside("ray-node", "--address", "h:1", "--measures", "--builds", "1").stderr
    assert "--address: missing" in inside("ray-node", "--head").stderr
    monkeypatch.delenv("RAY_AUTH_MODE")
    assert "set RAY_AUTH_MODE=token" in inside("ray-node", "--address", "h:1").stderr
