"""Every call of the API, once: what is sent and how the answer is read. Both clients send these."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote

from dietcode.client.answers import MAX_JSON_BYTES, Answer
from dietcode.client.listing import MAX_MANIFEST_BYTES, digest_of
from dietcode.errors import LibraryError, RequestError, ServerError
from dietcode.graph.model_request import ModelRequest
from dietcode.protocol import (
    Job,
    JobPage,
    JobState,
    KeyList,
    LibraryInfo,
    LibraryPage,
    RecordsExport,
    RecordsImported,
    RecordsList,
    RunnerList,
    SubmitRequest,
    read_deadline,
)
from dietcode.runtime.manifest import PART_PREFIX
from dietcode.trust.envelope import MAX_ENVELOPE_BYTES
from dietcode.workload.parse import spec_from_data
from dietcode.workload.spec import Spec
from dietcode.workload.text import clip, one_line

T = TypeVar("T")

_JOB_ID = re.compile(r"[0-9a-f]{16}")
_ID = re.compile(r"[0-9a-f]{16}")
_ID_PREFIX = re.compile(r"[0-9a-f]{4,16}")
_LIBRARY = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_MAX_VERSION = 2**31 - 1


@dataclass(frozen=True)
class RestCall(Generic[T]):
    """One request.

    Attributes
    ----------
    path : str
        Below ``/api/v1``.
    read : callable
        From an `Answer` of status 200 or 201 to the result.
    max_bytes : int
        Largest body that is read.
    """

    method: str
    path: str
    read: Callable[[Answer], T]
    params: Sequence[tuple[str, str]] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    json: Any = None
    max_bytes: int = MAX_JSON_BYTES


class Submitted(NamedTuple):
    """A job, and whether this call made it."""

    job: Job
    is_new: bool


class FoundManifest(NamedTuple):
    """A `Manifest`, and since when the version is yanked; an empty text while it is not."""

    data: bytes
    version: int
    yanked: str


class Manifest(NamedTuple):
    """A library's ``manifest.json``, byte for byte, and the version that it is of."""

    data: bytes
    version: int


def submit(
    spec: Spec | ModelRequest | Mapping[str, Any],
    force: bool,
    idempotency_key: str | None,
    measure: bool = True,
    *,
    priority: int = 0,
    deadline: float | datetime | None = None,
) -> RestCall[Submitted]:
    """``POST /jobs``; the parameters are those of `Client.submit`."""
    parsed = spec if isinstance(spec, Spec | ModelRequest) else spec_from_data(dict(spec))
    asked: dict[str, Any] = {"spec" if isinstance(parsed, Spec) else "model": parsed.to_json()}
    headers = {}
    if idempotency_key is not None:
        if not re.fullmatch(r"[\x20-\x7e]{1,255}", idempotency_key):
            given = clip(idempotency_key)
            raise RequestError(
                f"idempotency_key: given {given}; allowed: 1 to 255 printable ASCII characters"
            )
        headers["Idempotency-Key"] = idempotency_key
    order = {"priority": _priority(priority), "deadline": _deadline(deadline)}
    more: dict[str, Any] = {
        name: value for name, value in order.items() if value
    }  # which an older server does not know
    request = SubmitRequest(**asked, force=force, measure=measure, **more)
    body = request.model_dump(mode="json", exclude={"spec", "model", *order} - set(asked) - set(more))
    return RestCall(
        "POST", "/jobs", lambda got: Submitted(_any_job(got), got.status == 201), headers=headers, json=body
    )


def job(job_id: str) -> RestCall[Job]:
    """``GET /jobs/{id}``."""
    return RestCall("GET", job_path(job_id), lambda got: _same_job(got, job_id))


def cancel(job_id: str) -> RestCall[Job]:
    """``POST /jobs/{id}/cancel``."""
    return RestCall("POST", f"{job_path(job_id)}/cancel", lambda got: _same_job(got, job_id))


def resume(job_id: str) -> RestCall[Job]:
    """``POST /jobs/{id}/resume``."""
    return RestCall("POST", f"{job_path(job_id)}/resume", lambda got: _same_job(got, job_id))


