"""Submitting a workload: examples, an editor that checks what is typed, and the job that comes of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, field_validator

from dietcode.errors import NotFoundError, ServerError, SpecError, TargetError
from dietcode.protocol import Job, SubmitRequest, read_deadline
from dietcode.target.kinds import label_of
from dietcode.workload.check import check_text
from dietcode.workload.identity import workload_digest
from dietcode.workload.positions import MAX_BYTES, SpecProblem, locate
from dietcode.workload.spec import Spec
from dietcode.workload.summary import summarise
from dietcode.workload.text import clip, one_line
from dietcode_server.api import jobs as job_routes
from dietcode_server.api.callers import Caller, CallerOf
from dietcode_server.api.jobs import IdempotencyKey
from dietcode_server.api.lanes import CHECKS, WRITES
from dietcode_server.api.names import check_job_id
from dietcode_server.api.problems import of_target
from dietcode_server.api.quotas import check_rate_of_checks
from dietcode_server.api.services import Services, ServicesOf
from dietcode_server.dashboard.actions import why_not_submit
from dietcode_server.dashboard.figures import grouped, si
from dietcode_server.dashboard.render import page, templates
from dietcode_server.dashboard.spec_examples import spec_examples
from dietcode_server.dashboard.spec_text import spec_text
from dietcode_server.engine.announced_targets import with_device
from dietcode_server.engine.targets import Resolved
from dietcode_server.limits import check_limits
from dietcode_server.store import architectures, jobs, wire
from dietcode_server.store.outlook import outlook
from dietcode_server.store.transitions import waits_for

router = APIRouter(include_in_schema=False)

_FIRST = "bert-dense"


class EditorText(BaseModel):
    """A text as it stands in the editor.

    Attributes
    ----------
    settled : bool
        Whether the target is looked up too, which can take the compiler seconds: not while somebody types.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str
    force: bool = False
    measure: bool = True
    settled: bool = True


class SubmitText(BaseModel):
    """A text to submit; what stands beside it is as in `dietcode.protocol.SubmitRequest`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str
    force: bool = False
    measure: bool = True
    priority: int = Field(0, ge=-100, le=100)
    deadline: float | AwareDatetime | None = None

    @field_validator("deadline", mode="before")
    @classmethod
    def _read_deadline(cls, given: object) -> object:
        return None if given is None else read_deadline(given)


@router.get("/submit", response_class=HTMLResponse)
def show_submit_page(
    request: Request,
    services: ServicesOf,
    caller: CallerOf,
    source: Annotated[str | None, Query(alias="from")] = None,
    example: str | None = None,
) -> Response:
    """The editor, with an example in it or the spec of a job.

    Raises
    ------
    NotFoundError
        There is no such job or example.
    """
    job: Job | None = None
    too_long = False
    if source is not None:
        job = _job(services, source)
        text = spec_text(job.spec or {}) if job.kind == "spec" else ""  # a model has no spec to change
        too_long = len(text.encode()) > MAX_BYTES
    else:
        text = _example(example or _FIRST)
    return page(
        request,
        "submit.html",
        text="" if too_long else text,
        too_long=too_long,
        job=job,
        example=example,
        examples=list(spec_examples().values()),
        why_not=why_not_submit(caller),
        max_bytes=MAX_BYTES,
    )


@router.post("/submit/check")
async def check(body: EditorText, services: ServicesOf, caller: CallerOf) -> dict[str, Any]:
    """The problems of a text and their positions; or a summary of it and of what a job would do, as HTML."""
    check_rate_of_checks(services.check_rates, services.settings, caller)
    return await CHECKS.run(_check, body, services, caller)


def _check(body: EditorText, services: Services, caller: Caller) -> dict[str, Any]:
    checked = check_text(body.text)
    problems, found, trouble = checked.problems, None, None
    if checked.spec is not None:
        try:
            check_limits(checked.spec, services.settings)
            found = services.targets.resolve(checked.spec) if body.settled else None
        except SpecError as error:
            problems = (locate(body.text, error),)
        except TargetError as error:
            problems = (locate(body.text, of_target(error)),)
        except ServerError as error:
            trouble = one_line(str(error), 300)
    if problems or checked.spec is None:
        return {"problems": [asdict(problem) for problem in problems], "html": _rendered(problems=problems)}
    context = _prospect(services, checked.spec, found, body, caller.owner)
    html = _rendered(problems=(), summary=summarise(checked.spec), trouble=trouble, **context)
    return {"problems": [], "html": html}


@router.post("/submit", status_code=201)
async def submit_text(
    body: SubmitText, services: ServicesOf, caller: CallerOf, response: Response, key: IdempotencyKey = None
) -> Job:
    """Submit a text, by the same code as ``POST /api/v1/jobs``."""
    job, is_new = await WRITES.run(_submit, body, services, caller, key)
    response.status_code = 201 if is_new else 200
    return job


def _submit(body: SubmitText, services: Services, caller: CallerOf, key: str | None) -> tuple[Job, bool]:
    checked = check_text(body.text)
    if checked.data is None or checked.problems:
        first = checked.problems[0]
        raise SpecError(first.field or "", f"line {first.line}: {first.message}")
    rest = body.model_dump(exclude={"text"})
    return job_routes.submit(SubmitRequest(spec=checked.data, **rest), services, caller, key)


def _prospect(
    services: Services, spec: Spec, found: Resolved | None, body: EditorText, owner: str
) -> dict[str, Any]:
    """Return what a submission would lead to, once the target is resolved."""
    if found is None:
        return {"found": None, "prospect": None, "job": None, "waits_for": None}
    workload = workload_digest(spec)
    with services.database.read() as session:
        found = with_device(session, workload, found, force=body.force, measure=body.measure)
        prospect = outlook(
            session,
            spec=spec,
            target=found.target,
            device_id=None if found.device is None else found.device[0],
            force=body.force,
            measure=body.measure,
            owner=owner,
        )
        job = None if prospect.job is None or body.force else wire.to_wire(session, prospect.job)
        missing = (
            None
            if found.runnable
            else waits_for(session, workload, found.target, force=body.force, measure=body.measure)
        )
    return {"found": found, "prospect": prospect, "job": job, "waits_for": missing, "body": body} | {
        "names_architecture": architectures.names_one(found.target)
    }


def _job(services: Services, job_id: str) -> Job:
    with services.database.read() as session:
        return wire.to_wire(session, jobs.get(session, check_job_id(job_id)))


def _example(name: str) -> str:
    found = spec_examples().get(name)
    if found is None:
        raise NotFoundError(f"example {clip(name)}: no such example; allowed: {', '.join(spec_examples())}")
    return found.text


def _rendered(*, problems: tuple[SpecProblem, ...], **context: Any) -> str:
    return (
        templates()
        .get_template("_check.html")
        .render(context, problems=problems, grouped=grouped, si=si, label_of=label_of)
    )
