"""The actions on a job, and why a caller may not take them."""

from __future__ import annotations

from dataclasses import dataclass

from dietcode.protocol import Job, JobState
from dietcode_server.api.callers import Caller

_CANCELLABLE = frozenset({JobState.QUEUED, JobState.WAITING_FOR_RUNNER, JobState.RUNNING})
_RESUMABLE = frozenset({JobState.INTERRUPTED, JobState.FAILED, JobState.CANCELLED})


@dataclass(frozen=True)
class Action:
    """A button.

    Attributes
    ----------
    path : str
        Of the API, for ``POST``.
    why_not : str or None
        Why the caller may not; None where it may.
    confirm : str or None
        The question to confirm before it is sent.
    """

    name: str
    path: str
    why_not: str | None
    confirm: str | None


def actions(job: Job, caller: Caller) -> list[Action]:
    """Buttons for a job as it is now; the API decides again."""
    why_not, path = _why_not(job, caller), f"/api/v1/jobs/{job.id}"
    found = []
    if job.state in _CANCELLABLE:
        reason = "it is being cancelled already" if job.cancel_requested else why_not
        confirm = f"Cancel {job.name}? What it measured is kept, and it can be resumed."
        found.append(Action("cancel", f"{path}/cancel", reason, confirm))
    if job.state in _RESUMABLE:
        found.append(Action("resume", f"{path}/resume", why_not, None))
    return found


def why_not_submit(caller: Caller) -> str | None:
    """Return why a caller may not add a job; None where it may."""
    lacks = [scope for scope in ("submit", "publish") if not (caller.is_admin or scope in caller.scopes)]
    if not lacks:
        return None
    return f"needs a token with {' and '.join(lacks)}; yours has {', '.join(sorted(caller.scopes))}"


def _why_not(job: Job, caller: Caller) -> str | None:
    if caller.is_admin:
        return None
    if "submit" not in caller.scopes:
        return f"needs a token with submit; yours has {', '.join(sorted(caller.scopes))}"
    if job.owner != caller.owner:
        return f"belongs to {job.owner}; only its owner or an admin steers it"
    return None
