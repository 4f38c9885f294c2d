"""What a confined process has started ends with it, whoever kills whom; for root and for others."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from dietcode.confinement import landlock

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are enclosed on Linux only")
_ORDINARY = 65534
_WORKER = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], *sys.argv[2:]])
print(child.pid, flush=True)
time.sleep(60)
"""
_NO_NAMESPACES = """
import ctypes, os, struct, sys, time
from dietcode.confinement import confine, landlock, possible, system_calls
from dietcode.lifeline import die_with_parent

def refuse_namespaces():  # as the rules that Docker has of its own do
    libc, column = ctypes.CDLL(None, use_errno=True), system_calls._MACHINES[os.uname().machine][1]
    number = system_calls._REFUSED["unshare"][column]
    steps = [("", (0x20, 0, "", "")), ("", (0x15, number, "refuse", "allow"))]
    code = b"".join(struct.pack("HBBI", *step) for step in system_calls._assembled(steps))
    buffer = ctypes.create_string_buffer(code)
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.c_char_p(program), 0, 0) == 0
    assert libc.unshare(0x20000000) == -1
"""
_CONFINED = """
how, what, folder = sys.argv[1:]
if how == "kept":
    refuse_namespaces()
die_with_parent()
confine(temporary=folder)
end = time.monotonic() + 60  # whatever becomes of the test
file = open(os.path.join(folder, "trace"), "ab", buffering=0)
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)  # so that the other is an orphan
    while time.monotonic() < end:
        file.write(b"x")
        if what == "sleeps":
            time.sleep(0.01)
        elif os.fork():
            os._exit(0)
time.sleep(60)
"""
_OTHERS_SEE_THIS_PYTHON = """
set -e
mkdir -p {held}
mount --bind {base} {held}
mount -t tmpfs -o mode=755 none {closed}
mkdir -p {base}
mount --bind {held} {base}
exec setpriv --reuid {user} --regid {user} --clear-groups "$@"
"""


def as_ordinary_user(command: list[str], folder: Path) -> list[str]:
    """A command as somebody who is not root; `folder` becomes theirs."""
    if os.getuid() != 0:
        return command
    os.chown(folder, _ORDINARY, _ORDINARY)
    base = Path(sys.base_prefix).resolve()
    closed = [path for path in base.parents if path.stat().st_mode & 0o005 != 0o005]
    if closed:  # as where root's home has it: it is shown to this command, in a namespace of mounts
        held = folder.parent / "python"
        script = _OTHERS_SEE_THIS_PYTHON.format(held=held, base=base, closed=closed[-1], user=_ORDINARY)
        return ["unshare", "--mount", "bash", "-c", script, "bash", *command]
    return ["setpriv", "--reuid", str(_ORDINARY), "--regid", str(_ORDINARY), "--clear-groups", *command]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that an ordinary user can reach."""
    made = tmp_path / "own"
    made.mkdir()
    for path in (made, *made.parents):
        if path.stat().st_uid == os.getuid() and not path.stat().st_mode & 0o001:
            path.chmod(path.stat().st_mode | 0o011)
    return made


def wrote(trace: Path) -> int:
    return trace.stat().st_size if trace.exists() else 0


def separates(who: str, folder: Path) -> bool:
    """Whether this machine makes namespaces of processes for them."""
    command = ["unshare", "--pid", "--fork", "true"]
    if who != "root":
        command = as_ordinary_user([*command[:1], "--user", *command[1:]], folder)
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


@pytest.mark.parametrize("who", ["root", "ordinary"])
@pytest.mark.parametrize(
    ("how", "what", "killed"),
    [
        ("separate", "forks again and again", "worker"),
        ("separate", "forks again and again", "keeper"),
        ("separate", "forks again and again", "child"),
        ("kept", "sleeps", "worker"),
        ("kept", "sleeps", "child"),
        ("kept", "forks again and again", "worker"),
        ("kept", "forks again and again", "child"),
    ],
)
def test_nothing_outlives_what_started_it(who: str, how: str, what: str, killed: str, folder: Path) -> None:
    if os.getuid() == 0 and any(shutil.which(name) is None for name in ("unshare", "setpriv")):
        pytest.skip("needs root, for mounts and namespaces, and util-linux")
    if who == "root" and os.getuid() != 0:
        pytest.skip("needs root, for mounts and namespaces")
    if how == "separate" and not separates(who, folder):
        pytest.skip("needs the right to make namespaces")
    if (how, what, who) == ("kept", "forks again and again", "ordinary") and not landlock.can_keep_signals():
        pytest.skip("needs Landlock as of Linux 6.12")
    command = [sys.executable, "-c", _WORKER, _NO_NAMESPACES + _CONFINED, how, what, str(folder)]
    if who == "ordinary":
        command = as_ordinary_user(command, folder)
    trace = folder / "trace"
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        try:
            keeper = psutil.Process(int(worker.stdout.readline()))
            until = time.monotonic() + 120  # a busy machine may take long to start three processes
            while not wrote(trace):
                assert time.monotonic() < until and worker.poll() is None
                time.sleep(0.01)
            child = keeper.children()[0]
            {"worker": psutil.Process(worker.pid), "keeper": keeper, "child": child}[killed].kill()
            size, until = -1, time.monotonic() + 10
            while wrote(trace) != size:
                assert time.monotonic() < until, "it goes on"
                size = wrote(trace)
                time.sleep(0.5)
        finally:
            worker.kill()
    assert size > 0


@pytest.mark.skipif(not landlock.can_keep_signals(), reason="needs Landlock as of Linux 6.12")
def test_an_ordinary_user_without_namespaces_is_confined_or_says_so(folder: Path) -> None:
    if os.getuid() == 0 and any(shutil.which(name) is None for name in ("unshare", "setpriv")):
        pytest.skip("needs root, for mounts and namespaces, and util-linux")
    code = """
