"""The job that a command is given: by its id, the beginning of one, or the name of its library."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from dietcode.errors import NotFoundError, RequestError

if TYPE_CHECKING:
    from dietcode.client import Client

JobRef = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="Its id, as `dietcode jobs` lists it, or the first 4 or more digits of that; or the name of its "
        "library: the newest job of NAME, or the one that published NAME@VERSION.",
    ),
]

_PREFIX = re.compile(r"[0-9a-f]{4,16}")  # or all of an id
_TOO_SHORT = re.compile(r"[0-9a-f]{1,3}")
_MAX_NAMED = 5


def find_job(client: Client, given: str) -> str:
    """Return the id of a job.

    Parameters
    ----------
    given : str
        An id; the beginning of one; ``NAME`` or ``NAME@VERSION``. A job that begins so goes before a name.

    Raises
    ------
    RequestError
        Several ids begin so, or it can be no id and no name.
    NotFoundError
        There is no such job.
    """
    from dietcode.client.calls import parse_ref
    from dietcode.workload.text import clip

    if _PREFIX.fullmatch(given) and (found := _by_prefix(client, given)):
        return found
    try:
        name, version = parse_ref(given)
    except RequestError:
        allowed = "16 hex digits, as `dietcode jobs` lists them, the first 4 or more, or a library's name"
        raise RequestError(f"job {clip(given)}: no job; allowed: {allowed}") from None
    if version is not None:
        job = client.library(name, version).job
        if job is None:
            raise NotFoundError(f"{name}@{version}: the job that published it is not known any more")
        return job
    for job_of_name in client.jobs(name=name, limit=1).jobs:
        return job_of_name.id
    few = "; of an id give 4 or more digits" if _TOO_SHORT.fullmatch(given) else ""
    raise NotFoundError(f"job {clip(given)}: no such job; `dietcode jobs` lists them{few}")


def _by_prefix(client: Client, prefix: str) -> str | None:
    """Return the id that begins so; None where there is none.

    Raises
    ------
    RequestError
        There are several.
    """
    page = client.jobs(limit=_MAX_NAMED + 1, id_prefix=prefix)
    found = [job.id for job in page.jobs if job.id.startswith(prefix)]
    if len(found) > 1:
        more = ", …" if len(found) > _MAX_NAMED else ""
        raise RequestError(
            f"job {prefix}: several jobs begin so: {', '.join(found[:_MAX_NAMED])}{more}; give more digits"
        )
    return found[0] if found else None
