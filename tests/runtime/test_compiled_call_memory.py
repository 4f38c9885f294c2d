"""The short way of a call in C: it keeps nothing, forgets what is to go, and stays in its own memory."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import tracemalloc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import of_extra
from sanitized import sanitized_library
from small_libraries import SAFE_ERROR, block_data, built, built_of, draw, error, expected

import dietcode
from dietcode.lean import without_torch
from dietcode.runtime import library as library_module
from dietcode.runtime.compile_launcher import CALL_SOURCES, python_headers

pytestmark = pytest.mark.skipif(
    python_headers() is None,
    reason="this machine's Python has no headers: calls stay in Python",
)
# Two outputs of X [M, 37], of different ranks.
SEVERAL = json.dumps(
    block_data(
        "two",
        {"m": {"mean": "X", "axis": "n"}, "Y": {"mul": ["X", 2]}},
        ["m", "Y"],
        tensors={"X": {"dims": "mn", "dtype": "float32"}},
        dims={"m": "M", "n": 37},
    )
)


# X [M, 37] added to rows of a table, and written there.
STATES = json.dumps(
    block_data(
        "states",
        {"old": {"gather": ["H", "at"]}, "h": {"add": ["old", "X"]}},
        [{"h": {"into": "H", "at": "at"}}],
        tensors={
            "H": {"dims": "tn", "dtype": "float32"},
            "at": {"dims": "m", "dtype": "int32"},
            "X": {"dims": "mn", "dtype": "float32"},
        },
        dims={"m": "M", "n": 37, "t": 9},
    )
)


def short(what: Any, *tensors: Any, **named: Any) -> Any:
    """The result of the way in C alone, or NotImplemented."""
    return what.compiled.attempt(tensors, named)


@pytest.mark.thorough
@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_nothing_is_kept_of_a_call(kind: str) -> None:
    library = dietcode.load(built("rows"))
    x: Any = np.ones((4, 37), np.float32)
    out: Any = np.empty((4, 100), np.float32)
    wrong: Any = np.ones((4, 37))
    if kind == "torch":
        torch = pytest.importorskip("torch", reason=of_extra("bench"))
        x, out, wrong = torch.from_numpy(x), torch.from_numpy(out), torch.from_numpy(wrong)
    w = library.pack(W=np.ones((100, 37), np.float32))
    f = library.bind(W=w)
    op = f if kind == "numpy" else library.torch_op(W=w)
    several = dietcode.load(built_of(SEVERAL)).bind()
    outs = several(x)
    states, table = dietcode.load(built_of(STATES)).bind(), np.zeros((9, 37), np.float32)
    rows = np.arange(4, dtype=np.int32)
    if kind == "torch":
        table, rows = torch.from_numpy(table), torch.from_numpy(rows)
    states(table, rows, x)
    f(x)
    watched = [several, several.compiled, outs, *outs, states, states.compiled, table, rows]
    watched += [x, out, wrong, w, w.data, w.shape, f, f.compiled, library, library.compiled]
    watched += library._compiled_shapes.values()
    # The whole process holds these, and its other threads and caches take and leave some meanwhile.
    shared = [None, NotImplemented, np.empty, np.float32]

    def calls(number: int) -> None:
        for _ in range(number):
            f(x)
            op(x)
            f(x, out=out)
            library(X=x, W=w)
            short(f, wrong)
            several(x)
            several(x, out=outs)
            states(table, rows, x)
            states(table, rows, x, out=table)
            short(states, table, rows, x, out=out)
            several(x, out=list(outs))
            short(several, x, out=(*outs[:1], wrong))
            short(several, x, out=(*outs[:1], out))
            short(f, x, out=wrong)
            short(library, X=x)

    def resident_pages() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1])

    calls(1000)
    gc.collect()
    before, pages = [sys.getrefcount(value) for value in (*watched, *shared)], resident_pages()
    calls(20_000)
    gc.collect()
    grown = [sys.getrefcount(value) - count for value, count in zip((*watched, *shared), before, strict=True)]
    assert max(map(abs, grown[: len(watched)])) < 20, grown
    assert max(map(abs, grown[len(watched) :])) < 1000, f"{grown}: one for each call would be 20 000"
    assert resident_pages() - pages < 2000, "each result of 60 000 calls has 1600 bytes"
    tracemalloc.start()
    calls(100)
    first = tracemalloc.get_traced_memory()[0]
    calls(2000)
    assert tracemalloc.get_traced_memory()[0] - first < 20_000
    tracemalloc.stop()


def test_what_is_bound_is_let_go_of() -> None:
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    library = dietcode.load(built("bmm"))
    arrays = draw("bmm", T=3)
    v = torch.from_numpy(arrays["V"])
    f = library.bind(V=v)
    f(torch.from_numpy(arrays["P"]))
    v.user = f  # a circle
    gone = weakref.ref(f), weakref.ref(v)
    del f, v
    gc.collect()
    assert [look() for look in gone] == [None, None]


def test_many_threads_and_shapes_that_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_module, "_MAX_CACHED_SHAPES", 3)
    library = dietcode.load(built("rows"), num_threads=1)
    arrays = draw("rows", M=12)
    f = library.bind(W=arrays["W"])
    right = expected("rows", arrays)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        for rows in np.random.default_rng(seed).integers(1, 13, 400):
            out = None if rows % 2 else np.empty((rows, 100), np.float32)
            if error(f(arrays["X"][:rows], out=out), right[:rows]) > 2 * SAFE_ERROR:
                wrong.append(rows)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(library._shapes) <= 3 and len(library._compiled_shapes) <= 12


@pytest.mark.thorough
def test_all_ways_of_a_call_under_a_sanitizer(tmp_path: Path) -> None:
    """No byte is read or written beside those of the call's own memory, whatever NumPy's tensors are."""
    made, env = sanitized_library(tmp_path, CALL_SOURCES, "compiled_call.abi3.so")
    script = """
