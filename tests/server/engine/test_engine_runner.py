"""Names of processes, whether they live, and their end."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest

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
    assert root.wait(5) == -9
    root.stdout.close()
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    end_tree(root.pid)  # gone already: nothing to do
