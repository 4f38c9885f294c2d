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
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from dietcode.errors import DietCodeError, ServerError, TargetError
from dietcode.lean import collect_seldom, import_less_of_tvm, python_command, without_torch
from dietcode.lifeline import die_with_parent
from dietcode.measure.engine_spec import EngineSpec
from dietcode.target.kinds import KINDS
from dietcode.target.nvrtc import missing_packages
from dietcode.workload.identity import canonical_bytes
from dietcode.workload.spec import TargetSpec
from dietcode.workload.text import one_line
from dietcode_server.store import device_headers

if TYPE_CHECKING:
    from dietcode.measure.engine import Device, Engine

_TIMEOUT_SECS = 60.0
_MAX_KNOWN = 256
_MAX_PENDING = 4
_KNOWN_SECS = 60.0
_log = logging.getLogger("dietcode.targets")


class HasTarget(Protocol):
    """What a job is asked for: a spec, or a model."""

    @property
    def target(self) -> TargetSpec:
        """What to build for and measure on."""


@dataclass(frozen=True)
class Resolved:
    """What a target stands for on a machine.

    Attributes
    ----------
    target : dict
        With processor, features and limits filled in.
    device : tuple of (id, name, target) or None
        What such a job measures on; None where the machine cannot measure it.
    runnable : bool
        Whether it can be measured there.
    host : dict
        The machine, as `dietcode.target.cpu.Host` has it; empty where that is not known.
    slot : str
        What one job at a time holds of the engine to measure there.
    """

    target: dict[str, Any]
    device: tuple[str, str, dict[str, Any]] | None
    runnable: bool
    host: dict[str, Any] = field(default_factory=dict)
    slot: str = ""


