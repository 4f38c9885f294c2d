"""Targets of specs, resolved in a child process: the compiler never enters the server's.

``python -m dietcode_server.engine.targets`` reads a spec's target and the machines that it is for, as JSON,
and writes what it stands for on each.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from dietcode.errors import ServerError, TargetError
from dietcode.lifeline import die_with_parent
from dietcode.workload.identity import canonical_bytes
from dietcode.workload.spec import Spec, TargetSpec

_TIMEOUT_SECS = 60.0
_MAX_KNOWN = 256
_MAX_ASKING = 4


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
        The machine, as `dietcode.target.cpu.Host` has it.
    """

    target: dict[str, Any]
    device: tuple[str, str, dict[str, Any]] | None
    runnable: bool
    host: dict[str, Any] = field(default_factory=dict)


class Targets:
    """Answers from memory after the first question; thread-safe.

    One question is put to the compiler at a time, since it runs beside whatever is measured; callers with the
    same one share its answer.
    """

    def __init__(self) -> None:
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
        """Resolve a target against a machine, by default this one.

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
        key = canonical_bytes({"target": target.to_json(), "hosts": list(hosts)})
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
            capture_output=True,
            timeout=_TIMEOUT_SECS,
            check=True,
        )
        return [_read(answer) for answer in json.loads(done.stdout)]
    except (subprocess.SubprocessError, OSError, ValueError) as error:
        raise ServerError(f"a target cannot be resolved: {type(error).__name__}") from error


def _read(answer: dict[str, Any]) -> Resolved | str:
    if "error" in answer:
        return str(answer["error"])
    device = answer["device"]
    runnable = bool(answer["runnable"])
    place = (device["id"], device["name"], device["target"]) if runnable else None
    return Resolved(answer["target"], place, runnable, answer["host"])


def describe_target(plain: Any, host: dict[str, Any] | None = None) -> dict[str, Any]:
    """What a target stands for on a machine, by default this one; needs the compiler."""
    from dietcode.target.cpu import Host, device_record, resolve_target

    try:
        given = TargetSpec.from_plain(plain)
        spec = given if isinstance(given, TargetSpec) else TargetSpec.model_validate(given)
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


if __name__ == "__main__":
    die_with_parent()
    asked = json.load(sys.stdin)
    sys.stdout.write(json.dumps([describe_target(asked["target"], host) for host in asked["hosts"]]))
