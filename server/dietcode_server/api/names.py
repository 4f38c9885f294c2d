"""Names that clients give, checked before they reach SQL: what cannot exist is not found."""

from __future__ import annotations

import re

from dietcode.errors import NotFoundError
from dietcode.runtime.manifest import PART_PREFIX
from dietcode.workload.text import clip
from dietcode_server.store.tokens import OWNER

LIBRARY_NAME = r"^[a-z0-9][a-z0-9._-]{0,63}$"
OWNER_NAME = rf"^{OWNER}$"
LATEST = "latest"

_JOB_ID = re.compile(r"[0-9a-f]{16}")
_LIBRARY_NAME = re.compile(f"({PART_PREFIX})?{LIBRARY_NAME[1:-1]}")
_VERSION = re.compile(r"[1-9][0-9]{0,8}")
_TOKEN_ID = re.compile(r"[0-9a-f]{8}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def check_job_id(given: str) -> str:
    """Return a job's id, if it can be one; raise `NotFoundError` if not."""
    return _check(_JOB_ID, "job", given, "`dietcode jobs` lists them")


def check_token_id(given: str) -> str:
    """Return a token's id, if it can be one; raise `NotFoundError` if not."""
    return _check(_TOKEN_ID, "token", given, "`dietcode token list` shows their ids")


def check_digest(given: str) -> str:
    """Return a blob's digest, if it can be one; raise `NotFoundError` if not."""
    return _check(_DIGEST, "blob", given, "allowed: sha256:<64 hex digits>")


def check_library(name: str, version: str = LATEST) -> tuple[str, int | None]:
    """Return name and version of a library; None stands for the latest.

    Raises
    ------
    NotFoundError
        No library has such a name or version.
    """
    _check(_LIBRARY_NAME, "library", name, "GET /api/v1/libraries lists them")
    if version == LATEST:
        return name, None
    if not _VERSION.fullmatch(version):
        raise NotFoundError(f"{name}@{clip(version)}: no such version; allowed: a number from 1, or latest")
    return name, int(version)


def _check(allowed: re.Pattern[str], what: str, given: str, advice: str) -> str:
    if not allowed.fullmatch(given):
        raise NotFoundError(f"{what} {clip(given)}: no such {what}; {advice}")
    return given
