"""Targets of submitted specs, resolved in a child process: the compiler never enters the server's.

``python -m dietcode_server.engine.targets`` reads a spec's target as JSON and writes what it stands for here.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from dietcode.errors import ServerError, TargetError
from dietcode.workload.identity import canonical_bytes
from dietcode.workload.spec import Spec

_TIMEOUT_SECS = 60.0
_MAX_KNOWN = 256
_MAX_ASKING = 4


@dataclass(frozen=True)
class Resolved:
    """What a target stands for on this machine.

    Attributes
    ----------
    target : dict
        With processor, features and limits filled in.
    device : tuple of (id, name, target) or None
        What such a job measures on; None where this machine is none.
    runnable : bool
        Whether it can be measured here.
    """

    target: dict[str, Any]
    device: tuple[str, str, dict[str, Any]] | None
    runnable: bool


class Targets:
    """Answers from memory after the first question; thread-safe.

    One question is put to the compiler at a time, since it runs beside whatever is measured; callers with the
    same one share its answer.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, Resolved | str] = OrderedDict()
        self._asking: dict[bytes, Future[Resolved | str]] = {}
        self._lock, self._turn = threading.Lock(), threading.Lock()

    def resolve(self, spec: Spec) -> Resolved:
        """Resolve a spec's target against this machine.

        Raises
        ------
        TargetError
            It is unknown, or cannot be built for by this version.
        ServerError
            It cannot be found out, or too many others are asked for.
        """
        key = canonical_bytes(spec.target.to_json())
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
        if isinstance(found, str):
            raise TargetError(found)
        return found

    def _find_out(self, key: bytes) -> Resolved | str:
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


def _ask(target: bytes) -> Resolved | str:
    try:
        done = subprocess.run(
            [sys.executable, "-m", "dietcode_server.engine.targets"],
            input=target,
            capture_output=True,
            timeout=_TIMEOUT_SECS,
            check=True,
        )
        answer = json.loads(done.stdout)
    except (subprocess.SubprocessError, OSError, ValueError) as error:
        raise ServerError(f"a target cannot be resolved: {type(error).__name__}") from error
    if "error" in answer:
        return str(answer["error"])
    device = answer["device"]
    runnable = bool(answer["runnable"])
    place = (device["id"], device["name"], device["target"]) if runnable else None
    return Resolved(answer["target"], place, runnable)


def describe_target(plain: Any) -> dict[str, Any]:
    """Answer one question; needs the compiler."""
    from dietcode.target.cpu import device_record, resolve_target
    from dietcode.workload.target_spec import TargetSpec

    try:
        given = TargetSpec.from_plain(plain)
        spec = given if isinstance(given, TargetSpec) else TargetSpec.model_validate(given)
        target = resolve_target(spec)
    except TargetError as error:
        return {"error": str(error)}
    return {"target": target.to_json(), "device": device_record(target), "runnable": target.measurable_here}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(describe_target(json.load(sys.stdin))))
