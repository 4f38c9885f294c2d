"""What only a fresh process shows: imports, threads, cores, forks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fresh_process import BLOCK, PRELUDE, python
from needs import of_extra
from small_libraries import built, older_library_bytes

from dietcode.runtime.manifest import write_folder


def test_import_dietcode_imports_next_to_nothing() -> None:
    heavy = {"numpy", "pydantic", "typer", "rich", "tvm", "tvm_ffi", "yaml", "torch", "sklearn", "xgboost"}
    script = f"import sys, dietcode; print(sorted({heavy} & set(sys.modules)), dietcode.__version__)"
    assert python(script).startswith("[] ")


def test_a_library_loads_and_runs_without_a_compiler() -> None:
    """NumPy and tvm-ffi are all that it needs."""
    script = f"""{BLOCK}{PRELUDE}
import dietcode
library = dietcode.load(sys.argv[1])
for rows in (1, 2, 33, 36, 37, 70):
    check(library, rows, rows)
assert library.select(M=1) == 0 and library.select(M=70) == 1
print(sorted(n for n in sys.modules if n in ("tvm", "xgboost", "sklearn", "scipy", "torch")))
"""
    assert python(script, built("rows")).strip() == "[]"


def test_a_library_runs_where_path_has_no_c_compiler() -> None:
    script = f"{PRELUDE}\nimport dietcode\ncheck(dietcode.load(sys.argv[1]), 9)"
    python(script, built("rows"), env={"PATH": "/nonexistent"})


def test_tvm_imported_before_a_library() -> None:
    python(f"{PRELUDE}\nimport tvm, dietcode\ncheck(dietcode.load(sys.argv[1]), 9)", built("rows"))


@pytest.mark.thorough
def test_tvm_imported_after_a_library() -> None:
    script = f"""{PRELUDE}
import dietcode
library = dietcode.load(sys.argv[1])
check(library, 9)
import tvm
check(library, 10)
check(dietcode.load(sys.argv[2] + "/../rows"), 11)
assert tvm.target.Target("llvm").kind.name == "llvm"
"""
    python(script, built("rows"), built("rows"))


@pytest.mark.thorough
def test_torch_imported_before_or_after_a_library() -> None:
    pytest.importorskip("torch", reason=of_extra("bench"))
    for order in ("import torch, dietcode", "import dietcode\ndietcode.load(sys.argv[1])\nimport torch"):
        script = f"""{PRELUDE}
{order}
library = dietcode.load(sys.argv[1])
x, w = torch.randn(20, 37), torch.randn(100, 37)
for _ in range(20):
    y = library(X=x, W=library.pack(W=w))
    assert torch.allclose(y, x @ w.T, atol=1e-4)
"""
        python(script, built("rows"))


def test_the_same_folder_and_several_folders_load_into_one_process() -> None:
    script = f"""{PRELUDE}
import dietcode
libraries = [dietcode.load(sys.argv[1]) for _ in range(5)]
dietcode.load(sys.argv[2])
for library in libraries:
    check(library, 5)
del libraries
check(dietcode.load(sys.argv[1]), 6)
"""
    python(script, built("rows"), built("bmm"))


def test_a_library_needs_nothing_of_tvms(tmp_path: Path) -> None:
    """Its loops are the launcher's, also where an older version has put TVM's runtime beside it."""
    write_folder(tmp_path / "lib", older_library_bytes("bmm"))
    script = f"""{BLOCK}
import numpy as np, dietcode
library = dietcode.load(sys.argv[1])
p, v = np.ones((3, 33, 33), np.float32), np.ones((3, 33, 20), np.float32)
assert (library(P=p, V=v) == 33).all()
assert "libtvm_runtime" not in open("/proc/self/maps").read()
"""
    python(script, built("bmm"))
    python(script, tmp_path / "lib")


def test_no_thread_of_the_process_gets_another_affinity() -> None:
    """And the pool's own stay within that of the process."""
    script = f"""{PRELUDE}
import dietcode
tasks = lambda: {{int(name) for name in os.listdir("/proc/self/task")}}
before, cores = tasks(), os.sched_getaffinity(0)
library = dietcode.load(sys.argv[1])
check(library, 70)
for task in tasks():
    allowed = os.sched_getaffinity(task)
    assert allowed == cores if task in before else allowed and allowed <= cores, task
"""
    python(script, built("rows"))


def test_none_in_place_of_the_compiler_is_no_runtime() -> None:
    """`sys.modules["tvm"] = None` is how a program forbids an import."""
    python(
        f"import sys\nsys.modules['tvm'] = None\n{PRELUDE}\n"
        "import dietcode\ncheck(dietcode.load(sys.argv[1]), 9)",
        built("rows"),
    )


