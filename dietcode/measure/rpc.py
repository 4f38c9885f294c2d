"""A device behind TVM's RPC tracker as an engine: built here, uploaded, run and timed there.

TVM's RPC runs whatever anybody who reaches it sends, unencrypted: for trusted networks only.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from dietcode.errors import TargetError, TuningError
from dietcode.measure import rpc_worker
from dietcode.measure.child_process import ChildProcess
from dietcode.measure.children import Children
from dietcode.measure.cpu_worker import CpuWorker
from dietcode.measure.engine import Device, OnWait, check_reachable
from dietcode.measure.engine_spec import split_address
from dietcode.measure.local import LocalChildren
from dietcode.measure.requests import (
    BuildRequest,
    BuildResult,
    CheckRequest,
    CheckResult,
    TimeRequest,
    TimeResult,
)
from dietcode.measure.seed_search import NoSeedSearch, SeedSearch
from dietcode.runtime.cpu import available_cores
from dietcode.target.base import kind_of
from dietcode.target.cpu import Host, device_record, features_of, resolve_target
from dietcode.workload.spec import TargetSpec
from dietcode.workload.text import clip, one_line

WAIT_SECS = 120.0
SESSION_SECS = 120.0  # after which the server ends a session, whatever hangs in it
_ANSWER_SECS = 30.0
_POLL_SECS = 1.0
_MAX_SUMMARY_BYTES = 1 << 20  # of a tracker's answer
Request = TypeVar("Request")
Result = TypeVar("Result")
_NEW, _AGAIN = 1, 2  # priorities at the tracker: a job that has begun goes first


class RpcDevice:
    """`dietcode.measure.engine.Engine` for the devices that register under one key.

    Parameters
    ----------
    tracker : str
        ``HOST:PORT``.
    wait_secs : float
        How long a server may be away from the tracker.
    session_secs : float
        Longest session, longer than any call.
    host : Host, optional
        The machine behind the key, where `devices` has found it out.

    Raises
    ------
    TuningError
        Nothing answers at the tracker's address.
    """

    def __init__(
        self,
        tracker: str,
        key: str,
        wait_secs: float = WAIT_SECS,
        session_secs: float = SESSION_SECS,
        host: Host | None = None,
    ) -> None:
        self.address = split_address("the RPC tracker", tracker)
        self.tracker, self.key = tracker, key
        self.wait_secs, self.session_secs = wait_secs, session_secs
        self.slot, self._name = f"rpc/{tracker}/{key}", f"{key} over RPC"
        self.host = host
        check_reachable("the RPC tracker", tracker)

    def num_servers(self) -> int:
        """Return how many servers are registered under the key, busy ones included; 0 without a tracker."""
        from tvm.rpc import base

        try:
            with socket.create_connection(self.address, timeout=_ANSWER_SECS) as connection:
                connection.sendall(struct.pack("<i", base.RPC_TRACKER_MAGIC))
                base.recvall(connection, 4)
                base.sendjson(connection, [base.TrackerCode.SUMMARY])
                (size,) = struct.unpack("<i", base.recvall(connection, 4))
                if not 0 < size <= _MAX_SUMMARY_BYTES:
                    return 0
                _, summary = json.loads(base.recvall(connection, size))
            return [server["key"] for server in summary["server_info"]].count(f"server:{self.key}")
        except (OSError, ValueError, TypeError, LookupError, RecursionError):  # it is another kind of server
            return 0

    def devices(self, on_error: Callable[[str], None]) -> list[Device]:
        """Return the machine behind the key, which describes itself in a short session.

        Raises
        ------
        TuningError
            It is absent, busy for half a minute, or unusable.
        """
        self.host = self.host or self._describe()
        return [self.resolve(TargetSpec(kind="llvm"))]

    def resolve(self, spec: TargetSpec) -> Device:
        """Return the processor that a target names, or that of the machine behind the key where it is known.

        Raises
        ------
        TargetError
            The target is not a processor; or the machine is unknown, and the target names no processor
            or no number of cores.
        """
        kind = kind_of(spec)
        if kind != "llvm":
            raise TargetError(
                f"target.kind: given {kind}; over RPC only processors are measured: "
                "measure a GPU on its own machine or as a node of a Ray cluster (docs/engines.md)"
            )
        host = self.host
        if host is None and spec.kind == "llvm" and (spec.mcpu is None or spec.num_cores is None):
            raise TargetError(
                "target.mcpu: over RPC the spec names the device's processor and cores, as in "
                "{kind: llvm, mcpu: skylake-avx512, num_cores: 4}"
            )
        target = resolve_target(spec, host or self._unknown())
        lacks = None if host is None else host.refusal(target)
        refusal = lacks and f"the device {self.key} behind the RPC tracker {self.tracker} {lacks}"
        worker = CpuWorker(target.num_cores)
        record = device_record(target, host or self._unknown(), spec)
        return Device(target, record, worker, refusal, host, self.slot)

    def _unknown(self) -> Host:
        return Host(self._name, os.uname().machine, "", (), 1, 0, 0)

    def _describe(self) -> Host:
        """Return how the device describes itself; asked in a process that ends with a call that hangs."""
        if not self.num_servers():
            raise TuningError(
                f"no server is registered as {self.key} at the RPC tracker {self.tracker}; "
                "start one: python -m tvm.exec.rpc_server --tracker … --key …"
            )
        request = {
            "tracker": self.address,
            "key": self.key,
            "priority": _NEW,
            "session_secs": _ANSWER_SECS,
        }
        client = ChildProcess(rpc_worker.start, (), None)
        try:
            facts = client.run(rpc_worker.describe_device, request, _ANSWER_SECS, _refused)
        finally:
            client.close()
        if "error" in facts:
            raise TuningError(f"the RPC device {self.key} does not say what it is: {facts['error']}")
        return self._host_of(facts)

    def _host_of(self, facts: dict[str, Any]) -> Host:
        """Return the machine: its caches are a target's defaults."""
        machine, own = facts["triple"].partition("-")[0], os.uname().machine
        if machine != own:
            raise TuningError(
                f"the RPC device {self.key} is {one_line(machine, 40)}, and this machine {own}: "
                "nothing can be built for it"
            )
        try:
            named = TargetSpec(kind="llvm", mcpu=facts["mcpu"], num_cores=facts["num_threads"])
        except ValueError:
            given = f"{clip(facts['mcpu'])} with {clip(facts['num_threads'])} threads"
            raise TuningError(
                f"the RPC device {self.key} says that it is {given}; start its server anew"
            ) from None
        plain = resolve_target(named, self._unknown())
        return Host(
            self._name,
            machine,
            plain.mcpu,
            features_of(plain.mcpu, facts.get("features", {})),
            plain.num_cores,
            plain.l1_bytes,
            plain.l2_bytes,
        )

    @contextlib.contextmanager
    def children(self, device: Device, on_wait: OnWait) -> Iterator[Children]:
        """Open children; the tracker gives a device to one client at a time."""
        children = RpcChildren(self, device, on_wait)
        try:
            yield children
        finally:
            children.close()

    def close(self) -> None:
        """Do nothing: nothing is held."""


