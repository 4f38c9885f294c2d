"""What a worker does for a job whose target is a GPU: builds from records, or measures where the GPU is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dietcode.measure.records import Records
from dietcode.workload.spec import Spec
from dietcode_server.engine.holding import Heartbeat, HeldChildren
from dietcode_server.engine.keeper import SqlKeeper
from dietcode_server.store import gpus
from dietcode_server.store.database import Database
from dietcode_server.store.records import SqlRecords
from dietcode_server.store.tables import JobRow

if TYPE_CHECKING:
    from dietcode.tuner.events import Listener
    from dietcode.tuner.tune import TuneResult


def known_records(database: Database, job: JobRow) -> Records | None:
    """Records that a job is built from without measuring; None where it has to be measured.

    Raises
    ------
    RecordsError
        The database cannot be read.
    """
    if job.force:
        return None
    with database.read() as session:
        row = gpus.measured_on(session, job.workload, job.target, whole=job.measure)
        device = None if row is None else gpus.header_of(row)
    if device is None:
        return None
    return SqlRecords(database, job.workload, device, spec=job.spec).records


def make_for_gpu(
    database: Database,
    job: JobRow,
    spec: Spec,
    work_root: Path,
    listener: Listener,
    heartbeat: Heartbeat,
) -> TuneResult | None:
    """A library from records that are there, or from what this machine's GPU measures now.

    Returns
    -------
    TuneResult or None
        None where there are no records, and the job's GPU is not here.

    Raises
    ------
    RecordsError, TargetError, TuningError
        See `dietcode.errors`.
    LeaseLostError
        The job is another's by now.
    """

    from dietcode.measure.gpu import find_gpu
    from dietcode.measure.gpu_device import gpu_device
    from dietcode.measure.local import LocalMachine
    from dietcode.target.cuda import resolve_cuda
    from dietcode.tuner.events import Event
    from dietcode.tuner.tune import make_library

    known = known_records(database, job)
    if known is not None:
        line = f"from {len(known.measurements)} micro-kernels measured on {known.device['name']}"
        listener(Event("select", line))
        return make_library(spec, known=known, listener=listener)
    gpu = find_gpu(resolve_cuda(spec.target)) if job.measure else None
    if gpu is None or gpu.id != job.device_id:
        return None
    # The keeper has forgotten what a job that measures anew must not know, and takes no line of a job that
    # this worker has lost.
    keeper = SqlKeeper(database, job, work_root)
    device = gpu_device(gpu)
    with LocalMachine().children(device, lambda message: listener(Event("calibrate", message))) as children:
        # Its slot was taken with the claim.
        held = HeldChildren(children, heartbeat.holds, lambda slot: None)
        return make_library(spec, keeper=keeper, listener=listener, children=held)