import importlib.machinery, importlib.util, sys
import numpy as np
import tvm_ffi
name = "dietcode.runtime.compiled_call"
loader = importlib.machinery.ExtensionFileLoader(name, sys.argv[1])
module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
import dietcode.runtime
sys.modules[name] = dietcode.runtime.compiled_call = module
import dietcode
from dietcode.runtime import compiled
assert compiled.compiled_call.__file__ == sys.argv[1]
library = dietcode.load(sys.argv[2], num_threads=1)
several = dietcode.load(sys.argv[3], num_threads=1).bind()
states = dietcode.load(sys.argv[4], num_threads=1).bind()
x, w = np.ones((4, 37), np.float32), np.ones((100, 37), np.float32)
packed, f, out = library.pack(W=w), library.bind(W=w), np.empty((4, 100), np.float32)
wrong = [None, 1, [], x[:, :36], x[0], x[:, None], x.astype(float), x[:0], np.asfortranarray(x)]
wrong += [packed, w, out]
mean, twice = several(x)
table = np.zeros((9, 37), np.float32)
wrong += [(mean, twice), (mean,), (mean, twice, out), (twice, mean), (None, mean), (mean, x), (mean, w[:4])]
for _ in range(50):
    assert (f(x) == 37).all() and f(x, out=out) is out and (library(X=x, W=packed) == 37).all()
    assert (f(np.ones((70, 37), np.float32)) == 37).all()
    assert all((one == 1).all() for one in several(x)[:1]) and several(x, out=[mean, twice])[1] is twice
    rows = np.array([8, -1, 9, 0], np.int32)
    assert states(table, rows, x) is table and states(table, rows, x, out=table) is table
    for value in wrong:
        for call in (
            lambda: f(value),
            lambda: f(x, value),
            lambda: f(x, out=value),
            lambda: several(value),
            lambda: states(value, rows, x),
            lambda: states(table, value, x),
            lambda: states(table, rows, x, out=value),
            lambda: several(x, out=value),
            lambda: f(),
            lambda: f(X=x),
            lambda: library(X=value, W=packed),
            lambda: library(X=x, W=value),
            lambda: library(X=x, V=value),
        ):
            try:
                call()
            except Exception as error:
                assert isinstance(error, (dietcode.errors.DietCodeError, TypeError)), error
    f, library = library.bind(W=packed), dietcode.load(sys.argv[2], num_threads=1)
print("right")
"""
    options = env | {"PYTHONMALLOC": "malloc"}
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            script,
            str(made),
            str(built("rows")),
            str(built_of(SEVERAL)),
            str(built_of(STATES)),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=without_torch(os.environ) | options,
    )
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr[-3000:]
