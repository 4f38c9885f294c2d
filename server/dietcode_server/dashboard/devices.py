"""Devices: what can be measured here and now, what was measured, and what only can be built for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse
from sqlalchemy import select
from sqlalchemy.orm import Session

from dietcode.protocol import JobState
from dietcode.target.cuda import ARCHS
from dietcode.target.kinds import kind_of_target, label_of
from dietcode.workload.identity import canonical_bytes
from dietcode_server.api.services import ServicesOf
from dietcode_server.dashboard.render import page
from dietcode_server.dashboard.sweep import HEIGHT, WIDTH, draw_sweep
from dietcode_server.store import architectures, device_headers, jobs, runners, wire
from dietcode_server.store.devices import MAX_WORKLOADS, DeviceFacts, list_devices
from dietcode_server.store.tables import PART, LibraryRow

MAX_WAITING = 20
MAX_LIBRARIES = 8  # of one device
_MAX_NEWEST = 500  # libraries that are looked at

router = APIRouter(include_in_schema=False)


@router.get("/devices", response_class=HTMLResponse)
def show_devices(request: Request, services: ServicesOf) -> Response:
    """Runners, jobs that wait for one, and every device that is known."""
    with services.database.read() as session:
        devices = list_devices(session)
        published = _published(session, devices)
        now = _now(session, services.settings.jobs)
    drawn = {one.id: _drawn(one) for one in devices}
    return page(
        request,
        "devices.html",
        devices=devices,
        drawn=drawn,
        published=published,
        archs=list(ARCHS),
        has_architectures=any(architectures.names_one(one.target) for one in devices),
        max_workloads=MAX_WORKLOADS,
        width=WIDTH,
        height=HEIGHT,
        kind_of_target=kind_of_target,
        **now,
    )


@router.get("/devices/runners", response_class=HTMLResponse)
def show_runners(request: Request, services: ServicesOf) -> Response:
    """What can be measured now, as a fragment for htmx."""
    with services.database.read() as session:
        return page(request, "_runners.html", **_now(session, services.settings.jobs))


def _now(session: Session, measures_here: bool) -> dict[str, Any]:
    """Return the runners that are live, and the jobs that wait for one.

    Parameters
    ----------
    measures_here : bool
        Whether this server runs jobs itself.
    """
    there = [wire.runner_to_wire(row) for row in runners.live(session)]
    waiting, more = jobs.list_jobs(session, states=[JobState.WAITING_FOR_RUNNER], limit=MAX_WAITING)
    return {
        "runners": there,
        "waiting": wire.jobs_to_wire(session, waiting),
        "more_wait": more is not None,
        "takes_records": any(architectures.names_one(row.target) for row in waiting),
        "measures_here": measures_here,
        "label_of": label_of,
    }


def _drawn(device: DeviceFacts) -> Any:
    found = device.calibration
    return None if found is None else draw_sweep(found, int(device.target.get("num_cores") or 0))


def _published(session: Session, devices: Sequence[DeviceFacts]) -> dict[str, list[tuple[str, int]]]:
    """The newest libraries of each device by its id, of the newest of all, parts of models left out."""
    columns = LibraryRow.name, LibraryRow.version, LibraryRow.device, LibraryRow.target
    query = select(*columns).where(LibraryRow.yanked_at.is_(None), LibraryRow.kind != PART)
    newest = session.execute(query.order_by(LibraryRow.created_at.desc()).limit(_MAX_NEWEST))
    by_device: dict[tuple[str, bytes], list[tuple[str, int]]] = {}
    for name, version, device, target in newest:
        by_device.setdefault(_known_by(device, target), []).append((name, version))
    found = {one.id: by_device.get(_known_by(one.name, one.target), []) for one in devices}
    return {device: some[:MAX_LIBRARIES] for device, some in found.items()}


def _known_by(name: str, target: Mapping[str, Any]) -> tuple[str, bytes]:
    """Return what a device has in common with its libraries: a GPU its name too, a CPU its target alone."""
    named = name if architectures.names_one(target) else ""
    return named, canonical_bytes(device_headers.target_of(target))