def test_a_process_bound_to_one_core() -> None:
    script = f"""
import os
os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})
{PRELUDE}
import dietcode
check(dietcode.load(sys.argv[1]), 70)
assert len(os.sched_getaffinity(0)) == 1
"""
    python(script, built("rows"))


@pytest.mark.parametrize("num_threads", [1, 3])
def test_num_threads_sets_the_pool(num_threads: int) -> None:
    script = f"""{PRELUDE}
import dietcode
library = dietcode.load(sys.argv[1], num_threads={num_threads})
before = len(os.listdir("/proc/self/task"))
check(library, 70)
print(len(os.listdir("/proc/self/task")) - before)
"""
    # The caller is one thread of the pool.
    assert int(python(script, built("rows"), env={"OPENBLAS_NUM_THREADS": "1"})) == num_threads - 1


THREADS = f"""{PRELUDE}
import dietcode
library = dietcode.load(sys.argv[1])
check(library, 70)
tasks = lambda: len(os.listdir("/proc/self/task"))
before = tasks()
rng = np.random.default_rng(0)
w = rng.standard_normal((100, 37), dtype=np.float32)
packed = library.pack(W=w)
cases = []
for rows in range(1, 71):
    x = rng.standard_normal((rows, 37), dtype=np.float32)
    right = x.astype(np.float64) @ w.astype(np.float64).T
    cases.append((x, right, 1e-5 * np.abs(right).max()))
failures, peak, done = [], [0], []
barrier = threading.Barrier(8)

def caller(number):
    order = np.random.default_rng(number).permutation(len(cases))
    barrier.wait()
    try:
        for _ in range(8):
            for index in order:
                x, right, allowed = cases[index]
                y = library(X=x, W=packed, out=np.full(right.shape, np.nan, np.float32))
                if not np.abs(y - right).max() <= allowed:
                    failures.append((number, index))
        peak[0] = max(peak[0], tasks())
        done.append(number)
    except BaseException as error:
        failures.append(repr(error))

threads = [threading.Thread(target=caller, args=(n,)) for n in range(8)]
for t in threads: t.start()
for t in threads: t.join()
assert not failures, failures[:3]
assert len(done) == 8
print(peak[0] - before - 8)
"""


def test_eight_threads_get_right_answers_from_one_pool() -> None:
    extra = int(python(THREADS, built("rows"), env={"OPENBLAS_NUM_THREADS": "1"}))
    assert extra <= len(os.sched_getaffinity(0)) - 1, "a pool for each caller would be eight times as many"


def test_an_error_in_one_thread_reaches_that_thread_alone() -> None:
    script = f"""{PRELUDE}
import dietcode
from concurrent.futures import ThreadPoolExecutor
library = dietcode.load(sys.argv[1])
check(library, 3)
def job(rows):
    try:
        check(library, rows, rows)
        return "right"
    except dietcode.errors.ShapeError as error:
        return "refused"
with ThreadPoolExecutor(8) as pool:
    rows = [1 + (i * 7) % 80 for i in range(160)]
    for n, outcome in zip(rows, pool.map(job, rows)):
        assert outcome == ("right" if n <= 70 else "refused"), (n, outcome)
"""
    python(script, built("rows"))


def test_the_first_caller_may_end() -> None:
    script = f"""{PRELUDE}
import dietcode
library = dietcode.load(sys.argv[1])
for _ in range(20):
    thread = threading.Thread(target=check, args=(library, 70))
    thread.start()
    thread.join()
check(library, 50)
"""
    python(script, built("rows"))


THREADED_CALL = "t = threading.Thread(target=check, args=(library, 70)); t.start(); t.join()"


@pytest.mark.parametrize(
    "before",
    [
        "pass",
        "check(library, 3)",
        THREADED_CALL,
        f"check(library, 3); {THREADED_CALL}",
    ],
    ids=["no call", "a call", "a thread's call", "both"],
)
def test_a_forked_child_can_call_too(before: str) -> None:
    """Workers of the parent's pool do not exist in the child; it must not wait for them."""
    script = f"""{PRELUDE}
import warnings; warnings.simplefilter("ignore")  # from 3.12 on Python warns of every such fork
import dietcode, multiprocessing
library = dietcode.load(sys.argv[1])
{before}
context = multiprocessing.get_context("fork")
children = [context.Process(target=check, args=(library, rows), daemon=True) for rows in (5, 70)]
for child in children: child.start()
for child in children:
    child.join(20)
    assert child.exitcode == 0, child.exitcode
check(library, 6)
"""
    python(script, built("rows"))
