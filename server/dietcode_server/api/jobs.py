"""Jobs: submit, list, look at, cancel, resume."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Header, Query, Response

from dietcode.errors import RequestError
from dietcode.graph.model_request import ModelRequest, model_from_data
from dietcode.graph.program_model import ProgramModel
from dietcode.protocol import Job, JobPage, JobState, SubmitRequest
from dietcode.runtime.programs.form import check_form
from dietcode.workload.parse import spec_from_data
from dietcode.workload.spec import Spec
from dietcode_server.api import examples
from dietcode_server.api.callers import Caller, CallerOf
from dietcode_server.api.lanes import WRITES
from dietcode_server.api.names import LIBRARY_NAME, OWNER_NAME, check_job_id
from dietcode_server.api.openapi import problems, shows
from dietcode_server.api.quotas import check_open, check_rate
from dietcode_server.api.services import Services, ServicesOf
from dietcode_server.engine.announced_targets import with_device
from dietcode_server.limits import check_limits, check_model_limits
from dietcode_server.store import jobs, wire
from dietcode_server.store.subjects import asked_of, workload_of

router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"])

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x20-\x7e]+$",
        description="The same key with the same body gives the same job, with force too.",
    ),
]
JobFilter = Annotated[list[JobState], Query(max_length=16, description="Only jobs in one of these states.")]
NameFilter = Annotated[str | None, Query(pattern=LIBRARY_NAME, description="Only this name.")]
IdFilter = Annotated[
    str | None,
    Query(alias="id", pattern=r"^[0-9a-f]{4,16}$", description="Only jobs whose id begins so."),
]
OwnerFilter = Annotated[str | None, Query(pattern=OWNER_NAME, description="Only jobs of this owner.")]
Limit = Annotated[int, Query(ge=1, le=500, description="Most entries of the page.")]
Cursor = Annotated[str | None, Query(max_length=500, description="`next` of the page before.")]


@router.post(
    "",
    status_code=201,
    summary="Submit a workload, or a model",
    responses={
        200: shows(examples.JOB, description="The job there is for this content, or for this key.")
        | {"model": Job},
        201: shows(examples.JOB, description="A new job.")
        | {"headers": {"Location": {"description": "The job.", "schema": {"type": "string"}}}},
        **problems(400, 409, 413, 415, 422, 429, spec=True),
    },
)
async def submit_job(
    request: Annotated[SubmitRequest, Body(examples=[examples.SUBMIT])],
    services: ServicesOf,
    caller: CallerOf,
    response: Response,
    key: IdempotencyKey = None,
) -> Job:
    """Idempotent by content: the same again gives the job there is, whatever its state, unless forced."""
    job, is_new = await WRITES.run(submit, request, services, caller, key)
    if is_new:
        response.headers["Location"] = f"{router.prefix}/{job.id}"
    else:
        response.status_code = 200
    return job


def submit(request: SubmitRequest, services: Services, caller: Caller, key: str | None) -> tuple[Job, bool]:
    """Return the job of a request, and whether it is new.

    Parameters
    ----------
    request : SubmitRequest
    services : Services
    caller : Caller
        Becomes the job's owner.
    key : str or None
        The idempotency key.

    Raises
    ------
    SpecError, TargetError
        The spec is refused, by itself or by this server's limits.
    ModelError
        So is the model.
    RequestError, ConflictError, Refusal
        The request is refused: its options, its key, its caller, or too many before it.
    ServerError
        The target cannot be resolved now.
    """
    check_rate(services.rates, services.settings, caller)
    if request.force and not request.measure:
        raise RequestError("force measures again and measure: false measures nothing; give one of them")
    if request.priority > 0:  # below 0 one stands back for the others
        caller.need("admin", "a priority above 0, which overtakes others' jobs,")
    asked = _asked(request, services)
    resolved = services.targets.resolve(asked)
    with services.database.write() as session:
        caller.need_name(session, asked.name)
        resolved = with_device(
            session, workload_of(asked)[0], resolved, force=request.force, measure=request.measure
        )
        row, is_new = jobs.submit(
            session,
            spec=asked,
            target=resolved.target,
            device=resolved.device,
            runnable=resolved.runnable,
            force=request.force,
            measure=request.measure,
            priority=request.priority,
            deadline=request.due(),
            idempotency_key=caller.own_key(key),
            owner=caller.owner,
        )
        if is_new:  # what is refused here is not kept
            caller.need("publish", f"a new job publishes {asked.name}, and that")
            check_open(session, services.settings, caller, caller.owner)
        job = wire.to_wire(session, row)
    services.metrics.submissions.labels("new" if is_new else "known").inc()
    if is_new:
        services.supervisor.wake()
    return job, is_new


def _asked(request: SubmitRequest, services: Services) -> Spec | ModelRequest:
    """Return what a request asks for, within this server's limits."""
    if request.model is not None:
        model = model_from_data(request.model)
        check_model_limits(model, services.settings)
        if isinstance(model.content, ProgramModel):
            check_form(model.content)
        return model
    spec = spec_from_data(request.spec)
    check_limits(spec, services.settings)
    return spec


