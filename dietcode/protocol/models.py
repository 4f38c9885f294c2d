"""Jobs, events, libraries and problems, as JSON under ``/api/v1``.

Readers ignore fields that they do not know, so that an older client can talk to a newer server.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, field_validator, model_validator


class JobState(StrEnum):
    """The state of a job."""

    QUEUED = "queued"
    WAITING_FOR_RUNNER = "waiting_for_runner"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


FINAL_STATES = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})
"""States that only `resume` (of a failed or cancelled job) leaves."""
RESTING_STATES = FINAL_STATES | {JobState.INTERRUPTED}
"""States that only a request ends."""


class ProtocolModel(BaseModel):
    """Base of all: immutable."""

    model_config = ConfigDict(frozen=True, extra="ignore")


MAX_DEADLINE_SECS = 10 * 365 * 86_400.0


def read_deadline(given: object) -> float | datetime:
    """Seconds from now as a number, or a time with its zone as text, as ``2026-01-05T09:30:00Z``.

    Raises
    ------
    ValueError
        It is neither.
    """
    if isinstance(given, datetime) and given.tzinfo is not None:
        return given
    if isinstance(given, int | float) and not isinstance(given, bool):
        if math.isfinite(given) and 0 < given <= MAX_DEADLINE_SECS:
            return float(given)
    elif isinstance(given, str) and len(given) < 100:
        try:
            at = datetime.fromisoformat(given.strip())
            if at.tzinfo is not None:
                return at.astimezone(UTC)
        except (ValueError, OverflowError):
            pass
    raise ValueError("allowed: seconds from now, above 0, or a time with its zone, as 2026-01-05T09:30:00Z")


class SubmitRequest(BaseModel):
    """Body of ``POST /jobs``.

    Attributes
    ----------
    spec : dict or None
        A workload, as in the spec reference; weights are given inline, never as a file.
    model : dict or None
        In place of it a whole model, a recursion or a program: graphs as data, without weights, and target,
        budget and objective of its parts.
    force : bool
        Measure again what is already known; makes a new job in any case.
    measure : bool
        False: select and build from what was measured before, and measure nothing.
    priority : int
        Of the jobs that wait, the one with the highest begins first; then the oldest.
    deadline : float, datetime or None
        Seconds from now, or a time with its zone: a job that has not finished by then fails.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    spec: dict[str, Any] | None = None
    model: dict[str, Any] | None = None
    force: bool = False
    measure: bool = True
    priority: int = Field(0, ge=-100, le=100)
    deadline: float | AwareDatetime | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> SubmitRequest:
        if (self.spec is None) == (self.model is None):
            raise ValueError("allowed: spec, a workload, or model, and not both")
        return self

    @field_validator("deadline", mode="before")
    @classmethod
    def _read_deadline(cls, given: object) -> object:
        """Return a deadline of either form, or raise one line about both."""
        return None if given is None else read_deadline(given)

    def due(self) -> datetime | timedelta | None:
        """The deadline as a time, or as the time until it."""
        if self.deadline is None or isinstance(self.deadline, datetime):
            return self.deadline
        return timedelta(seconds=self.deadline)


class Progress(ProtocolModel):
    """The newest step of a running job.

    Attributes
    ----------
    stage : str
        calibrate, seed, measure, select, build, verify, compare or publish.
    done, total : int
        Progress within the stage; a total of 0 means that it is not known.
    best_gflops : float or None
        Best throughput so far, in GFLOP/s.
    secs_left : float or None
        Estimate until the end of the stage, in seconds.
    """

    stage: str
    message: str
    done: int = 0
    total: int = 0
    best_gflops: float | None = None
    secs_left: float | None = None


class LibraryRef(ProtocolModel):
    """A published version."""

    name: str
    version: int


class JobPart(ProtocolModel):
    """A part of a model: an operator that is tuned as a spec is.

    Attributes
    ----------
    name : str
        Its kind, and the beginning of the digest of its spec.
    kind, operator : str
        In one word, and as a spec has it.
    calls : int
        How often the model calls it.
    share : float
        Of the model's FLOPs at its largest shapes.
    state : str
        waiting, tuning, tuned, reused (it was built before) or failed.
    categories : int or None
        Micro-kernels of its library; None before it has one.
    gflops : float or None
        What its library is predicted to reach, in the geometric mean over its instances.
    """

    position: int
    digest: str
    name: str
    kind: str
    operator: str
    calls: int
    share: float
    state: Literal["waiting", "tuning", "tuned", "reused", "failed"]
    library: LibraryRef | None = None
    categories: int | None = None
    gflops: float | None = None


class Job(ProtocolModel):
    """One tuning job.

    Attributes
    ----------
    id : str
        16 hex digits.
    kind : str
        What it is about: a spec, or a whole model.
    owner : str
        Who submitted it: the name that the token was made for, or ``local``.
    workload : str
        ``sha256:<hex>`` of what is measured; jobs with the same one share records.
    device_id, device : str or None
        The device that the job measures on; None while none is known.
    spec : dict or None
        Left out of lists, where it could be large; of a model without its graph.
    parts : list of JobPart or None
        Of a model, once they are known; left out of lists.
    attempt : int
        How often a worker has started on it.
    measured : int
        Micro-kernels measured by this job so far.
    error : str or None
        One line: why it failed or was interrupted.
    waits_for : str or None
        One line: what a job that waits for a runner needs, and what to start.
    deadline_at : datetime or None
        A job that has not finished by then fails.
    standing : str or None
        Of a target for GPUs: which one measured the workload, or that it is experimental, since none did.
    """

    id: str
    name: str
    kind: Literal["spec", "model"] = "spec"
    owner: str = "local"
    state: JobState
    workload: str
    device_id: str | None = None
    device: str | None = None
    target: dict[str, Any]
    spec: dict[str, Any] | None = None
    parts: list[JobPart] | None = None
    force: bool = False
    measure: bool = True
    attempt: int = 0
    measured: int = 0
    cancel_requested: bool = False
    priority: int = 0
    deadline_at: datetime | None = None
    progress: Progress | None = None
    error: str | None = None
    waits_for: str | None = None
    standing: str | None = None
    library: LibraryRef | None = None
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    updated_at: datetime


