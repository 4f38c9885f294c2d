"""A real tracker and server of TVM's RPC on this machine, killed in the middle too."""

from __future__ import annotations

import dataclasses
import gc
import json
import math
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm.rpc
from made_libraries import CRASH, HANG, c_library, intervals, logging_library, timing_request
from ray_nodes import free_port, wait_until
from rpc_network import KEY, RpcNetwork
from small_libraries import SAFE_ERROR, spec_data

import dietcode
from dietcode.backends.cpu.measuring import MeasuringCpu
from dietcode.client import Client
from dietcode.errors import TargetError, TuningError
from dietcode.measure import rpc_worker
from dietcode.measure.calibration import reference_problem
from dietcode.measure.requests import CheckRequest
from dietcode.measure.rpc import RpcDevice
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.target.cpu import Host
from dietcode.workload.spec import TargetSpec

SESSION_SECS = 6.0
LOST_SECS = 3.0


@pytest.fixture(scope="module")
def network() -> Iterator[RpcNetwork]:
    made = RpcNetwork()
    yield made
    made.close()


@pytest.fixture
def engine(network: RpcNetwork) -> RpcDevice:
    """The tracker with one free server."""
    made = RpcDevice(network.tracker, KEY, wait_secs=LOST_SECS, session_secs=SESSION_SECS)
    if made.num_servers() == 0:
        network.serve(lambda: made.num_servers() == 1)
    return made


@pytest.fixture(autouse=True)
def own_environment() -> Iterator[None]:
    """Children inherit what `LocalChildren` sets."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def named() -> TargetSpec:
    return TargetSpec(kind="llvm", mcpu=Host.here().mcpu, num_cores=2)


def test_a_library_is_built_here_and_checked_and_timed_there(engine: RpcDevice, tmp_path: Path) -> None:
    device = engine.resolve(named())
    assert device.record["name"] == "board over RPC"
    with engine.children(device, print) as children:
        assert KEY in children.slot
        measuring = MeasuringCpu(children, reference_problem(), (), device.target, tmp_path)
        kernel = MicroKernel(4, Limits.of(device.target).lanes)
        (built,) = measuring.build([kernel], "one")
        points = [{"m": 5, "n": 70, "k": 2048}, {"m": 50, "n": 70, "k": 2048}]
        assert measuring.check(kernel, built, points[:1], math.inf) is None
        timed = measuring.time(kernel, built, points)
        assert timed.error is None
        assert 1e-7 < timed.secs[0] < timed.secs[1] < 1e-2


def test_wrong_numbers_are_noticed_here(engine: RpcDevice, tmp_path: Path) -> None:
    device = engine.resolve(named())
    problem = dataclasses.replace(reference_problem(), column_operand_constant=False)
    path, points = c_library(tmp_path, "idle", ""), ({"m": 5, "n": 70, "k": 2048},)
    request = CheckRequest(problem, str(path), Limits.of(device.target), points)
    with engine.children(device, print) as children:
        assert "wrong result: error nan" in str(children.check(request, 60.0).error)


@pytest.mark.long
def test_a_hanging_candidate_ends_with_its_session(engine: RpcDevice, tmp_path: Path) -> None:
    device = engine.resolve(named())
    good = timing_request(c_library(tmp_path, "good", ""), device.target)
    hang = timing_request(c_library(tmp_path, "hang", HANG), device.target)
    with engine.children(device, print) as children:
        assert children.time(good, 2.0).error is None
        assert "no answer within 1 s" in str(children.time(hang, 1.0).error)
        assert children.time(good, 2.0).error is None


def test_two_jobs_never_measure_at_once(engine: RpcDevice, tmp_path: Path) -> None:
    """The first has the device until it lets it go; the second waits for it, and says so."""
    log, said = tmp_path / "log", []
    device = engine.resolve(named())
    request = timing_request(logging_library(tmp_path, log), device.target)

    def job(name: str) -> None:
        with engine.children(device, lambda message: said.append((name, message))) as children:
            assert children.time(request, 5.0).error is None

    jobs = [threading.Thread(target=job, args=(name,)) for name in "ab"]
    for each in jobs:
        each.start()
    for each in jobs:
        each.join(60.0)
        assert not each.is_alive()
    first, second = sorted(intervals(log).values())
    assert first[1] < second[0]


@pytest.mark.long
def test_where_the_server_is_killed_and_started_again(
    network: RpcNetwork, engine: RpcDevice, tmp_path: Path
) -> None:
    device = engine.resolve(named())
    good = timing_request(c_library(tmp_path, "good", ""), device.target)
    hang = timing_request(c_library(tmp_path, "hang", HANG), device.target)
    with engine.children(device, print) as children:
        assert children.time(good, 2.0).error is None
        threading.Timer(1.0, network.kill_server).start()
        started = time.monotonic()
        assert children.time(hang, 5.0).error is not None
        assert time.monotonic() - started < 5.0, "it is not waited for"
        wait_until(lambda: engine.num_servers() == 0)
        with pytest.raises(TuningError, match=r"no server has been registered as board .* for 3 s"):
            children.time(good, 2.0)
        network.serve(lambda: engine.num_servers() == 1, TVM_NUM_THREADS="1")
        with pytest.raises(TuningError, match="start its server with TVM_NUM_THREADS=2"):
            children.time(good, 2.0)
        network.kill_server()
        wait_until(lambda: engine.num_servers() == 0)
        network.serve(lambda: engine.num_servers() == 1)
        assert children.time(good, 2.0).error is None


@pytest.mark.thorough
def test_a_candidate_that_crashes_the_server_s_session(
    network: RpcNetwork, engine: RpcDevice, tmp_path: Path
) -> None:
    """TVM's server serves nobody any more then, until it is started anew; what is measured by then fails."""
    device = engine.resolve(named())
    good = timing_request(c_library(tmp_path, "good", ""), device.target)
    crash = timing_request(c_library(tmp_path, "crash", CRASH), device.target)
    with engine.children(device, print) as children:
        assert children.time(good, 2.0).error is None
        assert children.time(crash, 10.0).error is not None
        wait_until(lambda: engine.num_servers() == 0)
        with pytest.raises(TuningError, match="no server has been registered as board"):
            children.time(good, 2.0)
        network.kill_server()
        network.serve(lambda: engine.num_servers() == 1)
        assert children.time(good, 2.0).error is None


