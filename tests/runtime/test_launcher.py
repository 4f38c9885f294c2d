"""The launcher: whose threads run a call, how many, and that they rest; races by sanitizers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import tvm_ffi.libinfo
from fresh_process import PRELUDE, python
from needs import of_extra
from sanitized import run_sanitized
from small_libraries import built

import dietcode
from dietcode.errors import LibraryError
from dietcode.runtime import compile_launcher, threads
from dietcode.runtime.threads import Threads

HERE = Path(__file__).parent
# Threads of the pool by their name, and all others.
WATCH = f"""{PRELUDE}
import dietcode
from pathlib import Path

def tasks(pool=True):
    found = Path("/proc/self/task").iterdir()
    return {{int(task.name) for task in found if ((task / "comm").read_text() == "dietcode\\n") == pool}}

def ticks(task):
    return sum(map(int, Path(f"/proc/self/task/{{task}}/stat").read_text().rpartition(")")[2].split()[11:13]))
"""
QUIET = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "3"}


@pytest.mark.thorough
@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_many_calls_at_once_under_a_sanitizer(tmp_path: Path, sanitizer: str) -> None:
    """Each element of each loop is written once, errors reach their caller, and a forked child calls too."""
    options = [] if "address" in sanitizer else ["without a fork"]
    run_sanitized(tmp_path, sanitizer, compile_launcher.SOURCES, HERE / "stress.c", options)


def test_a_worker_without_a_core_gets_the_caller_s(tmp_path: Path) -> None:
    library = Path(tvm_ffi.libinfo.find_libtvm_ffi())
    sources = [*sorted(compile_launcher.SOURCES.glob("*.c")), HERE / "lent.c"]
    flags = [f"-I{path}" for path in (compile_launcher.SOURCES, *tvm_ffi.libinfo.include_paths())]
    linked = [library, f"-Wl,-rpath,{library.parent}", "-ldl"]
    program = tmp_path / "lent"
    subprocess.run(["cc", "-std=c11", "-pthread", *flags, *sources, *linked, "-o", program], check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


@pytest.mark.thorough
@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_loops_over_structures_under_a_sanitizer(tmp_path: Path, sanitizer: str) -> None:
    """Structures that are none, very wide, very deep or random stay in their memory; so do programs."""
    run_sanitized(tmp_path, sanitizer, compile_launcher.LOOP_SOURCES, HERE / "loops_stress.c", [])


def test_each_library_has_its_own_number_of_threads() -> None:
    script = f"""{WATCH}
one = dietcode.load(sys.argv[1], num_threads=1)
x, w = np.random.default_rng(0).random((70, 37), np.float32), np.ones((100, 37), np.float32)
w = one.pack(W=w * np.arange(1, 38, dtype=np.float32))
four = dietcode.load(sys.argv[1], num_threads=4)
two = dietcode.load(sys.argv[1], num_threads=2)
check(one, 70)
assert not tasks()
check(two, 70)
assert len(tasks()) == 1
check(four, 70)
assert len(tasks()) == 3
check(one, 70); check(two, 70)
assert len(tasks()) == 3
results = [library(X=x, W=w).tobytes() for library in (one, two, four, four)]
assert len(set(results)) == 1, "to the bit"
"""
    python(script, built("rows"), env=QUIET)


def test_a_signals_handler_may_call_while_it_interrupts_a_call() -> None:
    script = f"""{PRELUDE}
import dietcode, signal
library = dietcode.load(sys.argv[1], num_threads=2)
check(library, 1)
x, w, handled = np.ones((70, 37), np.float32), library.pack(W=np.ones((100, 37), np.float32)), []
def handler(*_):
    handled.append((library(X=x[:33], W=w) == 37).all())
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.003)
while len(handled) < 50:
    assert (library(X=x, W=w) == 37).all()
signal.setitimer(signal.ITIMER_REAL, 0)
assert all(handled)
"""
    python(script, built("rows"))


def test_a_small_call_wakes_nobody() -> None:
    """One thread computes it sooner; how long it takes is noted as it runs, so a machine that halts it may be
    taken for a larger loop a few times."""
    script = f"""{WATCH}