class RpcChildren:
    """`dietcode.measure.children.Children` for a device behind a tracker.

    Attributes
    ----------
    slot : str
        Tracker and key.
    """

    def __init__(self, engine: RpcDevice, device: Device, on_wait: OnWait) -> None:
        self._engine, self._device, self._on_wait = engine, device, on_wait
        self._builders = LocalChildren(device.worker, available_cores(), measures=False)
        self._client = ChildProcess(rpc_worker.start, (), None)
        self._open_until = 0.0
        self._priority = _NEW
        self.slot = engine.slot
        self.seeds: SeedSearch = NoSeedSearch("MetaSchedule is not run over RPC")
        try:
            self._open(0.0)
        except BaseException:
            self.close()
            raise

    def build(self, requests: Sequence[BuildRequest]) -> Iterator[BuildResult]:
        """As `Children.build`; on this machine."""
        return self._builders.build(requests)

    def time(self, request: TimeRequest, timeout_secs: float) -> TimeResult:
        """As `Children.time`; after an error another session is opened."""
        return self._run(rpc_worker.time, request, timeout_secs, TimeResult.failed)

    def check(self, request: CheckRequest, timeout_secs: float) -> CheckResult:
        """As `Children.check`; after an error another session is opened."""
        return self._run(rpc_worker.check, request, timeout_secs, CheckResult.failed)

    def _run(
        self,
        function: Callable[[Request], Result],
        request: Request,
        timeout_secs: float,
        failed: Callable[[str], Result],
    ) -> Result:
        self._open(timeout_secs)

        def lost(error: str) -> Result:
            self._open_until = 0.0
            return failed(error)

        return self._client.run(function, request, timeout_secs, lost)

    def _open(self, timeout_secs: float) -> None:
        """Open a session that outlasts the next call, unless one is open; waits for the device.

        Raises
        ------
        TuningError
            There has been no server for a while, or it cannot be used.
        """
        if time.monotonic() + timeout_secs < self._open_until:
            return
        engine = self._engine
        request = {
            "tracker": engine.address,
            "key": engine.key,
            "priority": self._priority,
            "session_secs": engine.session_secs,
            "num_threads": int(self._device.worker.environment["TVM_NUM_THREADS"]),
            "features": None if engine.host is None else list(engine.host.features),
        }
        seen = time.monotonic()
        said = False
        while True:
            asked = time.monotonic()
            if engine.num_servers():
                seen = asked
                error = self._client.run(rpc_worker.open_session, request, _ANSWER_SECS, _refused).get(
                    "error"
                )
                if error is None:
                    break
                if error.startswith("ValueError"):
                    raise TuningError(f"the RPC device {engine.key} cannot be used: {error}")
            elif asked - seen > engine.wait_secs:
                raise TuningError(
                    f"no server has been registered as {engine.key} at the RPC tracker {engine.tracker} for "
                    f"{engine.wait_secs:.0f} s; start one: python -m tvm.exec.rpc_server --tracker … --key …"
                )
            if not said:
                self._on_wait(f"waiting for {engine.key} at the RPC tracker {engine.tracker}")
                said = True
            time.sleep(_POLL_SECS)
        self._open_until = asked + engine.session_secs
        self._priority = _AGAIN

    def close(self) -> None:
        """Release the device and end all processes."""
        self._client.close()
        self._builders.close()


def _refused(error: str) -> dict[str, Any]:
    return {"error": error}