class JobPage(ProtocolModel):
    """Jobs, newest first; `next` is the `cursor` of the following page."""

    jobs: list[Job]
    next: str | None = None


class JobEvent(ProtocolModel):
    """An event of a job; `id` counts from 1 within the job."""

    id: int
    job: str
    at: datetime
    kind: Literal["state", "progress"]
    state: JobState | None = None
    progress: Progress | None = None
    message: str = ""
    data: dict[str, Any] = Field(default_factory=dict)


class FileFacts(ProtocolModel):
    """Digest and size of one file."""

    sha256: str
    size_bytes: int


class LibraryInfo(ProtocolModel):
    """One published version of a library.

    Attributes
    ----------
    kind : str
        library (of one operator), bundle (a whole model), or part (a library that bundles share).
    owner : str or None
        Who publishes under this name.
    yanked_at : datetime or None
        When it was taken out of lists and out of ``latest``; None while it is in them.
    manifest : FileFacts
        Of ``manifest.json``, byte for byte as ``GET /libraries/{name}/{version}`` gives it.
    size_bytes : int
        All files together, without the TVM runtime.
    standing : str or None
        Of a target for GPUs: which one measured it.
    """

    name: str
    version: int
    kind: Literal["library", "bundle", "part"] = "library"
    owner: str | None = None
    job: str | None = None
    workload: str
    device: str
    target: dict[str, Any]
    num_micro_kernels: int
    size_bytes: int
    manifest: FileFacts
    created_at: datetime
    yanked_at: datetime | None = None
    standing: str | None = None


class ServerKey(ProtocolModel):
    """A key that a server signs with, or has signed with.

    Attributes
    ----------
    fingerprint : str
        ``sha256:<hex>`` of the key in DER.
    public_key : str
        In PEM.
    state : str
        current, earlier or revoked.
    """

    fingerprint: str
    public_key: str
    state: str
    since: datetime


class KeyList(ProtocolModel):
    """A server's keys.

    Attributes
    ----------
    current : str
        Fingerprint of the one that signs now.
    rotations : list of dict
        DSSE envelopes in which a key names the one that follows it.
    """

    current: str
    keys: list[ServerKey]
    rotations: list[dict[str, Any]] = Field(default_factory=list)


class TokenRequest(BaseModel):
    """Body of `POST /api/v1/tokens`.

    Attributes
    ----------
    owner : str
        Who it is for: jobs and names belong to them.
    scopes : list of str
        Of read, submit, publish and admin.
    expires_secs : int or None
        Seconds from now, at most ten years; None for a token that does not expire.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    owner: str = Field(max_length=64)
    scopes: list[str] = Field(default=["read", "submit", "publish"], max_length=16)
    expires_secs: int | None = Field(default=90 * 86400, ge=1, le=10 * 366 * 86400)


class TokenInfo(ProtocolModel):
    """What the server keeps of a token.

    Attributes
    ----------
    state : str
        live, expired or revoked.
    last_used_at : datetime or None
        To the minute.
    """

    id: str
    owner: str
    scopes: list[str]
    state: str
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None


class TokenMade(TokenInfo):
    """A new token, with what is shown only once."""

    token: str


class TokenList(ProtocolModel):
    """All tokens, the newest last."""

    tokens: list[TokenInfo]


class LibraryPage(ProtocolModel):
    """Libraries, newest first; `next` is the `cursor` of the following page."""

    libraries: list[LibraryInfo]
    next: str | None = None


class RunnerDevice(ProtocolModel):
    """A device that a runner can measure.

    Attributes
    ----------
    id : str
        Of the device as a whole; a target with fewer cores is another device.
    name : str
        Of the processor, or of the GPU.
    target : dict
        What ``{kind: llvm}`` stands for on it; of a GPU the architecture that is measured, and `num_sms`.
    slot : str
        Where it is measured, one job at a time.
    """

    id: str
    name: str
    target: dict[str, Any]
    slot: str


class Runner(ProtocolModel):
    """A server or worker that runs jobs, as it announced itself last.

    Attributes
    ----------
    engine : str
        How it measures: local, ray or rpc.
    job : str or None
        What it works on.
    """

    name: str
    host: str
    engine: str
    version: str
    devices: list[RunnerDevice]
    job: str | None = None
    started_at: datetime
    seen_at: datetime


class RunnerList(ProtocolModel):
    """The runners that are there now, by name."""

    runners: list[Runner]


class ProblemDetails(BaseModel):
    """A problem document (RFC 9457).

    Attributes
    ----------
    type : str
        ``urn:dietcode:problem:<name>``.
    detail : str
        One line: what was given, what is allowed, what to do.
    field : str or None
        Dotted path of the field of the spec that was refused.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    type: str = "about:blank"
    title: str
    status: int
    detail: str = ""
    instance: str | None = None
    field: str | None = None