@pytest.mark.long
def test_a_server_that_is_begun_anew_costs_the_crashed_candidate_alone(
    network: RpcNetwork, tmp_path: Path
) -> None:
    patient = RpcDevice(network.tracker, KEY, wait_secs=60.0, session_secs=60.0)
    network.kill_server()
    wait_until(lambda: patient.num_servers() == 0)
    network.serve_for_ever(lambda: patient.num_servers() == 1)
    device = patient.resolve(named())
    good = timing_request(c_library(tmp_path, "good", ""), device.target)
    crash = timing_request(c_library(tmp_path, "crash", CRASH), device.target)
    with patient.children(device, print) as children:
        found = [children.time(each, 10.0) for each in (good, crash, good, crash, good)]
    assert [each.error is None for each in found] == [True, False, True, False, True], found
    network.kill_server()


@pytest.mark.long
def test_a_whole_tuning_run(network: RpcNetwork, engine: RpcDevice, tmp_path: Path, inside: Any) -> None:
    data = spec_data(
        "tiny",
        shape_vars={"T": {"min": 1, "max": 2}},
        dims={"m": "4*T", "n": 32, "k": 24},
        budget={"trials": 4, "seconds": 400},
        target=named().to_json(),
    )
    spec, folder = tmp_path / "tiny.json", tmp_path / "tiny"
    spec.write_text(json.dumps(data))
    done = inside("tune", spec, "--rpc-tracker", network.tracker, "--rpc-key", KEY, "-o", folder, "--json")
    assert done.returncode == 0, done.stderr
    assert "MetaSchedule is not run over RPC; going on with tiles of the register file" in done.stderr
    assert "right on 2 instances" in done.stderr
    report = json.loads((folder / "report.json").read_text())
    assert report["device"]["id"] == engine.resolve(named()).record["id"]
    library = dietcode.load(folder)
    weights = np.random.default_rng(0).standard_normal((32, 24), dtype=np.float32)
    for t in (1, 2):
        x = np.random.default_rng(t).standard_normal((4 * t, 24), dtype=np.float32)
        expected = x.astype(np.float64) @ weights.T
        error = np.abs(library(X=x, W=library.pack(W=weights)) - expected).max()
        assert error <= SAFE_ERROR * np.abs(expected).max()


def test_the_device_says_what_it_is(network: RpcNetwork, engine: RpcDevice) -> None:
    (device,) = engine.devices(print)
    assert device.host is not None and engine.num_servers() == 1
    assert (device.host.mcpu, device.host.num_cores) == (Host.here().mcpu, 2)
    assert device.record == RpcDevice(network.tracker, KEY).resolve(named()).record, "as where it is named"
    assert engine.resolve(TargetSpec(kind="llvm")) == device
    more = engine.resolve(TargetSpec(kind="llvm", mcpu=Host.here().mcpu, num_cores=64))
    assert more.refusal is not None and "board behind" in more.refusal and "64 cores" in more.refusal
    assert device.host.features == Host.here().features
    engine.host = dataclasses.replace(device.host, mcpu="haswell")
    engine.children(device, print).__enter__().close()  # the name of a processor is for people
    engine.host = dataclasses.replace(device.host, features=("avx512fp16", *device.host.features[1:]))
    change = f"has {device.host.features[0]} and lacks avx512fp16, unlike before; start the worker anew"
    with pytest.raises(TuningError, match=change):
        engine.children(device, print).__enter__()