class Targets:
    """Resolves targets, from memory after the first question; thread-safe.

    Parameters
    ----------
    engine : EngineSpec
        Where `on` looks for a target where it is given no machine. What an engine other than the local one
        answered is asked again a minute later: machines come and go there.

    The compiler answers one question at a time, since it runs beside whatever is measured; callers with the
    same one share its answer.
    """

    def __init__(self, engine: EngineSpec | None = None) -> None:
        self.engine = engine or EngineSpec()
        self._known: OrderedDict[bytes, list[Resolved | str]] = OrderedDict()
        self._pending: dict[bytes, Future[list[Resolved | str]]] = {}
        self._lock, self._turn = threading.Lock(), threading.Lock()

    def resolve(self, asked: HasTarget) -> Resolved:
        """Return what a new job on a spec or a model is for.

        Raises
        ------
        TargetError
            The target is unknown, or cannot be built for by this version.
        SpecError
            It stands for more than one device.
        ServerError
            It cannot be found out, or too many others are asked for.
        """
        return self.on(asked.target)

    def again(self, asked: HasTarget, target: dict[str, Any]) -> Resolved:
        """Return whether an earlier job, resolved to `target`, can be measured now.

        Raises
        ------
        TargetError, ServerError
            As `resolve`.
        """
        found = self.resolve(asked)
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
        """Return what can be measured without a spec that names it, by this machine or by the engine.

        Raises
        ------
        ServerError
            It cannot be found out.
        """
        found = self._answer({"target": None, "hosts": [None], "engine": self.engine.to_json()})
        for one in found:
            if isinstance(one, str):
                _log.warning("%s", one)
        return [one for one in found if not isinstance(one, str) and one.runnable]

    def forget(self) -> None:
        """Ask again for what was answered: a device of this machine may have gone, or come."""
        with self._lock:
            self._known.clear()

    @property
    def builds_for_gpus(self) -> bool:
        """Return whether libraries for GPUs can be built here from records: a compiler is enough."""
        return not missing_packages()

    def is_ready(self) -> bool:
        """Return whether it can be told now what a target stands for."""
        return True

    def has_tried(self) -> bool:
        """Return whether a first question, which tells what is here, is over."""
        return True

    def _answer(self, question: dict[str, Any]) -> list[Resolved | str]:
        minute = 0 if self.engine.kind == "local" else int(time.monotonic() // _KNOWN_SECS)
        key = canonical_bytes(question | {"minute": minute})
        with self._lock:
            found = self._known.get(key)
            asked = self._pending.get(key)
            first = found is None and asked is None
            if first and len(self._pending) >= _MAX_PENDING:
                raise ServerError("too many new targets at once; try again in a few seconds")
            if first:
                self._pending[key] = Future()
        if found is None:
            found = self._find_out(key) if asked is None else asked.result()
        return found

    def _find_out(self, key: bytes) -> list[Resolved | str]:
        """Ask, and tell those who wait for the same answer."""
        future = self._pending[key]
        try:
            with self._turn:
                found = _answers_of_child(key)
        except BaseException as error:
            with self._lock:
                del self._pending[key]
            future.set_exception(error)
            raise
        with self._lock:
            self._known[key] = found
            del self._pending[key]
            while len(self._known) > _MAX_KNOWN:
                self._known.popitem(last=False)
        future.set_result(found)
        return found


def _answers_of_child(question: bytes) -> list[Resolved | str]:
    try:
        done = subprocess.run(
            python_command("dietcode_server.engine.targets"),
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
    """Return what the child said last, where it said something."""
    output = getattr(error, "stderr", None) or b""
    lines = output.decode(errors="replace").strip().splitlines()
    return one_line(lines[-1], 200) if lines else type(error).__name__


def _read(answer: dict[str, Any]) -> Resolved | str:
    if "error" in answer:
        return str(answer["error"])
    device = answer["device"]
    runnable = bool(answer["runnable"])
    row = (device["id"], device["name"], device["target"]) if runnable else None
    return Resolved(answer["target"], row, runnable, answer["host"], answer.get("slot", ""))


def answers(asked: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what a target stands for on each of the hosts that are given, or on the engine.

    Parameters
    ----------
    asked : dict
        ``target``, None for all that the engine measures on; ``hosts``, None for the engine's; ``engine``.

    Raises
    ------
    RequestError, TuningError
        The engine cannot be used.
    """
    from dietcode.measure.opening import open_engine

    plain = asked["target"]
    if asked["hosts"] != [None]:
        return [_or_error(partial(_on_host, plain, host)) for host in asked["hosts"]]
    with open_engine(EngineSpec.from_json(asked["engine"])) as engine:
        if plain is not None:
            return [_or_error(partial(_on_engine, engine, plain))]
        errors: list[str] = []
        try:
            devices = engine.devices(errors.append)
        except TargetError as error:
            return [{"error": str(error)}]
        return [*(_described(device, engine) for device in devices), *({"error": why} for why in errors)]


def _or_error(describe: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return describe()
    except (TargetError, ValueError) as error:
        return {"error": str(error)}


def _on_host(plain: Any, host: dict[str, Any]) -> dict[str, Any]:
    from dietcode.measure.device_kinds import device_kind_of

    spec = TargetSpec.model_validate(TargetSpec.from_plain(plain))
    kind = device_kind_of(spec)
    return _described(kind.choose(spec, [("", kind.from_json(host))], "those that are announced", "it"))


def _on_engine(engine: Engine, plain: Any) -> dict[str, Any]:
    """Describe the engine's device for a target; of one that names an architecture the target at least."""
    from dietcode.measure.device_kinds import device_kind_of

    spec = TargetSpec.model_validate(TargetSpec.from_plain(plain))
    kind = device_kind_of(spec)
    try:
        return _described(engine.resolve(spec), engine)
    except TargetError:
        if not KINDS[kind.kind].names_architecture:
            raise
        return {"target": kind.target(spec).to_json(), "device": {}, "runnable": False, "host": {}}


def _described(device: Device, engine: Engine | None = None) -> dict[str, Any]:
    """Describe a device as plain data; nothing is measured on an emulated one."""
    device_id, name, target = device_headers.device_row(device.record)
    return {
        "target": device.target.to_json(),
        "device": {"id": device_id, "name": name, "target": target},
        "runnable": device.refusal is None and not device.record.get("synthetic"),
        "host": {} if device.host is None else device.host.to_json(),
        "slot": "" if engine is None else device.slot,
    }


def main() -> None:
    """Answer one question."""
    die_with_parent()
    import_less_of_tvm()
    collect_seldom()
    try:
        found = answers(json.load(sys.stdin))
    except DietCodeError as error:
        sys.exit(str(error))
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
