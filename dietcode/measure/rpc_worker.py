"""What runs in the process that talks to TVM's RPC; it runs no generated code, and ends when a call hangs.

Libraries are uploaded, run and timed on the device; they are checked here, on numbers that come back.
"""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import numpy as np

from dietcode.lifeline import die_with_parent
from dietcode.measure import cpu_worker
from dietcode.measure.requests import CheckRequest, CheckResult, TimeRequest, TimeResult

_BIG_CORES = 1  # TVM's name of the affinity mode that uses the fastest cores first
_BATCH_MSECS = 1  # the shortest that TVM takes
_PROCESSOR, _TRIPLE = "target.llvm_get_system_cpu", "target.llvm_get_system_triple"
_FEATURES = "tvm.codegen.llvm.GetHostCPUFeatures"


class RpcSession:
    """A device of the tracker, while it is held."""

    def __init__(self, remote: Any) -> None:
        self.remote = remote
        self._modules: dict[str, Any] = {}
        self._tensors: dict[tuple[str, tuple[int, ...]], Any] = {}

    def load(self, path: str) -> Any:
        """Return a library, uploaded and loaded unless it was before."""
        if path not in self._modules:
            name = f"{len(self._modules)}-{Path(path).name}"
            self.remote.upload(path, target=name)
            self._modules[path] = self.remote.load_module(name)
            self.remote.remove(name)
        return self._modules[path]

    def forget(self, path: str) -> None:
        """Unload a library."""
        self._modules.pop(path, None)

    def tensor(self, array: Any) -> Any:
        """Return an array, copied to the device."""
        import tvm

        return tvm.runtime.tensor(array, device=self.remote.cpu())

    def arguments(self, problem: Any, extents: dict[str, int], lanes: int) -> list[Any]:
        """Return the arguments of ``run``; those of the last call with the same shape stay on the device."""
        rng = np.random.default_rng(0)
        kept: dict[tuple[str, tuple[int, ...]], Any] = {}
        for name, shape in cpu_worker.layouts(problem, extents, lanes):
            key = (f"{name} of {problem}", tuple(shape))
            kept[key] = self._tensors.get(key)
            if kept[key] is None:
                kept[key] = self.tensor(cpu_worker.random_array(problem, name, shape, extents, rng))
        self._tensors = kept
        return list(kept.values())


_SESSIONS: list[RpcSession] = []


def start() -> None:
    """Have the process end with its parent."""
    die_with_parent()


def open_session(request: dict[str, Any]) -> dict[str, Any]:
    """Wait for the device and open a session; one that was open is closed first.

    Raises
    ------
    ValueError
        The thread pool of the device cannot have so many threads, or its CPU has other features than before.
    """
    _SESSIONS.clear()
    gc.collect()  # a session ends with the last thing on the device
    remote = _take(request)
    if request["features"] is not None and (change := _change(_described(remote), request["features"])):
        raise ValueError(f"its CPU {change}, unlike before; start the worker anew, which asks it again")
    wanted = request["num_threads"]
    remote.get_function("runtime.config_threadpool")(_BIG_CORES, wanted)
    found = int(remote.get_function("runtime.NumThreads")())
    if found != wanted:
        raise ValueError(
            f"it has {found} threads, not {wanted}; start its server with TVM_NUM_THREADS={wanted}"
        )
    _SESSIONS.append(RpcSession(remote))
    return {"num_threads": found}


def describe_device(request: dict[str, Any]) -> dict[str, Any]:
    """Wait for the device and return its ``mcpu``, ``features``, ``triple`` and ``num_threads``.

    The session ends with this process.

    Raises
    ------
    ValueError
        It has TVM's runtime without LLVM, which cannot name its processor.
    """
    return _described(_take(request))


def _described(remote: Any) -> dict[str, Any]:
    try:
        processor, triple, features = (remote.get_function(name) for name in (_PROCESSOR, _TRIPLE, _FEATURES))
    except AttributeError as error:
        raise ValueError("it has TVM without LLVM, which does not know its processor") from error
    graph = json.loads(str(remote.get_function("ffi.ToJSONGraphString")(features(), None)))
    return {
        "mcpu": str(processor()),
        "features": _flags_of(graph["nodes"], graph["root_index"]),
        "triple": str(triple()),
        "num_threads": int(remote.get_function("runtime.NumThreads")()),
    }


def _flags_of(nodes: list[dict[str, Any]], root: int) -> dict[str, bool]:
    """Return a map from texts to numbers that tvm-ffi wrote as JSON, keys and values by turns."""
    items = [nodes[index] for index in nodes[root]["data"]]
    flags = zip(items[::2], items[1::2], strict=True)
    return {key["data"]: bool(nodes[flag["data"]["value"]]["data"]) for key, flag in flags}


def _change(described: dict[str, Any], features: list[str]) -> str:
    """Return what a CPU has beyond some features, or lacks of them; nothing where it has just these."""
    from dietcode.target.cpu import features_of

    found = set(features_of(described["mcpu"], described["features"]))
    new, gone = sorted(found.difference(features)), sorted(set(features).difference(found))
    return " and ".join(f"{verb} {', '.join(some)}" for verb, some in (("has", new), ("lacks", gone)) if some)


def _take(request: dict[str, Any]) -> Any:
    """Return a session with the device, as soon as the tracker gives it."""
    import tvm.rpc

    tracker = tvm.rpc.connect_tracker(*request["tracker"])
    try:
        return tracker.request(
            request["key"],
            priority=request["priority"],
            session_timeout=request["session_secs"],
            max_retry=1,
        )
    finally:
        tracker.close()


def time(request: TimeRequest) -> TimeResult:
    """As `CpuWorker.time`, by the device's own clock."""
    (session,) = _SESSIONS
    module = session.load(request.path)
    evaluate = module.time_evaluator(
        "run",
        session.remote.cpu(),
        number=1,
        repeat=max(request.repeats, round(request.repeats * request.min_secs / _BATCH_MSECS * 1e3)),
        min_repeat_ms=_BATCH_MSECS,
    )
    secs = []
    for extents, values in request.bindings():
        arguments = session.arguments(request.problem, extents, request.call.lanes)
        secs.append(cpu_worker.low_reading(evaluate(*arguments, *values).results))
    if not request.keeps:
        session.forget(request.path)
    return TimeResult(tuple(secs))


def check(request: CheckRequest) -> CheckResult:
    """As `CpuWorker.check`: run there, compared here."""
    (session,) = _SESSIONS
    module = session.load(request.path)

    def call(name: str, *arguments: Any) -> None:
        sent = [session.tensor(a) if isinstance(a, np.ndarray) else a for a in arguments]
        module[name](*sent)
        *_, last = (i for i, a in enumerate(arguments) if isinstance(a, np.ndarray))
        arguments[last][...] = sent[last].numpy()

    return cpu_worker.check(request, call)
