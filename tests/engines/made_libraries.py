"""Libraries whose ``run`` is written in C, and what a measurement of one asks."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from dietcode.measure.calibration import reference_problem
from dietcode.measure.requests import TimeRequest
from dietcode.search_space.cpu.limits import Limits
from dietcode.target.cpu import CpuTarget

_SOURCE = """
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
int __tvm_ffi_run(void* self, const void* args, int num_args, void* result) {{ {body} return 0; }}
"""
CRASH = "*(volatile int*)8 = 1;"
SLEEP = "struct timespec rest = {0, 20000000}; nanosleep(&rest, 0);"
HANG = "for (volatile int i = 0; ; ) { }"
_LOG = """
    struct timespec from, to, rest = {{0, 20000000}}; char line[96];
    clock_gettime(CLOCK_MONOTONIC, &from); nanosleep(&rest, 0); clock_gettime(CLOCK_MONOTONIC, &to);
    int n = snprintf(line, sizeof line, "%d %ld.%09ld %ld.%09ld\\n", (int)getpid(), (long)from.tv_sec,
                     from.tv_nsec, (long)to.tv_sec, to.tv_nsec);
    int file = open("{path}", O_WRONLY | O_APPEND | O_CREAT, 0600); write(file, line, n); close(file);
"""


def c_library(folder: Path, name: str, body: str) -> Path:
    """Compile a library."""
    source, library = folder / f"{name}.c", folder / f"{name}.so"
    source.write_text(_SOURCE.format(body=body))
    compiler = shutil.which("cc") or "gcc"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", str(source), "-o", str(library)], check=True)
    return library


def logging_library(folder: Path, log: Path) -> Path:
    """A library whose every call takes 20 ms, and writes its process and when it began and ended."""
    return c_library(folder, "logging", _LOG.format(path=log))


def intervals(log: Path) -> dict[int, tuple[float, float]]:
    """First beginning and last end of each process's calls."""
    found: dict[int, tuple[float, float]] = {}
    for line in log.read_text().splitlines():
        pid, begun, ended = line.split()
        first, last = found.get(int(pid), (float(begun), float(ended)))
        found[int(pid)] = (min(first, float(begun)), max(last, float(ended)))
    return found


def timing_request(path: Path, target: CpuTarget) -> TimeRequest:
    """Time a library of the reference problem."""
    points = ({"m": 8, "n": 64, "k": 2048},)
    return TimeRequest(reference_problem(), str(path), Limits.of(target), points, min_secs=1e-3, repeats=3)
