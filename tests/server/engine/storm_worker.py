"""A worker that measures nothing, but keeps what it would have measured as the real one does."""

from __future__ import annotations

import fcntl
import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).with_name("without_compiler")))
sys.path.insert(0, str(Path(__file__).parents[1] / "store"))
sys.path.insert(0, str(Path(__file__).parents[2]))
from store_helpers import library_files
from store_records import DEVICE, micro_kernel

from dietcode.lifeline import die_with_parent
from dietcode_server.engine.holding import Heartbeat, clock_secs
from dietcode_server.engine.keeper import SqlKeeper
from dietcode_server.engine.publishing import publish
from dietcode_server.engine.reporter import Reporter
from dietcode_server.engine.runner import runner_name
from dietcode_server.engine.worker import NOT_CLAIMED, claim
from dietcode_server.store.database import Database

NUM_KERNELS = 12
MEASURE_SECS = {"slow": 0.2}  # by the first word of a job's name

request = json.load(sys.stdin)
die_with_parent(request["parent_pid"])
database = Database(request["database_url"])
with Path(request["work_root"], "starts").open("a") as starts:
    starts.write(f"{request['job']}\n")
runner = runner_name()
since = clock_secs()
job = claim(database, request["job"], runner, request["lease_secs"], request["slot"])
if job is None:
    sys.exit(NOT_CLAIMED)
pace = (request["heartbeat_secs"], request["lease_secs"])
heartbeat = Heartbeat(database, job.id, runner, *pace, request["slot"], since)
heartbeat.start()
folder = Path(request["work_root"])
with (
    (folder / "told").open("a") as told,
    (folder / "began").open("a") as began,
    (folder / "slot.lock").open("a") as slot,
):
    try:
        fcntl.flock(slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        (folder / f"{job.id}.{runner_name().replace('/', '-')}.beside").touch()
    store = SqlKeeper(database, job, folder).open(job.workload, DEVICE)
    reporter = Reporter(database, job.id, runner)
    known = {measurement.rows for measurement in store.records.measurements}
    for rows in range(1, NUM_KERNELS + 1):
        if rows not in known:
            if not heartbeat.holds():  # as `HeldChildren` look
                sys.exit(1)
            began.write(f"{time.time()} {runner}\n")
            began.flush()
            time.sleep(MEASURE_SECS.get(job.name.partition("-")[0], 0.03))
            store.append(micro_kernel(rows))
            told.write(f"{job.workload} {rows}x16\n")
            told.flush()
        step = {"stage": "measure", "message": "", "done": rows, "total": NUM_KERNELS, "data": {}}
        reporter.on_event(SimpleNamespace(**step, best_gflops=None, secs_left=None))
    result = SimpleNamespace(device=DEVICE, files=library_files(job.name))
    publish(database, job, runner, result, None)
