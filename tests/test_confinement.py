"""What a confined process cannot do; each in a process of its own, as there is no way back."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import sqlite3
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import pytest

from dietcode import confinement
from dietcode.confinement import kept_environment, landlock, possible, system_calls
from dietcode.errors import CandidateError, TuningError
from dietcode.measure.answers import read_answer, write_answer
from dietcode.measure.apart import call_apart
from dietcode.measure.cpu_worker import CpuWorker
from dietcode.measure.handover import NO_ANSWER, Handover
from dietcode.measure.local import LocalChildren
from dietcode.measure.requests import BuildResult, TimeResult
from dietcode.target.cubin import KernelFacts

SECCOMP = pytest.mark.skipif(sys.platform != "linux", reason="seccomp is Linux's")
HEAD = """
import json, os, resource, socket, subprocess, sys, tempfile, threading
from dietcode.confinement import confine
found = {}
"""
TAIL = """
print(json.dumps(found))
"""


def confined(code: str, **environment: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", HEAD + code + TAIL],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@SECCOMP
def test_no_thread_and_no_child_reaches_a_network() -> None:
    found = confined(
        """
def attempt(family):
    try:
        socket.socket(family).close()
        return "got one"
    except PermissionError:
        return "refused"

found["before"] = attempt(socket.AF_INET)
found["done"] = confine().calls
families = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK)
found["families"] = [attempt(family) for family in families]
thread = threading.Thread(target=lambda: found.update(thread=attempt(socket.AF_INET)))
thread.start(); thread.join()
child = "import socket\\ntry: socket.socket()\\nexcept PermissionError: print('refused')"
found["child"] = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True).stdout.strip()
a, b = socket.socketpair(); a.send(b"x"); found["pair"] = b.recv(1).decode()
"""
    )
    assert (found["before"], found["done"], found["pair"]) == ("got one", True, "x")
    assert {*found["families"], found["thread"], found["child"]} == {"refused"}


@SECCOMP
def test_no_signal_and_no_key_is_sent_to_others() -> None:
    """By descriptors neither; to itself it sends them, as abort() and thread pools do."""
    found = confined(
        """
import errno, fcntl, pty, signal, struct
parent, here = os.getppid(), os.getpid()
a, b = socket.socketpair()
leader, terminal = pty.openpty()
confine(starts_processes=False)
libc = __import__("ctypes").CDLL(None, use_errno=True)
def attempt(call, *given):
    try:
        call(*given)
        return "done"
    except OSError as error:
        return errno.errorcode[error.errno]
found["others"] = {
    "kill": attempt(os.kill, parent, 0),
    "group": attempt(os.kill, 0, 0),
    "all": attempt(os.kill, -1, 0),
    "owner": attempt(fcntl.fcntl, a, fcntl.F_SETOWN, parent),
    "owner_ex": attempt(fcntl.fcntl, a, 15, struct.pack("ii", 1, parent)),
    "which": attempt(fcntl.fcntl, a, 10, 9),
    "socket": attempt(fcntl.ioctl, a, 0x8901, struct.pack("i", parent)),
    "group of a socket": attempt(fcntl.ioctl, a, 0x8902, struct.pack("i", parent)),
    "typed": attempt(fcntl.ioctl, terminal, 0x5412, b"x"),
    "console": attempt(fcntl.ioctl, terminal, 0x541C, bytes([3])),
    "by a descriptor": attempt(signal.pidfd_send_signal, os.pidfd_open(here), 0),
}
got = []
signal.signal(signal.SIGUSR1, lambda *_: got.append(1))
os.kill(here, signal.SIGUSR1); signal.raise_signal(signal.SIGUSR1)
signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
found["own"] = len(got)
fcntl.fcntl(a, fcntl.F_SETFL, fcntl.fcntl(a, fcntl.F_GETFL) | os.O_NONBLOCK)
found["size"] = len(fcntl.ioctl(terminal, 0x5413, bytes(8)))  # TIOCGWINSZ
"""
    )
    assert set(found["others"].values()) == {"EACCES"}, found
    assert (found["own"], found["size"]) == (3, 8)


@SECCOMP
def test_the_driver_of_a_gpu_may_listen_and_nothing_connects() -> None:
    found = confined(
        """
def attempt(family, kind=socket.SOCK_STREAM):
    try:
        with socket.socket(family, kind) as made:
            made.bind(chr(0) + f"dietcode-{os.getpid()}-{kind}")
            made.listen()
        return "listens"
    except PermissionError:
        return "refused"

