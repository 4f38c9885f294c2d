"""No child outlives its parent."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
from child_processes import gone

CHILD = """
import os, sys, time
from dietcode.lifeline import die_with_parent
die_with_parent(int(sys.argv[1]))
print(os.getpid(), flush=True)
time.sleep(60)
"""
PARENT = """
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", sys.argv[1], str(os.getpid())], start_new_session=True)
time.sleep(60)
"""


def test_a_child_ends_with_a_parent_that_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    time.sleep(0.2)
    assert child.is_running()
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert gone([child])


def test_a_child_whose_parent_is_gone_already_does_not_start() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, "999999"], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 1 and done.stdout == ""
