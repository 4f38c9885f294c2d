"""A server without HTTP, until it is killed: ``storm_server.py URL FOLDER LEASE_SECS ATTEMPTS WORKER``."""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path

from dietcode.lifeline import die_with_parent
from dietcode_server.engine.processes import LocalEngine
from dietcode_server.engine.supervisor import Supervisor
from dietcode_server.store.database import Database

url, folder, lease_secs, max_attempts, worker = sys.argv[1:]
die_with_parent()
logging.basicConfig(level=logging.INFO, filename=f"{folder}/server-{os.getpid()}.log")
engine = LocalEngine(
    url,
    Path(folder, "work"),
    Path(folder, "logs"),
    heartbeat_secs=float(lease_secs) / 6,
    command=(sys.executable, str(Path(__file__).with_name(worker))),
    lease_secs=float(lease_secs),
)
Supervisor(Database(url), engine, int(max_attempts), retry_secs=0.0).start()
sys.stdout.write("ready\n")
sys.stdout.flush()
while True:
    signal.pause()