server = socket.socket(socket.AF_UNIX); server.bind(chr(0) + f"dietcode-{os.getpid()}"); server.listen()
found["done"] = confine(drives_gpu=True).calls
kinds = (socket.SOCK_SEQPACKET, socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW)
found["local"] = [attempt(socket.AF_UNIX, kind | socket.SOCK_CLOEXEC) for kind in kinds]
found["network"] = [attempt(family) for family in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)]
try:
    socket.socket(socket.AF_UNIX).connect(server.getsockname())
except PermissionError:
    found["connected"] = "refused"
a, b = socket.socketpair(); a.send(b"x"); found["pair"] = b.recv(1).decode()
"""
    )
    assert found["done"]
    assert found["local"] == ["listens", "listens", "refused", "refused"]
    assert {*found["network"], found["connected"]} == {"refused"}
    assert found["pair"] == "x"


def test_files_memory_and_core_dumps_are_bounded(tmp_path: Path) -> None:
    found = confined(
        """
confine(max_bytes=4 << 30, temporary=os.environ["TMPDIR"])
for name in ("AS", "FSIZE", "CORE"):
    found[name] = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))
try:
    bytearray(5 << 30)
except MemoryError:
    found["memory"] = "refused"
with tempfile.NamedTemporaryFile() as file:
    found["temporary"] = os.path.dirname(file.name)
    try:
        os.posix_fallocate(file.fileno(), 0, 2 << 30)
    except OSError as error:
        found["file"] = error.strerror
""",
        TMPDIR=str(tmp_path),
    )
    assert (found["AS"], found["CORE"]) == ([4 << 30, 4 << 30], [0, 0])
    assert found["FSIZE"] == [1 << 30, 1 << 30]
    assert (found["memory"], found["file"]) == ("refused", "File too large")
    assert found["temporary"] == str(tmp_path)


def test_secrets_of_the_environment_are_gone() -> None:
    found = confined("confine()\nfound['names'] = sorted(os.environ)", DIETCODE_TOKEN="t", AWS_SECRET="s")
    assert "PATH" in found["names"]
    assert not {"DIETCODE_TOKEN", "AWS_SECRET"} & set(found["names"])
    assert kept_environment({"DIETCODE_TOKEN": "t", "PATH": "/bin", "TVM_NUM_THREADS": "2"}) == {
        "PATH": "/bin",
        "TVM_NUM_THREADS": "2",
    }


@SECCOMP
def test_children_that_build_and_measure_are_confined() -> None:
    def attempt() -> list[str]:
        import os
        import resource
        import socket

        try:
            socket.socket().close()
        except PermissionError:
            return ["refused", os.environ["TMPDIR"], str(resource.getrlimit(resource.RLIMIT_CORE)[0])]
        return ["got one"]

    children = LocalChildren(CpuWorker(1))
    try:
        children._runner.started.wait(60)
        children._runner.process.send(attempt)
        measuring = children._runner.process.recv()
        building = children._builders.submit(attempt).result(60)
        assert Path(measuring[1]).is_dir()
    finally:
        children.close()
    assert measuring == building == ["refused", measuring[1], "0"]
    assert not Path(measuring[1]).exists()


LANDLOCK = pytest.mark.skipif(not possible().files, reason="this kernel or container has no Landlock")
SECRET = "p4ssw0rd-of-a-database"


def by_value(function: Any) -> Any:
    """The same function as one that the child need not import."""
    return types.FunctionType(function.__code__, {"__builtins__": __builtins__, "__name__": "__main__"})


def attack(request: dict[str, Any]) -> dict[str, str]:
    """Try what generated code would that wants this machine's secrets; what was got, by what was tried."""
    import ctypes
    import os
    import signal
    import socket
    import sqlite3
    from pathlib import Path

    parent, found = request["parent"], {}

    def attempt(name: str, action: Any) -> None:
        try:
            found[name] = f"got {action()!r}"[:80]
        except (OSError, sqlite3.Error) as error:
            found[name] = "refused" if not isinstance(error, FileNotFoundError) else "not there"

    def peek() -> bytes:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.ptrace(16, parent, None, None) != 0:  # PTRACE_ATTACH
            raise OSError(ctypes.get_errno(), "ptrace")
        return b"attached"

    def leave() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(0x10000000) != 0:  # CLONE_NEWUSER
            raise OSError(ctypes.get_errno(), "unshare")

    def forge() -> str:
        pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        return str(pair)

    folder = Path(request["folder"])
    attempt("key", (folder / "keys" / "key.pem").read_bytes)
    attempt("listing", lambda: list(folder.iterdir()))
    attempt("shadow", Path("/etc/shadow").read_bytes)
    attempt("database", lambda: sqlite3.connect(folder / "dietcode.db").execute("SELECT * FROM tokens"))
    attempt("written", lambda: (folder / "new").write_bytes(b"x"))
    attempt("moved", lambda: Path(os.environ["TMPDIR"]).rename(folder / "moved"))
    attempt("linked", lambda: Path(os.environ["TMPDIR"], "key").hardlink_to(folder / "keys" / "key.pem"))
    attempt("environ", Path(f"/proc/{parent}/environ").read_bytes)
    attempt("memory", lambda: os.open(f"/proc/{parent}/mem", os.O_RDWR))
    attempt("descriptors", lambda: list(Path(f"/proc/{parent}/fd").iterdir()))
    attempt("root", lambda: list(Path(f"/proc/{parent}/root").iterdir()))
    attempt("ptrace", peek)
    attempt("pair", forge)
    attempt("namespace", leave)
    attempt("home", lambda: list(Path.home().iterdir()))
    attempt("program", lambda: (Path(request["program"]) / "errors.py").open("a").close())
    if request["signals"]:
        attempt("signal", lambda: os.kill(parent, signal.SIGCONT))
    return found


