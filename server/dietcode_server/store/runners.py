"""Who runs jobs, and what they can measure: each announces itself, again and again, for as long as it lives.

An announcement that was not repeated for a lease, by the database's clock, does not count any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, or_, select
from sqlalchemy.orm import Session

from dietcode_server.store.clock import clock
from dietcode_server.store.device_headers import DeviceIdentity
from dietcode_server.store.locks import replace_where
from dietcode_server.store.subjects import remember_device
from dietcode_server.store.tables import RunnerRow


@dataclass(frozen=True)
class AnnouncedDevice:
    """Something that a runner can measure.

    Attributes
    ----------
    name : str
        Of the processor, or of the GPU.
    target : dict
        What ``{kind: llvm}`` stands for on it, resolved; of a GPU its architecture and multiprocessors.
    host : dict
        The machine, as `dietcode.target.cpu.Host` has it, so that a server resolves other targets for it;
        empty beside a GPU.
    slot : str
        Where it is measured, one job at a time.
    builds_for_gpus : bool
        Whether the runner has CUDA's compiler, which needs no GPU.
    """

    id: str
    name: str
    target: dict[str, Any]
    host: dict[str, Any]
    slot: str
    builds_for_gpus: bool = False

    @property
    def row(self) -> DeviceIdentity:
        """As it is kept."""
        return self.id, self.name, self.target


def announce(
    session: Session,
    *,
    name: str,
    process: str,
    engine: str,
    version: str,
    devices: Sequence[AnnouncedDevice],
    started_at: datetime,
    lease_secs: float,
    job_id: str | None = None,
    now: datetime | None = None,
) -> bool:
    """Say that a runner is there, for so many seconds from now; False where another process has the name.

    Parameters
    ----------
    name : str
        What people call it.
    process : str
        Its process: ``host/pid/start time``.
    engine : str
        How it measures: local, ray or rpc.
    job_id : str or None
        What it works on.
    """
    now = now or clock(session)
    for device in devices:
        remember_device(session, device.id, device.name, device.target, now)
    return replace_where(
        session,
        RunnerRow,
        or_(RunnerRow.leased_until <= now, RunnerRow.process == process),
        name=name,
        process=process,
        engine=engine,
        version=version,
        devices=[asdict(device) for device in devices],
        job_id=job_id,
        started_at=started_at,
        seen_at=now,
        leased_until=now + timedelta(seconds=lease_secs),
    )


def withdraw(session: Session, process: str) -> None:
    """Take back what a process announced: it ends."""
    session.execute(delete(RunnerRow).where(RunnerRow.process == process))


def live(session: Session, *, now: datetime | None = None) -> list[RunnerRow]:
    """Runners that are there, by name."""
    query = select(RunnerRow).where(RunnerRow.leased_until > (now or clock(session)))
    return list(session.scalars(query.order_by(RunnerRow.name)))


def devices(session: Session, *, now: datetime | None = None) -> list[AnnouncedDevice]:
    """Return what the runners that are there can measure, each device once."""
    found: dict[str, AnnouncedDevice] = {}
    for row in live(session, now=now):
        for data in row.devices:
            found.setdefault(data["id"], AnnouncedDevice(**data))
    return [found[key] for key in sorted(found)]


def build_for_gpus(session: Session, *, now: datetime | None = None) -> bool:
    """Return whether one of those that are there has CUDA's compiler."""
    return any(data.get("builds_for_gpus") for row in live(session, now=now) for data in row.devices)


def without_device(session: Session, *, now: datetime | None = None) -> list[str]:
    """Names of runners whose device behind an RPC tracker has not answered."""
    return [row.name for row in live(session, now=now) if row.engine == "rpc" and not row.devices]


def forget_stale(session: Session, *, now: datetime | None = None) -> int:
    """Delete announcements that do not count any more; how many."""
    gone = delete(RunnerRow).where(RunnerRow.leased_until <= (now or clock(session)))
    gone = gone.execution_options(synchronize_session=False)
    return len(session.execute(gone.returning(RunnerRow.name)).all())
