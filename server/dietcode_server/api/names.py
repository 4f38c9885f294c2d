"""Names that clients give, checked before they reach SQL: what cannot exist is not found."""

from __future__ import annotations

import re

from dietcode.errors import NotFoundError
from dietcode.workload.text import clip
from dietcode_server.store.tokens import OWNER

LIBRARY_NAME = r"^[a-z0-9][a-z0-9._-]{0,63}$"
OWNER_NAME = rf"^{OWNER}$"
LATEST = "latest"

_JOB_ID = re.compile(r"[0-9a-f]{16}")
_LIBRARY_NAME = re.compile(LIBRARY_NAME[1:-1])
_VERSION = re.compile(r"[1-9][0-9]{0,8}")
_TOKEN_ID = re.compile(r"[0-9a-f]{8}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def check_job_id(given: str) -> str:
    """Return `given`, which may be a job's id.

    Raises
    ------
    NotFoundError
        No job has such an id.
    """
    if not _JOB_ID.fullmatch(given):
        raise NotFoundError(f"job {clip(given)}: no such job; `dietcode jobs` lists them")
    return given


def check_library(name: str, version: str = LATEST) -> tuple[str, int | None]:
    """Return name and version of a library; None stands for the latest.

    Raises
    ------
    NotFoundError
        No library has such a name or version.
    """
    if not _LIBRARY_NAME.fullmatch(name):
        raise NotFoundError(f"library {clip(name)}: no such library; GET /api/v1/libraries lists them")
    if version == LATEST:
        return name, None
    if not _VERSION.fullmatch(version):
        raise NotFoundError(f"{name}@{clip(version)}: no such version; allowed: a number from 1, or latest")
    return name, int(version)


def check_token_id(given: str) -> str:
    """Return `given`, which may be a token's id.

    Raises
    ------
    NotFoundError
        No token has such an id.
    """
    if not _TOKEN_ID.fullmatch(given):
        raise NotFoundError(f"token {clip(given)}: no such token; `dietcode token list` shows their ids")
    return given


def check_digest(given: str) -> str:
    """Return `given`, which may be a blob's digest.

    Raises
    ------
    NotFoundError
        No blob has such a digest.
    """
    if not _DIGEST.fullmatch(given):
        raise NotFoundError(f"blob {clip(given)}: no such blob; allowed: sha256:<64 hex digits>")
    return given