refuse_namespaces()
found = {"said": possible().missing()}
outside = os.getppid()
newer, landlock.can_keep_signals = landlock.can_keep_signals, lambda: False
found["said by an older kernel"], enough = possible().missing(), possible().is_enough
if sys.argv[2] == "newer":
    landlock.can_keep_signals = newer
found["does"] = confine(temporary=sys.argv[1]).processes
for name, pid in (("keeper", os.getppid()), ("outside", outside), ("all", -1)):
    try:
        os.kill(pid, 0)
        found[name] = "sent"
    except OSError as error:
        found[name] = type(error).__name__
print(found, enough)
"""
    for kernel in ("newer", "older"):
        command = [sys.executable, "-c", _NO_NAMESPACES + code, str(folder), kernel]
        done = subprocess.run(
            as_ordinary_user(command, folder), capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        text, _, enough = done.stdout.strip().rpartition(" ")
        found = ast.literal_eval(text)
        assert (found["said"], enough) == ((), "True")
        (line,) = found["said by an older kernel"]
        assert "send signals" in line
        assert found["does"] is (kernel == "newer")
        assert (found["keeper"], found["outside"]) == ("PermissionError", "PermissionError")


def test_the_keeper_ends_as_what_it_keeps(tmp_path: Path) -> None:
    for way, status in (("os._exit(7)", 7), ("os.kill(os.getpid(), 9)", -9), ("os.abort()", None), ("", 0)):
        code = "import os\nfrom dietcode.confinement import confine\n"
        code += f"confine(temporary={str(tmp_path)!r})\n{way}"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=30)
        if status is None:  # the first process of a namespace is not ended by a signal of its own
            assert done.returncode < 0
        elif status < 0:
            assert done.returncode in (status, 0)
        else:
            assert done.returncode == status


def test_to_end_with_the_parent_is_not_taken_back(tmp_path: Path) -> None:
    code = """
import ctypes, json
from dietcode.confinement import confine
from dietcode.lifeline import die_with_parent
die_with_parent()
confine(temporary=%r, starts_processes=False)
libc, found = ctypes.CDLL(None), ctypes.c_int()
answers = [libc.prctl(1, number, 0, 0, 0) for number in (0, 15, 9)]
libc.prctl(2, ctypes.byref(found), 0, 0, 0)
print(json.dumps([*answers, found.value]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code % str(tmp_path)], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.strip() == "[-1, -1, 0, 9]", done.stderr