@LANDLOCK
def test_a_hostile_child_gets_nothing(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "key.pem").write_text("private")
    sqlite3.connect(tmp_path / "dietcode.db").execute("CREATE TABLE tokens (digest)").connection.commit()
    request = {
        "parent": os.getpid(),
        "folder": str(tmp_path),
        "program": str(Path(confinement.__file__).parent.parent),
        "signals": landlock.version() >= 6,
    }
    children = LocalChildren(CpuWorker(1))
    try:
        children._runner.started.wait(60)
        children._runner.process.send(by_value(attack), (request,))
        measuring = children._runner.process.recv(60)
        building = children._builders.submit(by_value(attack), request).result(60)
    finally:
        children.close()
    assert set(measuring.values()) == {"refused"}, measuring
    assert set(building.values()) == {"refused"}, building
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dietcode.db", "keys"]


class Runs:
    """Pickled, it has a function called where it is read."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.marker),)


def test_an_answer_of_a_child_runs_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "was-here"
    with pytest.raises(ChildProcessError, match="mkdir, which none may hold"):
        read_answer(pickle.dumps((True, Runs(marker))))
    assert not marker.exists()
    result = TimeResult((1.0,), {"kernels": {"a": KernelFacts(1, 2, 3, 4)}})
    assert read_answer(write_answer(True, result)) == (True, result)
    for wrong in (b"", b"\x80", pickle.dumps(3), pickle.dumps((1, 2, 3)), pickle.dumps((False, {}))):
        with pytest.raises(ChildProcessError, match="no answer that can be read"):
            read_answer(wrong)


def test_an_answer_of_a_child_alters_no_class() -> None:
    kind = b"\x8c\x19dietcode.measure.requests\x8c\x0aTimeResult\x93"
    named = b"cdietcode.measure.requests\nTimeResult\n"
    altered = b"N}\x8c\x06failedK\x07s\x86b"  # a state that sets attributes
    for record in (kind, named):
        with pytest.raises(ChildProcessError, match="written with"):
            read_answer(b"\x80\x05(\x88" + record + altered + b"t.")
    assert TimeResult.failed("why").error == "why"


def test_a_small_answer_takes_little_memory() -> None:
    far = b"\x80\x05\x88r\xff\xff\xff\x7f\x88\x86."  # it has a table of 2^31 entries made
    with pytest.raises(ChildProcessError, match="written with LONG_BINPUT"):
        read_answer(far)
    with pytest.raises(ChildProcessError, match="more than 1000000 values"):
        read_answer(b"\x80\x05\x88(" + b"\x8f" * (1 << 20) + b"l\x86.")
    assert read_answer(write_answer(True, b"x" * (1 << 24))) == (True, b"x" * (1 << 24))


def start_one() -> str:
    import os
    import subprocess
    import sys

    found = []
    for start in (os.fork, lambda: subprocess.run([sys.executable, "-c", "pass"], check=False)):
        try:
            if start() == 0:
                os._exit(0)
            found.append("started")
        except PermissionError:
            found.append("refused")
    return " ".join(found)


def renice(parent: int) -> str:
    import os
    import threading

    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    found = []
    for action in (
        lambda: os.setpriority(os.PRIO_PROCESS, parent, 19),
        lambda: os.setpriority(os.PRIO_USER, os.getuid(), 19),
        lambda: os.sched_setscheduler(parent, os.SCHED_BATCH, os.sched_param(0)),
    ):
        try:
            found.append(f"got {action()}")
        except PermissionError:
            found.append("refused")
    return " ".join(found)


@SECCOMP
def test_what_runs_generated_code_starts_no_process_and_slows_nobody() -> None:
    children = LocalChildren(CpuWorker(1))
    try:
        children._runner.started.wait(60)
        children._runner.process.send(by_value(start_one))
        assert children._runner.process.recv(60) == "refused refused"
        children._runner.process.send(by_value(renice), (os.getpid(),))
        assert children._runner.process.recv(60) == "refused refused refused"
        assert "refused" not in children._builders.submit(by_value(start_one)).result(60)  # the linker
    finally:
        children.close()


def test_a_built_file_is_no_link(tmp_path: Path) -> None:
    secret, wanted, handover = tmp_path / "secret", tmp_path / "library.so", Handover(tmp_path / "children")
    handover.folder.mkdir()
    secret.write_text(SECRET)
    written = Path(handover.new_path(str(wanted)))
    written.symlink_to(secret)
    assert handover.taken(BuildResult(str(wanted), 1, 1.0), str(written), str(wanted)).error
    written.unlink()
    os.mkfifo(written)
    assert handover.taken(BuildResult(str(wanted), 1, 1.0), str(written), str(wanted)).error
    assert not wanted.exists()
    assert handover.taken({"path": "x"}, str(written), str(wanted)).error == NO_ANSWER
    wanted.write_text("code")
    ahead = handover.folder / "2-library.so"  # the name of the next copy
    ahead.symlink_to(tmp_path / "victim")
    handover._numbers = itertools.count(2)
    assert handover.shown(str(wanted)) == str(wanted)
    assert not (tmp_path / "victim").exists()


def test_what_a_kernel_lacks_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "version", lambda: 0)
    assert any("Landlock" in line for line in possible().missing())
    assert not landlock.keep_only([], [])
    monkeypatch.setattr(system_calls, "can_filter", lambda: False)
    for separates in (True, False):
        monkeypatch.setattr(confinement, "can_separate", lambda found=separates: found)
        monkeypatch.setattr(os, "getuid", lambda: 1000)
        assert len(possible().missing()) == 3 - separates
        monkeypatch.setattr(os, "getuid", lambda: 0)
        assert len(possible().missing()) == 4 - separates
    assert not system_calls.refuse_calls(False)


@LANDLOCK
@pytest.mark.skipif(os.getuid() != 0, reason="others than root are bounded by the kernel")
def test_root_that_becomes_nobody_else_says_that_threads_are_not_bounded() -> None:
    found = confined(
        """
