"""`dietcode.bench.compare.bench` in a process of its own, confined like all that runs generated code.

The process writes a line of JSON for each instance as soon as it is measured. Those lines remain valid
however it ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, Literal

from dietcode.confinement import MEMORY_BYTES, confine, kept_environment
from dietcode.errors import DietCodeError, RequestError
from dietcode.lean import has_torch, python_command, with_torch
from dietcode.lifeline import die_with_parent
from dietcode.workload.text import one_line

Vendor = Literal["numpy", "torch"]
Compare = Literal["auto", "numpy", "torch", "none"]  # auto: see `vendor_of`

_START_SECS = 20.0  # until a machine that is busy has imported PyTorch
_ROUNDS = 5
_MAX_LINE_CHARS = 1 << 16


class HaltedError(DietCodeError):
    """The process ended, or was ended, before it had finished."""


def vendor_of(asked: Compare) -> Vendor:
    """Return the vendor that is asked for; otherwise PyTorch where it is installed, else NumPy."""
    is_numpy = asked == "numpy" or (asked != "torch" and not has_torch())
    return "numpy" if is_numpy else "torch"


def confined_bench(
    folder: Path,
    vendor: Vendor,
    num_threads: int,
    secs: float,
    num_instances: int = 16,
    on_alone: Callable[[str], None] = lambda _: None,
) -> Generator[dict[str, Any], None, None]:
    """Measure a library beside a vendor in about `secs` seconds; may be closed at any time.

    PyTorch runs without ``torch.compile``, which would take longer than everything else.

    Parameters
    ----------
    num_threads : int
        Of the library, and of the vendor.
    on_alone : callable
        Called with the reason where the library is measured alone: the vendor has no kernel for its operator.

    Yields
    ------
    dict
        Records as `dietcode.bench.compare.bench` gives them.

    Raises
    ------
    HaltedError
        The process failed, or was ended because it took too long; what was yielded before is valid.
    """
    with tempfile.TemporaryDirectory(prefix="dietcode-compare-") as temporary:
        request = {
            "parent_pid": os.getpid(),
            "folder": str(folder.absolute()),
            "vendor": vendor,
            "num_threads": num_threads,
            "secs": secs,
            "num_instances": num_instances,
            "temporary": temporary,
        }
        pool = {name: str(num_threads) for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")}
        process = subprocess.Popen(
            python_command("dietcode.bench.confined"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=with_torch(kept_environment(os.environ) | pool),
            text=True,
        )
        limit_secs, ended = _START_SECS + 1.5 * secs, threading.Event()
        watchdog = threading.Timer(limit_secs, _end, (process, ended))
        watchdog.daemon = True
        watchdog.start()
        try:
            yield from _records(process, request, on_alone)
            if ended.is_set():
                raise HaltedError(f"it took longer than {limit_secs:.0f} s")
            if process.wait() != 0:
                raise HaltedError(f"its process ended with status {process.returncode}")
        finally:
            watchdog.cancel()
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


def _end(process: subprocess.Popen[str], ended: threading.Event) -> None:
    ended.set()
    process.kill()


def _records(
    process: subprocess.Popen[str], request: dict[str, Any], on_alone: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    assert process.stdin is not None and process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps(request))
        process.stdin.close()
    while line := process.stdout.readline(_MAX_LINE_CHARS):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            return  # it was ended within the line
        if not isinstance(found, dict):
            raise HaltedError("it wrote what is no record")
        if "error" in found:
            raise HaltedError(str(found["error"]))
        if "alone" in found:
            on_alone(str(found["alone"]))
        else:
            yield found


def main() -> None:
    """Read the request, measure, and write the records."""
    request = json.load(sys.stdin)
    die_with_parent(request["parent_pid"])
    folder = Path(request["folder"])
    confine(MEMORY_BYTES, request["temporary"], readable=[folder], starts_processes=False)
    out = os.fdopen(os.dup(1), "w")  # what a library prints goes elsewhere
    os.dup2(2, 1)
    try:
        for record in _measured(request):
            print(json.dumps(record), file=out, flush=True)
    except Exception as error:
        what = str(error) if isinstance(error, DietCodeError) else f"{type(error).__name__}: {error}"
        print(json.dumps({"error": one_line(what, 300)}), file=out, flush=True)
        sys.exit(1)


def _measured(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    from dietcode.bench.compare import bench
    from dietcode.bench.operator import Binder, Operator
    from dietcode.bench.vendor import vendor_paths
    from dietcode.runtime.manifest import read_manifest

    folder, vendor, threads = Path(request["folder"]), request["vendor"], request["num_threads"]
    paths: dict[str, Binder] = {}
    try:
        found = vendor_paths(vendor, Operator.of(read_manifest(folder)), threads)
        paths = {name: path for name, path in found.items() if "compile" not in name}
    except RequestError as error:
        yield {"alone": str(error).removeprefix(f"--vs {vendor}: ").partition(";")[0]}
    until = time.monotonic() + request["secs"]
    yield from bench(
        folder,
        (),
        num_instances=request["num_instances"],
        rounds=_ROUNDS,
        num_threads=threads,
        paths=paths,
        until=until,
    )


if __name__ == "__main__":
    main()