@router.get("", summary="List jobs, newest first", responses={200: shows(examples.JOB_PAGE), **problems(422)})
def list_jobs(
    services: ServicesOf,
    state: JobFilter = [],  # noqa: B006 - FastAPI copies it
    name: NameFilter = None,
    id_prefix: IdFilter = None,
    owner: OwnerFilter = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> JobPage:
    """A page; its `next` is the cursor of the following one."""
    with services.database.read() as session:
        rows, following = jobs.list_jobs(
            session, states=state, name=name, id_prefix=id_prefix, owner=owner, limit=limit, cursor=cursor
        )
        return JobPage(jobs=wire.jobs_to_wire(session, rows), next=following)


@router.get("/{job_id}", summary="Look at a job", responses={200: shows(examples.JOB), **problems(404, 422)})
def show_job(job_id: str, services: ServicesOf) -> Job:
    """All that is known about it, its newest step and error included."""
    with services.database.read() as session:
        return wire.to_wire(session, jobs.get(session, check_job_id(job_id)))


@router.post(
    "/{job_id}/cancel",
    summary="Cancel a job",
    responses={200: shows(examples.JOB), **problems(404, 409, 413, 415, 422)},
)
def cancel_job(job_id: str, services: ServicesOf, caller: CallerOf) -> Job:
    """A running job ends soon after; what it measured is kept."""
    with services.database.write() as session:
        caller.need_job(jobs.get(session, check_job_id(job_id)))
        job = wire.to_wire(session, jobs.request_cancel(session, job_id))
    services.supervisor.wake()
    return job


@router.post(
    "/{job_id}/resume",
    summary="Resume a job",
    responses={200: shows(examples.JOB), **problems(404, 409, 413, 415, 422, 429)},
)
async def resume_job(job_id: str, services: ServicesOf, caller: CallerOf) -> Job:
    """An interrupted, failed or cancelled one, or one whose runner is here now; it goes on from what was
    measured. A queued or running job stays as it is. Counts as a submission does.
    """
    return await WRITES.run(_resume, job_id, services, caller)


def _resume(job_id: str, services: Services, caller: Caller) -> Job:
    with services.database.read() as session:
        row = jobs.get(session, check_job_id(job_id))
        caller.need_job(row)
        check_rate(services.rates, services.settings, caller)
        asked, target, workload = asked_of(row), row.target, row.workload
        options = {"force": row.force, "measure": row.measure}
    found = services.targets.again(asked, target)
    with services.database.write() as session:
        found = with_device(session, workload, found, **options)
        row = jobs.resume(session, job_id, runnable=found.runnable, device=found.device)
        check_open(session, services.settings, caller, row.owner)
        job = wire.to_wire(session, row)
    services.supervisor.wake()
    return job