import ctypes
from dietcode.confinement import possible
from dietcode.confinement.users import can_become
found["can"] = [can_become(), *possible().missing()]
header, low = (ctypes.c_uint32 * 2)(0x20080522, 0), 1 << 5  # CAP_KILL alone
ctypes.CDLL(None).capset(header, (ctypes.c_uint32 * 6)(low, low, 0, 0, 0, 0))
found["cannot"] = [can_become(), *possible().missing()]
confine(temporary=os.environ["TMPDIR"])
found["user"] = os.getuid()
""",
        TMPDIR=tempfile.gettempdir(),
    )
    assert found["cannot"][0] is False
    assert found["user"] == 0
    assert "threads and processes are not bounded" in found["cannot"][-1]
    assert not found["can"][0] or found["can"] == [True]


@LANDLOCK
def test_processes_are_bounded_for_root_too(tmp_path: Path) -> None:
    found = confined(
        """
import ctypes, signal
from dietcode.lifeline import die_with_parent
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
die_with_parent()
confine(temporary=os.environ["TMPDIR"], max_cpu_secs=99)
libc, death = ctypes.CDLL(None), ctypes.c_int()
resource.setrlimit(resource.RLIMIT_NPROC, (20, 20))
found["CPU"] = resource.getrlimit(resource.RLIMIT_CPU)
began = []
try:
    for _ in range(60):
        began.append(os.fork())
        if began[-1] == 0:
            signal.pause()
