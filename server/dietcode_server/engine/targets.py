"""Targets of specs, resolved in a child process: the compiler never enters the server's.

``python -m dietcode_server.engine.targets`` reads a spec's target and the machines that it is for, as JSON,
and writes what it stands for on each; or what it stands for on an engine, or what an engine measures on.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dietcode.errors import DietCodeError, ServerError, TargetError
from dietcode.lean import without_torch
from dietcode.lifeline import die_with_parent
from dietcode.measure.engine_spec import EngineSpec
from dietcode.target.cuda import ARCHS, CudaTarget, resolve_cuda
from dietcode.target.nvrtc import missing_packages
from dietcode.workload.identity import canonical_bytes
from dietcode.workload.spec import Spec, TargetSpec
from dietcode.workload.text import one_line
from dietcode_server.store import gpus

_TIMEOUT_SECS = 60.0
_MAX_KNOWN = 256
_MAX_ASKING = 4
_ASK_AGAIN_SECS = 60.0
_DRIVER_PLACES = ("/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-ctrl-gpu")  # Linux, WSL, Jetson
_log = logging.getLogger("dietcode.targets")


@dataclass(frozen=True)
class Resolved:
    """What a target stands for on a machine.

    Attributes
    ----------
    target : dict
        With processor, features and limits filled in.
    device : tuple of (id, name, target) or None
        What such a job measures on; None where the machine is none.
    runnable : bool
        Whether it can be measured there.
    host : dict
        The machine, as `dietcode.target.cpu.Host` has it; empty where that is not known.
    place : str
        The engine's own name of such machines.
    """

    target: dict[str, Any]
    device: tuple[str, str, dict[str, Any]] | None
    runnable: bool
    host: dict[str, Any] = field(default_factory=dict)
    place: str = ""


class Targets:
    """Answers from memory after the first question; thread-safe.

    Parameters
    ----------
    engine : EngineSpec
        Where `on` looks for a target where it is given no machine. What an engine other than the local one
        answered is asked again a minute later: machines come and go there.

    One question is put to the compiler at a time, since it runs beside whatever is measured; callers with the
    same one share its answer.
    """

    def __init__(self, engine: EngineSpec | None = None) -> None:
        self.engine = engine or EngineSpec()
        self._known: OrderedDict[bytes, list[Resolved | str]] = OrderedDict()
        self._asking: dict[bytes, Future[list[Resolved | str]]] = {}
        self._lock, self._turn = threading.Lock(), threading.Lock()

    def resolve(self, spec: Spec) -> Resolved:
        """What a new job on a spec is for.

        Raises
        ------
        TargetError
            The target is unknown, or cannot be built for by this version.
        SpecError
            It stands for more than one device.
        ServerError
            It cannot be found out, or too many others are asked for.
        """
        return self.on(spec.target)

    def again(self, spec: Spec, target: dict[str, Any]) -> Resolved:
        """Whether a job that there is can be measured now: `target` is what it was resolved to.

        Raises
        ------
        TargetError, ServerError
            As `resolve`.
        """
        found = self.resolve(spec)
        return found if found.target == target else replace(found, device=None, runnable=False)

    def on(self, target: TargetSpec, host: dict[str, Any] | None = None) -> Resolved:
        """Resolve a target against a machine, by default this one, or what the engine measures on.

        Raises
        ------
        TargetError, ServerError
            As `resolve`.
        """
        (found,) = self.at(target, [host])
        if isinstance(found, str):
            raise TargetError(found)
        return found

    def at(self, target: TargetSpec, hosts: Sequence[dict[str, Any] | None]) -> list[Resolved | str]:
        """Resolve a target against several machines; a text instead is why it means nothing there.

        Raises
        ------
        ServerError
            It cannot be found out, or too many others are asked for.
        """
        engine = self.engine.to_json() if list(hosts) == [None] else {}
        return self._answer({"target": target.to_json(), "hosts": list(hosts), "engine": engine})

    def devices(self) -> list[Resolved]:
        """What can be measured without a spec that names it: this machine, or what the engine says.

        Raises
        ------
        ServerError
            It cannot be found out.
        """
        if self.engine.kind == "local":
            own = self.on(TargetSpec(kind="llvm"))
            return [one for one in (own, *self._own_gpu()) if one.runnable]
        found = self._answer({"target": None, "hosts": [], "engine": self.engine.to_json()})
        return [one for one in found if not isinstance(one, str)]

    @property
    def builds_for_gpus(self) -> bool:
        """Whether libraries for GPUs can be built here, from records: it needs a compiler, and no GPU."""
        return self.engine.kind == "local" and not missing_packages()

    def _own_gpu(self) -> list[Resolved]:
        """This machine's GPU for each architecture that it is measured for, where it can be built for."""
        if not self.builds_for_gpus or not has_driver():
            return []
        try:
            found = self._answer({"target": None, "hosts": [], "engine": {}})
        except ServerError as error:  # the processor can be measured all the same
            found = [str(error)]
        for why in found:
            if isinstance(why, str):
                _log.warning("the GPU of this machine is not measured on: %s", why)
        return [one for one in found if not isinstance(one, str)]

    def is_ready(self) -> bool:
        """Whether it can be told now what a target stands for."""
        return True

    def has_tried(self) -> bool:
        """Whether a first question, which tells what is here, is over."""
        return True

    def _answer(self, question: dict[str, Any]) -> list[Resolved | str]:
        minute = 0 if self.engine.kind == "local" else int(time.monotonic() // _ASK_AGAIN_SECS)
        key = canonical_bytes(question | {"minute": minute})
        with self._lock:
            found = self._known.get(key)
            asked = self._asking.get(key)
            first = found is None and asked is None
            if first and len(self._asking) >= _MAX_ASKING:
                raise ServerError("too many new targets at once; try again in a few seconds")
            if first:
                self._asking[key] = Future()
        if found is None:
            found = self._find_out(key) if asked is None else asked.result()
        return found

    def _find_out(self, key: bytes) -> list[Resolved | str]:
        """Ask, and tell those who wait for the same answer."""
        future = self._asking[key]
        try:
            with self._turn:
                found = _ask(key)
        except BaseException as error:
            with self._lock:
                del self._asking[key]
            future.set_exception(error)
            raise
        with self._lock:
            self._known[key] = found
            del self._asking[key]
            while len(self._known) > _MAX_KNOWN:
                self._known.popitem(last=False)
        future.set_result(found)
        return found


def _ask(question: bytes) -> list[Resolved | str]:
    try:
        done = subprocess.run(
            [sys.executable, "-m", "dietcode_server.engine.targets"],
            input=question,
            env=without_torch(os.environ),
            capture_output=True,
            timeout=_TIMEOUT_SECS,
            check=True,
        )
        return [_read(answer) for answer in json.loads(done.stdout)]
    except (subprocess.SubprocessError, OSError, ValueError) as error:
        raise ServerError(f"a target cannot be resolved: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """What the child said last, where it said something."""
    said = getattr(error, "stderr", None) or b""
    lines = said.decode(errors="replace").strip().splitlines()
    return one_line(lines[-1], 200) if lines else type(error).__name__


def _read(answer: dict[str, Any]) -> Resolved | str:
    if "error" in answer:
        return str(answer["error"])
    device = answer["device"]
    runnable = bool(answer["runnable"])
    place = (device["id"], device["name"], device["target"]) if runnable else None
    return Resolved(answer["target"], place, runnable, answer["host"], answer.get("place", ""))


def has_driver() -> bool:
    """Whether this machine shows that it has NVIDIA's driver, so that it is worth asking for a GPU."""
    return any(Path(place).exists() for place in _DRIVER_PLACES)


def describe_target(plain: Any, host: dict[str, Any] | None = None) -> dict[str, Any]:
    """What a target stands for on a machine, by default this one; needs the compiler for all but ``cuda``."""
    try:
        spec = _target_spec(plain)
        gpu_target = _gpu_target(spec)
    except (TargetError, ValueError) as error:
        return {"error": str(error)}
    if gpu_target is None:
        return _describe_cpu(spec, host)
    there = describe_gpus() if host is None else []  # others announce their own
    mine = [gpu for gpu in there if gpu.get("target") == gpu_target.to_json()]
    return mine[0] if mine else {"target": gpu_target.to_json(), "device": {}, "runnable": False, "host": {}}


def describe_gpus() -> list[dict[str, Any]]:
    """This machine's GPU, once for each architecture that is measured on it; empty where there is none.

    One that is emulated is none.
    """
    if not has_driver():
        return []
    from dietcode.measure.gpu import find_gpu

    try:
        found = [find_gpu(CudaTarget(arch)) for arch in ARCHS]
    except TargetError as error:
        return [{"error": str(error)}]
    answers = []
    for gpu in found:
        if gpu is not None and not gpu.is_synthetic:
            device_id, name, target = gpus.device_row(gpu.record)
            device = {"id": device_id, "name": name, "target": target}
            answers.append({"target": gpu.record["target"], "device": device, "runnable": True, "host": {}})
    return answers


def _gpu_target(spec: TargetSpec) -> CudaTarget | None:
    """The target where it is one of kind cuda, or a TVM tag of that kind; None for every other.

    Raises
    ------
    TargetError
        Its architecture is none that is generated for.
    """
    if spec.tag is None:
        return resolve_cuda(spec) if spec.kind == "cuda" else None
    import tvm

    try:
        kind = str(tvm.target.Target(spec.tag).kind.name)
    except Exception:
        return None  # who resolves it for a CPU says so
    return resolve_cuda(spec) if kind == "cuda" else None


def _describe_cpu(spec: TargetSpec, host: dict[str, Any] | None) -> dict[str, Any]:
    from dietcode.target.cpu import Host, device_record, resolve_target

    try:
        machine = Host.here() if host is None else Host.from_json(host)
        target = resolve_target(spec, machine)
    except (TargetError, ValueError) as error:
        return {"error": str(error)}
    return {
        "target": target.to_json(),
        "device": device_record(target, machine.name),
        "runnable": machine.refusal(target) is None,
        "host": machine.to_json(),
    }


def describe_on(engine_spec: EngineSpec, plain: Any) -> list[dict[str, Any]]:
    """What a target stands for on an engine; all that it measures on where the target is None."""
    from dietcode.measure.opening import open_engine

    try:
        with open_engine(engine_spec) as engine:
            devices = engine.devices() if plain is None else [engine.resolve(_target_spec(plain))]
    except (TargetError, ValueError) as error:
        return [{"error": str(error)}]
    return [
        {
            "target": device.target.to_json(),
            "device": device.record,
            "runnable": device.refusal is None,
            "host": {} if device.host is None else device.host.to_json(),
            "place": device.place,
        }
        for device in devices
    ]


def _target_spec(plain: Any) -> TargetSpec:
    given = TargetSpec.from_plain(plain)
    return given if isinstance(given, TargetSpec) else TargetSpec.model_validate(given)


def main() -> None:
    """Answer one question."""
    die_with_parent()
    asked = json.load(sys.stdin)
    engine = EngineSpec.from_json(asked["engine"])
    try:
        if engine.kind == "local" and asked["target"] is None:
            answers = describe_gpus()
        elif engine.kind == "local":
            answers = [describe_target(asked["target"], host) for host in asked["hosts"]]
        else:
            answers = describe_on(engine, asked["target"])
    except DietCodeError as error:
        sys.exit(str(error))
    sys.stdout.write(json.dumps(answers))


if __name__ == "__main__":
    main()
