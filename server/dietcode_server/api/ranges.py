"""Conditional requests and byte ranges (RFC 9110) for content that is named by its digest."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dietcode_server.api.problems import Refusal

_RANGE = re.compile(r"\s*(?P<first>[0-9]{0,18})\s*-\s*(?P<last>[0-9]{0,18})\s*")


def etag(digest: str) -> str:
    """The strong entity tag of some content."""
    return f'"{digest}"'


def is_known(headers: Mapping[str, str], tag: str) -> bool:
    """Return whether If-None-Match says that the client has it."""
    given = [part.strip().removeprefix("W/") for part in headers.get("if-none-match", "").split(",")]
    return "*" in given or tag in given


def range_of(headers: Mapping[str, str], size_bytes: int, tag: str) -> tuple[int, int] | None:
    """The range ``[start, stop)`` that is asked for; None for all of it.

    All of it is sent, as the RFC allows, for several ranges, for a range that cannot be read, and where
    If-Range names other content.

    Raises
    ------
    Refusal
        No byte lies in the range: status 416.
    """
    given = headers.get("range", "")
    unit, _, wanted = given.partition("=")
    match = _RANGE.fullmatch(wanted)
    if unit.strip().lower() != "bytes" or match is None or headers.get("if-range", tag).strip() != tag:
        return None
    first, last = match["first"], match["last"]
    if not (first or last) or (first and last and int(last) < int(first)):
        return None
    if first:
        start, stop = int(first), min(int(last) + 1, size_bytes) if last else size_bytes
    else:
        start, stop = max(size_bytes - int(last), 0), size_bytes
    if start >= stop:
        raise Refusal(
            "request",
            416,
            f"Range: no byte of {size_bytes} lies in {given[:60]}; leave the header out for all of them",
            {"Content-Range": f"bytes */{size_bytes}"},
        )
    return start, stop