except OSError as error:
    found["refused"] = error.strerror
for pid in began:
    os.kill(pid, signal.SIGKILL)
try:
    os.wait()  # where the signal of ended children is ignored, it returns when all are gone
except ChildProcessError:
    pass
found["user"] = os.getuid()
again = "import os, sys; print(os.getuid(), os.access(sys.argv[1], os.W_OK)); open(sys.argv[1] + '/x', 'w')"
done = subprocess.run([sys.executable, "-c", again, os.environ["TMPDIR"]], capture_output=True, text=True)
found["child"] = done.stdout.split() or done.stderr
found["death"] = (libc.prctl(2, ctypes.byref(death), 0, 0, 0), death.value)
""",
        TMPDIR=str(tmp_path),
    )
    if os.getuid() == 0 and found["user"] == 0:
        pytest.skip("needs the right to make namespaces, or to become another user")
    assert found["refused"] == "Resource temporarily unavailable"
    assert found["CPU"] == [99, 99]
    assert found["child"] == [str(found["user"]), "True"]
    assert found["death"] == [0, 9]


def spin(_: int) -> int:
    while True:
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="seconds of CPU are bounded on Linux")
def test_a_call_apart_ends_in_time_and_says_why() -> None:
    with pytest.raises(TuningError, match=r"took longer than 0 s and was ended|Subprocess terminated"):
        call_apart(by_value(spin), 1, timeout_secs=0.3)
    with pytest.raises(CandidateError, match="no such tile"):
        call_apart(by_value(refuse), "no such tile")
    with pytest.raises(TuningError, match="ZeroDivisionError"):
        call_apart(by_value(divide))
    assert call_apart(by_value(attempts)) == "refused"


def refuse(what: str) -> None:
    from dietcode.errors import CandidateError

    raise CandidateError(what)


def divide() -> float:
    return 1 / 0


def attempts() -> str:
    import socket

    try:
        socket.socket().close()
    except PermissionError:
        return "refused"
    return "got one"


@pytest.mark.skipif(sys.platform != "linux", reason="variables of a process are files on Linux only")
def test_a_server_hides_its_variables() -> None:
    found = confined(
        """
import ctypes
from dietcode.confinement.parents import hide_secrets
with open("/proc/self/environ", "rb") as file:
    found["before"] = os.environ["DIETCODE_SERVE_DATABASE_URL"].encode() in file.read()
    hide_secrets()
    file.seek(0)
    after = file.read()
found["after"] = b"p4ssw0rd" in after
found["path"] = b"PATH=" + os.environ["PATH"].encode() in after
found["own"] = os.environ["DIETCODE_SERVE_DATABASE_URL"]
libc = ctypes.CDLL(None)
libc.getenv.restype = ctypes.c_char_p
found["in C"] = libc.getenv(b"DIETCODE_SERVE_DATABASE_URL").decode()
command = [sys.executable, "-c", "import os; print(os.environ['DIETCODE_SERVE_DATABASE_URL'])"]
found["child"] = subprocess.run(command, capture_output=True, text=True).stdout.strip()
found["dumpable"] = libc.prctl(3, 0, 0, 0, 0)
hide_secrets()
found["again"] = os.environ["DIETCODE_SERVE_DATABASE_URL"]
""",
        DIETCODE_SERVE_DATABASE_URL=f"postgresql://me:{SECRET}@host/name",
    )
    url = f"postgresql://me:{SECRET}@host/name"
    assert (found["before"], found["after"], found["path"], found["dumpable"]) == (True, False, True, 0)
    assert found["own"] == found["in C"] == found["child"] == found["again"] == url


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux only")
def test_an_orphan_stays_below_its_worker() -> None:
    found = confined(
        """
import psutil
from dietcode.lifeline import adopt_orphans
adopt_orphans()
orphan = "import subprocess as s; print(s.Popen(['sleep', '60'], start_new_session=True, stdout=2).pid)"
pid = int(subprocess.run([sys.executable, "-c", orphan], stdout=subprocess.PIPE, text=True).stdout)
found["below"] = pid in [child.pid for child in psutil.Process().children(recursive=True)]
os.kill(pid, 9)
"""
    )
    assert found["below"]
