"""Names of processes, whether they live, and their end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from child_processes import gone

from dietcode_server.engine.runner import end_tree, is_alive, is_on_this_host, runner_name

TREE = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
print("ready", flush=True)
time.sleep(60)
"""


def test_a_process_and_a_later_one_with_its_number_have_different_names() -> None:
    name = runner_name()
    host, pid, started = name.rsplit("/", 2)
    assert is_alive(name) and is_on_this_host(name)
    assert not is_alive(f"{host}/{pid}/{float(started) - 60:.2f}")
    assert not is_on_this_host(f"elsewhere/{pid}/{started}")


@pytest.mark.parametrize("name", ["", "x", "a/b/c", "host/0x1/2", "host/999999999/1.0", "///"])
def test_a_name_of_nothing_is_not_alive(name: str) -> None:
    assert not is_alive(name)


def test_a_zombie_is_not_alive() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    name = runner_name(child.pid)
    assert is_alive(name)
    child.kill()
    deadline = time.monotonic() + 5
    while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_alive(name)
    child.wait()


def test_a_tree_ends_with_children_in_sessions_of_their_own() -> None:
    root = subprocess.Popen([sys.executable, "-c", TREE], stdout=subprocess.PIPE)
    assert root.stdout is not None and root.stdout.readline() == b"ready\n"
    (child,) = psutil.Process(root.pid).children(recursive=True)
    end_tree(root.pid)
    assert root.wait(60) == -9
    root.stdout.close()
    assert gone([child])
    end_tree(root.pid)  # gone already: nothing to do


COMET = """
import os, sys, time, types
from dietcode.lifeline import adopt_orphans
from dietcode.measure.cpu_worker import CpuWorker
from dietcode.measure.local import LocalChildren
from dietcode_server.engine.runner import end_descendants

def comet(trace):
    import os, time
    end = time.monotonic() + 60  # whatever becomes of the test
    if os.fork() == 0:
        os.setsid()
        with open(trace, "ab", buffering=0) as file:
            while time.monotonic() < end:
                try:
                    if os.fork():
                        os._exit(0)
                    file.write(b"x")
                except OSError:  # no more processes: it waits until there are
                    time.sleep(0.01)

adopt_orphans()
children = LocalChildren(CpuWorker(1))
trace = str(children._handover.folder / "trace")
mine = types.FunctionType(comet.__code__, {"__builtins__": __builtins__, "__name__": "__main__"})
children._builders.submit(mine, trace).result(60)
while not os.path.exists(trace) or not os.path.getsize(trace):
    time.sleep(0.01)
print(trace, flush=True)
if sys.argv[1] == "itself":
    end_descendants()
    time.sleep(0.3)
    print(os.path.getsize(trace), flush=True)
time.sleep(60)
"""


@pytest.mark.thorough
@pytest.mark.sampled(keep=1)
@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux only")
@pytest.mark.parametrize("who", ["itself", "another"])
def test_what_forks_and_ends_again_and_again_is_met(who: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", COMET, who]
    worker = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": str(tmp_path)}
    )
    assert worker.stdout is not None
    with worker.stdout:
        trace = Path(worker.stdout.readline().strip())
        if who == "itself":
            size = int(worker.stdout.readline())
            time.sleep(0.5)
            assert trace.stat().st_size == size
        end_tree(worker.pid)
        assert worker.wait(60) == -9
    size = trace.stat().st_size
    assert size > 0
    time.sleep(0.5)
    assert trace.stat().st_size == size