def jobs(
    states: Sequence[JobState | str],
    name: str | None,
    limit: int,
    cursor: str | None,
    id_prefix: str | None = None,
) -> RestCall[JobPage]:
    """``GET /jobs``; the parameters are those of `Client.jobs`."""
    params = [("state", _state(state).value) for state in states]
    if id_prefix is not None:
        params.append(("id", _prefix(id_prefix)))
    return RestCall("GET", "/jobs", lambda got: got.model(JobPage), (*params, *_page(name, limit, cursor)))


def runners() -> RestCall[RunnerList]:
    """``GET /runners``."""
    return RestCall("GET", "/runners", lambda got: got.model(RunnerList))


def import_records(
    lines: Sequence[Mapping[str, Any]], spec: Mapping[str, Any] | None
) -> RestCall[RecordsImported]:
    """``POST /records``."""
    body = {"lines": list(lines), "spec": spec}
    return RestCall("POST", "/records", lambda got: got.model(RecordsImported), json=body)


def measured_on(workload: str) -> RestCall[RecordsList]:
    """``GET /records/{workload}``."""
    return RestCall("GET", f"/records/{workload}", lambda got: got.model(RecordsList))


def export_records(workload: str, device: str) -> RestCall[RecordsExport]:
    """``GET /records/{workload}/{device}``."""
    path = f"/records/{workload}/{quote(device, safe='')}"
    return RestCall("GET", path, lambda got: got.model(RecordsExport))


def libraries(name: str | None, limit: int, cursor: str | None) -> RestCall[LibraryPage]:
    """``GET /libraries``."""
    return RestCall("GET", "/libraries", lambda got: got.model(LibraryPage), _page(name, limit, cursor))


def library(name: str, version: int | None) -> RestCall[LibraryInfo]:
    """``GET /libraries/{name}/{version}/info``."""
    return RestCall("GET", f"{library_path(name, version)}/info", lambda got: got.model(LibraryInfo))


def yank(name: str, version: int, undo: bool) -> RestCall[LibraryInfo]:
    """``POST /libraries/{name}/{version}/yank``, or ``unyank``."""
    path = f"{library_path(name, version)}/{'unyank' if undo else 'yank'}"

    def read(got: Answer) -> LibraryInfo:
        found = got.model(LibraryInfo)
        if (found.name, found.version) != (name, version):
            raise ServerError(
                f"{got.url}: asked for {name}@{version}, given {clip(found.name)}@{found.version}"
            )
        return found

    return RestCall("POST", path, read)


def manifest(name: str, version: int | None) -> RestCall[Manifest]:
    """``GET /libraries/{name}/{version}``: the manifest, checked against the digest in the headers."""
    call = find_manifest(name, version)
    return RestCall(
        call.method, call.path, lambda got: Manifest(*call.read(got)[:2]), max_bytes=call.max_bytes
    )


def find_manifest(name: str, version: int | None) -> RestCall[FoundManifest]:
    """The same, and whether the version is yanked."""

    def read(got: Answer) -> FoundManifest:
        given = got.headers.get("dietcode-version", "")
        if not re.fullmatch(r"[1-9][0-9]{0,9}", given):
            raise ServerError(
                f"{got.url}: the answer names no version; does DIETCODE_SERVER name a DietCode server?"
            )
        if version is not None and int(given) != version:
            raise ServerError(f"{got.url}: asked for version {version}, given version {given}")
        announced, found = got.headers.get("dietcode-manifest", ""), digest_of(got.body)
        if announced != found:
            raise LibraryError(
                f"{name}@{given}: the manifest that arrived is {found}, the server announced "
                f"{one_line(announced, 80) or 'none'}; try again"
            )
        return FoundManifest(got.body, int(given), one_line(got.headers.get("dietcode-yanked", ""), 40))

    return RestCall("GET", library_path(name, version), read, max_bytes=MAX_MANIFEST_BYTES)


def signature(name: str, version: int) -> RestCall[bytes]:
    """``GET /libraries/{name}/{version}/signature``: the envelope, byte for byte; not verified here."""
    path = f"{library_path(name, version)}/signature"
    return RestCall("GET", path, lambda got: got.body, max_bytes=MAX_ENVELOPE_BYTES)


