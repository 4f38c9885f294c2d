"""A worker whose work is to wait: claims its job, starts a child, does what the spec's name says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from dietcode.lifeline import die_with_parent
from dietcode.protocol import JobState
from dietcode_server.engine.holding import Heartbeat
from dietcode_server.engine.runner import runner_name
from dietcode_server.engine.worker import NOT_CLAIMED, claim
from dietcode_server.store import jobs
from dietcode_server.store.database import Database

request = json.load(sys.stdin)
die_with_parent(request["parent_pid"])
database = Database(request["database_url"])
with database.read() as session:
    name = jobs.get(session, request["job"]).name
if name == "unclaimed":
    sys.exit(5)
if name == "stuck":
    time.sleep(60)
while name == "late" and not Path(request["work_root"], "go").exists():
    time.sleep(0.02)
runner = runner_name()
if claim(database, request["job"], runner, request["lease_secs"], request["slot"]) is None:
    sys.exit(NOT_CLAIMED)
pace = (request["heartbeat_secs"], request["lease_secs"])
Heartbeat(database, request["job"], runner, *pace, request["slot"]).start()
child = f"from dietcode.lifeline import die_with_parent as d; import time; d({os.getpid()}); time.sleep(60)"
process = subprocess.Popen([sys.executable, "-c", child], start_new_session=True)
Path(request["work_root"], f"{name}.pids").write_text(f"{os.getpid()} {process.pid}")
if name.startswith("waits"):
    time.sleep(60)
if name == "crashes":
    os.abort()
with database.write() as session:
    jobs.finish(session, request["job"], JobState.FAILED, error="as told", runner=runner)
process.kill()