import time
library = dietcode.load(sys.argv[1], num_threads=2)
x, w = np.ones((70, 37), np.float32), library.pack(W=np.ones((100, 37), np.float32))
def switches():
    (task,) = tasks()
    lines = Path(f"/proc/self/task/{{task}}/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)
for rows in [70, *[1] * 200]:
    assert (library(X=x[:rows], W=w) == 37).all()
found = []
while len(found) < 5 and min(found, default=200) >= 20:
    time.sleep(0.2)
    before = switches()
    for _ in range(200):
        assert (library(X=x[:1], W=w) == 37).all()
        time.sleep(0.0005)
    found.append(switches() - before)
assert min(found) < 20, f"a worker that each call woke would have run 200 times: {{found}}"
"""
    python(script, built("rows"), env=QUIET)


def test_workers_sleep_once_the_calls_are_over() -> None:
    """A thread that waits awake would use up time of its own, on a busy machine as well."""
    script = f"""{WATCH}
import time
library = dietcode.load(sys.argv[1], num_threads=3)
for _ in range(300):
    check(library, 70)
assert len(tasks()) == 2
used = []
while len(used) < 2 or used[-1] != used[-2]:
    assert len(used) < 20, used
    used.append({{task: ticks(task) for task in tasks()}})
    time.sleep(0.5)
"""
    python(script, built("rows"), env=QUIET)


def test_calls_leave_nothing_behind() -> None:
    """The library's tasks take workspaces."""
    script = f"""{WATCH}
import resource
library = dietcode.load(sys.argv[1], num_threads=2)
p, v = np.ones((3, 9, 9), np.float32), np.ones((3, 9, 20), np.float32)
out = np.empty((3, 9, 20), np.float32)
def calls(number):
    for _ in range(number):
        library(P=p, V=v, out=out)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, len(tasks())
first = calls(1000)
last = calls(100_000)
assert last[0] - first[0] < 1024 and last[1] == first[1], (first, last)
assert (out == 9).all()
"""
    python(script, built("bmm"), timeout_secs=240)


def test_workers_follow_a_process_that_is_confined() -> None:
    script = f"""{WATCH}
library = dietcode.load(sys.argv[1], num_threads=3)
check(library, 70)
core = min(os.sched_getaffinity(0))
for task in tasks() | tasks(pool=False):
    os.sched_setaffinity(task, {{core}})
for rows in range(1, 71):
    check(library, rows)
assert len(tasks()) == 2 and all(os.sched_getaffinity(task) == {{core}} for task in tasks())
"""
    python(script, built("rows"), env=QUIET)


@pytest.mark.thorough
def test_torch_tensors_are_computed_by_pytorchs_team() -> None:
    pytest.importorskip("torch", reason=of_extra("bench"))
    script = f"""{WATCH}
import torch
torch.set_num_threads(1)
library = dietcode.load(sys.argv[1], threads="host")
x, w = torch.randn(70, 37), torch.randn(100, 37)
packed, right = library.pack(W=w), x @ w.T
before = tasks(pool=False)
for _ in range(20):
    assert torch.allclose(library(X=x, W=packed), right, atol=1e-4)
assert tasks(pool=False) == before, "it follows set_num_threads"
torch.set_num_threads(3)
for _ in range(20):
    assert torch.allclose(library(X=x, W=packed), right, atol=1e-4)
assert len(tasks(pool=False) - before) == 2
assert not tasks()
"""
    python(script, built("rows"), env=QUIET)


MIXED = f"""{PRELUDE}
import torch
import dietcode
library = dietcode.load(sys.argv[1])
rng = np.random.default_rng(0)
w = rng.standard_normal((100, 37), dtype=np.float32)
packed, failures, done = library.pack(W=w), [], []
def caller(number):
    try:
        for rows in range(1, 71):
            x = rng_of[number].standard_normal((rows, 37), dtype=np.float32)
            given = torch.from_numpy(x) if number % 2 else x
            for _ in range(5):
                y = library(X=given, W=packed)
                assert isinstance(y, torch.Tensor if number % 2 else np.ndarray)
                if not np.allclose(np.asarray(y), x @ w.T, atol=1e-4):
                    failures.append((number, rows))
        done.append(number)
    except BaseException as error:
        failures.append(repr(error))
rng_of = [np.random.default_rng(n) for n in range(4)]
callers = [threading.Thread(target=caller, args=(n,)) for n in range(4)]
for c in callers: c.start()
for c in callers: c.join()
assert not failures and len(done) == 4, failures[:3]
"""


@pytest.mark.thorough
@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize("team", ["auto", "own", "host"])
def test_four_threads_call_with_tensors_of_both_kinds(team: str) -> None:
    pytest.importorskip("torch", reason=of_extra("bench"))
    python(MIXED, built("rows"), env={"DIETCODE_THREADS": team})


@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize("team", ["auto", "own", "host"])
def test_a_child_forked_after_calls_with_torch_tensors(team: str) -> None:
    """PyTorch's own operators may wait for ever there, where they are parallel; calls do not."""
    pytest.importorskip("torch", reason=of_extra("bench"))
    script = f"""{WATCH}
import warnings; warnings.simplefilter("ignore")  # from 3.12 on Python warns of every such fork
import torch
library = dietcode.load(sys.argv[1])
x, w = torch.ones(70, 37), torch.ones(100, 37)
packed = library.pack(W=w)
for _ in range(5):
    assert (library(X=x, W=packed) == 37).all()
out = torch.empty(70, 100)
child = os.fork()
if child == 0:
    for _ in range(5):
        library(X=x, W=packed, out=out)
    os._exit(0 if (out.numpy() == 37).all() else 1)
assert os.waitpid(child, 0)[1] == 0
assert (library(X=x, W=packed) == 37).all()
"""
    python(script, built("rows"), env={"DIETCODE_THREADS": team} | QUIET)


def library_of(tmp_path: Path, text: str) -> Path:
    """A shared library from C."""
    (tmp_path / "made.c").write_text(text)
    command = ["cc", "-shared", "-fPIC", tmp_path / "made.c", "-o", tmp_path / "made.so"]
    subprocess.run(command, check=True)
    return tmp_path / "made.so"


def test_a_program_with_openmp_and_without_pytorch_has_a_team() -> None:
    """As with a PyTorch before 2.10."""
    script = f"""{WATCH}
import ctypes
try:
    ctypes.CDLL("libgomp.so.1", mode=ctypes.RTLD_GLOBAL)
except OSError:
    print("none")
    sys.exit()
library = dietcode.load(sys.argv[1], threads="host")
before = tasks(pool=False)
for rows in range(1, 71):
    check(library, rows)
assert not tasks() and len(tasks(pool=False) - before) == 2
"""
    if python(script, built("rows"), env=QUIET).strip() == "none":
        pytest.skip("this machine has no libgomp.so.1")


def test_a_team_that_is_waited_for_is_left_alone(tmp_path: Path) -> None:
    """As one whose second thread has lost its core."""
    team = """
    #include <time.h>
    int calls;
    void GOMP_parallel(void (*part)(void *), void *data, unsigned n, unsigned flags) {
      struct timespec some = {0, 5000000};
      calls++;
      part(data);
      nanosleep(&some, 0);
    }
    int omp_get_max_threads(void) { return 2; }
    int omp_get_thread_num(void) { return 0; }
    """
    script = f"""{WATCH}
import ctypes
from dietcode.runtime.threads import Threads
team = ctypes.CDLL(sys.argv[2], mode=ctypes.RTLD_GLOBAL)
calls = ctypes.c_int.in_dll(team, "calls")
library = dietcode.load(sys.argv[1], threads="host")
for _ in range(100):
    check(library, 70)
assert calls.value >= 100, "it is told to"
calls.value = 0
library = dietcode.load(sys.argv[1])
library._run = library._run_beside_torch
library._prepare_calls()
for _ in range(1000):
    check(library, 70)
assert 1 <= calls.value <= 20, calls.value
"""
    python(script, built("rows"), library_of(tmp_path, team))


def test_a_team_on_the_callers_cpu_is_left_alone(tmp_path: Path) -> None:
    """Its second thread does all, while the caller waits: no run shows how long one thread takes."""
    team = """
    #define _GNU_SOURCE
    #include <pthread.h>
    #include <sched.h>
    #include <time.h>
    int calls;
    static _Thread_local int index;
    static void (*body)(void *);
    static void *second(void *data) {
      struct timespec some = {0, 1000000};
      index = 1;
      body(data);
      nanosleep(&some, 0);
      return 0;
    }
    void GOMP_parallel(void (*part)(void *), void *data, unsigned n, unsigned flags) {
      pthread_t thread;
      pthread_attr_t options;
      cpu_set_t mask;
      int cpu = sched_getcpu();
      calls++;
      body = part;
      CPU_ZERO(&mask);
      CPU_SET(cpu, &mask);
      pthread_attr_init(&options);
      pthread_attr_setaffinity_np(&options, sizeof mask, &mask);
      pthread_create(&thread, &options, second, data);
      pthread_join(thread, 0);
      part(data);
    }
    int omp_get_max_threads(void) { return 2; }
    int omp_get_thread_num(void) { return index; }
    """
    script = f"""{WATCH}
import ctypes
team = ctypes.CDLL(sys.argv[2], mode=ctypes.RTLD_GLOBAL)
calls = ctypes.c_int.in_dll(team, "calls")
library = dietcode.load(sys.argv[1])
library._run = library._run_beside_torch
library._prepare_calls()
for _ in range(1000):
    check(library, 70)
assert 1 <= calls.value <= 100, calls.value
"""
    python(script, built("rows"), library_of(tmp_path, team))


def test_a_team_that_has_slept_is_left_alone(tmp_path: Path) -> None:
    """The kernel may wake its threads on the caller's core."""
    team = """
    int calls;
    void GOMP_parallel(void (*part)(void *), void *data, unsigned n, unsigned flags) {
      calls++;
      part(data);
    }
    int omp_get_max_threads(void) { return 2; }
    int omp_get_thread_num(void) { return 0; }
    """
    script = f"""{WATCH}
import ctypes, time
team = ctypes.CDLL(sys.argv[2], mode=ctypes.RTLD_GLOBAL)
calls = ctypes.c_int.in_dll(team, "calls")
library = dietcode.load(sys.argv[1])
library._run = library._run_beside_torch
library._prepare_calls()
x, w = np.ones((70, 37), np.float32), library.pack(W=np.ones((100, 37), np.float32))
def called(sizes, pause):  # the first call of a shape is one of several threads
    before = calls.value
    for rows in sizes:
        pause(0.03)
        assert (library(X=x[:rows], W=w) == 37).all()
    return calls.value - before
def busy(secs):
    until = time.perf_counter() + 2e-4
    while time.perf_counter() < until:
        pass
first, asleep, after = called(range(1, 20), lambda secs: None), called(range(20, 40), time.sleep), 0
for rows in range(40, 70, 3):
    time.sleep(0.03)
    after += called(range(rows, rows + 3), busy)
assert first > 0 and asleep == 0 and after < 10, (first, asleep, after)
"""
    python(script, built("rows"), library_of(tmp_path, team))


@pytest.mark.parametrize("team", ["all", "", "OWN", 3])
def test_threads_of_nobody(team: object, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LibraryError, match=r"^threads: given .*; allowed: auto, own, host$"):
        dietcode.load(built("dense"), threads=team)  # type: ignore[arg-type]
    monkeypatch.setenv("DIETCODE_THREADS", "none")
    with pytest.raises(LibraryError, match=r"^DIETCODE_THREADS: given 'none'; allowed: auto, own, host$"):
        dietcode.load(built("dense"))


def test_what_load_and_the_environment_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "available_cores", lambda: 4)
    assert Threads.of(None, None, 2) == Threads(2, "auto", 4)
    assert Threads.of(None, None, 9) == Threads(4, "auto", 4)
    assert Threads.of(9, None, 2) == Threads(9, "own", 4), "a team has as many threads as it has"
    assert Threads.of(9, "host", 2) == Threads(9, "host", 4)
    monkeypatch.setenv("DIETCODE_THREADS", "own")
    assert Threads.of(None, None, 2).team == "own" and Threads.of(None, "host", 2).team == "host"
    monkeypatch.setenv("DIETCODE_THREADS", "")
    assert Threads.of(None, None, 2).team == "auto"


def test_a_launcher_that_was_not_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "LAUNCHER", tmp_path / "launcher.so")
    threads._launcher.cache_clear()
    with pytest.raises(LibraryError, match=r"missing; compile it: .* -m dietcode.runtime.compile_launcher$"):
        dietcode.load(built("dense"))
    threads._launcher.cache_clear()


def test_compiling_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CC", raising=False)
    command = [sys.executable, "-m", "dietcode.runtime.compile_launcher"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HERE.parents[1])
    assert done.returncode == 1 and "install cc, gcc or clang, or set CC" in done.stderr
    monkeypatch.setenv("CC", "/nonexistent/cc -m64")
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HERE.parents[1])
    said = "/nonexistent/cc: No such file or directory; set CC to a C compiler\n"
    assert (done.returncode, done.stderr) == (1, said)
    assert compile_launcher.LAUNCHER.is_file(), "what there was stays"