def head(name: str) -> RestCall[bytes]:
    """``GET /libraries/{name}/head``: which version is the latest, signed; not verified here."""
    path = f"{library_path(name, None).removesuffix('/latest')}/head"
    return RestCall("GET", path, lambda got: got.body, max_bytes=MAX_ENVELOPE_BYTES)


def keys() -> RestCall[KeyList]:
    """``GET /keys``: what the server shows of its keys; not verified here."""
    return RestCall("GET", "/keys", lambda got: got.model(KeyList))


def job_path(job_id: str) -> str:
    """``/jobs/{id}``.

    Raises
    ------
    RequestError
        It is no job's id.
    """
    if not _JOB_ID.fullmatch(job_id):
        raise RequestError(
            f"job {clip(job_id)}: no job id; allowed: 16 hex digits, as `dietcode jobs` lists them"
        )
    return f"/jobs/{job_id}"


def library_path(name: str, version: int | None) -> str:
    """``/libraries/{name}/{version}``; None is ``latest``."""
    check_name(name.removeprefix(PART_PREFIX))  # a bundle names its parts
    if version is not None and not 1 <= version <= _MAX_VERSION:
        raise RequestError(f"{name}@{clip(version)}: no version; allowed: 1 or more, or none for the latest")
    return f"/libraries/{name}/{'latest' if version is None else version}"


def parse_ref(ref: str) -> tuple[str, int | None]:
    """Read ``NAME[@VERSION]``; the version is None for the latest.

    Raises
    ------
    RequestError
        It is neither.
    """
    name, at, version = ref.partition("@")
    check_name(name)
    if not at or version == "latest":
        return name, None
    if not re.fullmatch(r"[1-9][0-9]{0,9}", version) or int(version) > _MAX_VERSION:
        raise RequestError(
            f"{clip(ref)}: no version {clip(version)}; allowed: NAME, or NAME@3 with a number from 1"
        )
    return name, int(version)


def check_name(name: str) -> None:
    """Refuse what can be no library's name.

    Raises
    ------
    RequestError
        It has other characters, or leads out of a folder.
    """
    if not _LIBRARY.fullmatch(name) or ".." in name:
        raise RequestError(
            f"{clip(name)}: no name of a library; allowed: 1 to 64 of a-z, 0-9, '.', '_', '-', "
            "a letter or digit first, as in bert-dense or bert-dense@3"
        )


def _any_job(got: Answer) -> Job:
    found = got.model(Job)
    if not _ID.fullmatch(found.id):
        raise ServerError(f"{got.url}: given job {clip(found.id)}; allowed: 16 hex digits")
    return found


def _same_job(got: Answer, job_id: str) -> Job:
    found = got.model(Job)
    if found.id != job_id:
        raise ServerError(f"{got.url}: asked for job {job_id}, given {clip(found.id)}")
    return found


def _state(given: JobState | str) -> JobState:
    try:
        return JobState(given)
    except ValueError:
        allowed = ", ".join(state.value for state in JobState)
        raise RequestError(f"state: given {clip(given)}; allowed: {allowed}") from None


def _prefix(given: str) -> str:
    if not _ID_PREFIX.fullmatch(given):
        raise RequestError(f"id: given {clip(given)}; allowed: the first 4 to 16 hex digits of a job's id")
    return given


def _priority(given: int) -> int:
    if not -100 <= given <= 100:
        raise RequestError(f"priority: given {clip(given)}; allowed: -100 to 100")
    return given


def _deadline(given: float | datetime | None) -> float | datetime | None:
    try:
        return None if given is None else read_deadline(given)
    except ValueError as error:
        raise RequestError(f"deadline: given {clip(given)}; {error}") from None


def _page(name: str | None, limit: int, cursor: str | None) -> list[tuple[str, str]]:
    if name is not None:
        check_name(name)
    if not 1 <= limit <= 500:
        raise RequestError(f"limit: given {limit}; allowed: 1 to 500")
    pairs = (("name", name), ("limit", str(limit)), ("cursor", cursor))
    return [(key, value) for key, value in pairs if value is not None]