def test_a_device_of_no_use(engine: RpcDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    class Bare:
        """A session with TVM's runtime alone."""

        def get_function(self, name: str) -> Any:
            raise AttributeError(name)

    monkeypatch.setattr(rpc_worker, "_take", lambda request: Bare())
    with pytest.raises(ValueError, match="it has TVM without LLVM"):
        rpc_worker.describe_device({})
    told = {"mcpu": "cortex-a72", "triple": "riscv64-unknown-linux-gnu", "num_threads": 4}
    with pytest.raises(TuningError, match="board is riscv64, and this machine"):
        engine._host_of(told)
    for odd in (
        {"triple": "x\x1b[2J\n" * 100},
        {"num_threads": 1 << 62},
        {"num_threads": -1},
        {"mcpu": "x\x9b2J" * 1000},
    ):
        told = {"mcpu": Host.here().mcpu, "triple": f"{os.uname().machine}-linux", "num_threads": 2} | odd
        with pytest.raises((TuningError, TargetError)) as raised:
            engine._host_of(told)
        assert str(raised.value).isprintable() and len(str(raised.value)) < 500


@pytest.mark.parametrize(
    "answer",
    [
        struct.pack("<i", 1 << 30),
        struct.pack("<i", -1),
        struct.pack("<i", 6) + b"[0, 5]",
        struct.pack("<i", 20) + b'[0, {"x": "server"}]',
        struct.pack("<i", 100_000) + b"[" * 100_000,
    ],
    ids=["too long", "less than nothing", "no answer", "no servers", "too deep"],
)
def test_a_tracker_that_answers_anything(engine: RpcDevice, answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def speak() -> None:
            peer, _ = listening.accept()
            with peer:
                magic = peer.recv(4)
                peer.sendall(magic)
                peer.recv(1 << 16)
                peer.sendall(answer)

        speaker = threading.Thread(target=speak)
        speaker.start()
        engine.address = listening.getsockname()
        assert engine.num_servers() == 0
        speaker.join(60.0)


def test_what_the_spec_must_name(engine: RpcDevice) -> None:
    with pytest.raises(TargetError, match="over RPC the spec names the device's processor and cores"):
        engine.resolve(TargetSpec(kind="llvm"))
    one = engine.resolve(TargetSpec(kind="llvm", mcpu="skylake-avx512", num_cores=64))
    assert (one.target.mcpu, one.target.num_cores, one.refusal) == ("skylake-avx512", 64, None)


@pytest.mark.long
def test_a_server_takes_the_jobs_that_its_device_can_measure(
    network: RpcNetwork, engine: RpcDevice, tmp_path: Path, inside: Any
) -> None:
    """The device is another's at first: until it has answered, none is announced and no job is taken."""
    variables = {
        "DIETCODE_SERVE_ENGINE": "rpc",
        "DIETCODE_SERVE_RPC_TRACKER": network.tracker,
        "DIETCODE_SERVE_RPC_KEY": KEY,
    }
    tracker = tvm.rpc.connect_tracker(*engine.address)
    held = [tracker.request(KEY, session_timeout=120.0)]
    serve = [sys.executable, "-m", "dietcode", "serve", "--port", "0", "--data-dir", str(tmp_path / "data")]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(serve, env=os.environ | variables, stderr=log)

    def said() -> str:
        return (tmp_path / "log").read_text()

    def data(name: str, **target: Any) -> dict[str, Any]:
        sizes = {"shape_vars": {"T": {"min": 1, "max": 2}}, "dims": {"m": "4*T", "n": 32, "k": 24}}
        budget = {"trials": 4, "seconds": 400}
        made: dict[str, Any] = spec_data(name, budget=budget, target={"kind": "llvm"} | target, **sizes)
        return made

    try:
        wait_until(lambda: "serving http" in said())
        url = said().split("serving ")[1].split(",")[0]
        with Client(url) as client:
            wait_until(lambda: client.runners() != [])
            (runner,) = client.runners()
            other = client.submit(data("other", mcpu=Host.here().mcpu, num_cores=64)).id
            own = client.submit(data("own")).id
            assert (runner.engine, runner.devices) == ("rpc", [])
            assert "none yet" in inside("runners", "--server", url).stdout
            for waits in (client.job(job).waits_for for job in (own, other)):
                assert waits is not None and f"start the RPC server behind {runner.name}" in waits
            held.clear()
            gc.collect()
            wait_until(lambda: client.job(own).progress is not None, 120.0)
            (device,) = client.runners()[0].devices
            assert (device.name, device.slot) == ("board over RPC", engine.slot)
            assert client.job(own).device_id == device.id == engine.resolve(named()).record["id"]
            assert client.job(other).waits_for == (
                f"no runner can measure mcpu {Host.here().mcpu} with 64 cores; "
                "run `dietcode worker` on a machine that can"
            )
            client.cancel(own)
    finally:
        tracker.close()
        server.terminate()
        assert server.wait(30.0) == 0, said()


@pytest.mark.thorough
def test_a_tracker_that_is_not_there() -> None:
    started = time.monotonic()
    with pytest.raises(TuningError, match=r"the RPC tracker at 127\.0\.0\.1:\d+ cannot be reached"):
        RpcDevice(f"127.0.0.1:{free_port()}", KEY)
    assert time.monotonic() - started < 6.0
