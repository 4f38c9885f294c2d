"""Records: measurements that a GPU made elsewhere come in, and all of a workload go out."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body

from dietcode.protocol import RecordsExport, RecordsImport, RecordsImported, RecordsList
from dietcode.workload.parse import spec_from_data
from dietcode_server.api import examples
from dietcode_server.api.callers import CallerOf
from dietcode_server.api.lanes import WRITES
from dietcode_server.api.openapi import problems, shows
from dietcode_server.api.services import Services, ServicesOf
from dietcode_server.limits import check_limits
from dietcode_server.store import exchange, wire

router = APIRouter(prefix="/api/v1/records", tags=["records"])


@router.post(
    "",
    summary="Import records of a GPU",
    responses={
        200: shows(examples.RECORDS_IMPORTED),
        **problems(400, 404, 409, 413, 415, 422, spec=True),
    },
)
async def import_records(
    request: Annotated[RecordsImport, Body(examples=[examples.RECORDS_IMPORT])],
    services: ServicesOf,
    caller: CallerOf,
) -> RecordsImported:
    """All of them or none; what is known stays. Jobs that waited for them are queued. Everybody's jobs on the
    workload use them: where tokens are needed, it takes one with the scope admin.
    """
    caller.need("admin", "importing records, which everybody's jobs use,")
    return await WRITES.run(_import, request, services)


def _import(request: RecordsImport, services: Services) -> RecordsImported:
    spec = None if request.spec is None else spec_from_data(request.spec)
    if spec is not None:
        check_limits(spec, services.settings)
    records = exchange.read_lines(request.lines)
    with services.database.write() as session:
        done = wire.imported_to_wire(exchange.import_records(session, records, spec))
    services.supervisor.wake()
    return done


@router.get(
    "/{workload}",
    summary="List who measured a workload",
    responses={200: shows(examples.RECORDS_LIST), **problems(404, 422)},
)
def list_records(workload: str, services: ServicesOf) -> RecordsList:
    """Devices with records of it, the latest first."""
    with services.database.read() as session:
        found = exchange.measured_on(session, workload)
        return RecordsList(workload=workload, devices=[wire.measured_to_wire(one) for one in found])


@router.get(
    "/{workload}/{device}",
    summary="Export records",
    responses={200: shows(examples.RECORDS_FILE), **problems(404, 422)},
)
def export_records(workload: str, device: str, services: ServicesOf) -> RecordsExport:
    """All that is known of a workload on a device, as the lines of a records file, header first."""
    with services.database.read() as session:
        return RecordsExport(lines=exchange.export_records(session, workload, device))
