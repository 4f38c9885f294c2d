"""Answers of a server: read into a value, or into one of DietCode's errors."""

from __future__ import annotations

import json
import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import httpx2
from pydantic import BaseModel, ValidationError

from dietcode.errors import ConflictError, DietCodeError, NotFoundError, RequestError, ServerError, SpecError
from dietcode.protocol import ProblemDetails
from dietcode.workload.text import one_line

MAX_JSON_BYTES = 64 << 20
_MAX_DETAIL = 400
_KINDS: dict[int, type[RequestError]] = {404: NotFoundError, 409: ConflictError}

M = TypeVar("M", bound=BaseModel)


class UnreachableError(ServerError):
    """There was no answer, the connection broke, or the server failed: a later attempt may succeed."""


@dataclass(frozen=True)
class Answer:
    """A whole answer, of limited size.

    Attributes
    ----------
    url : str
        What was asked, for messages.
    headers : mapping
        Names in lower case.
    """

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes

    def model(self, kind: type[M]) -> M:
        """Return the body as a model.

        Raises
        ------
        ServerError
            It is something else.
        """
        try:
            return kind.model_validate_json(self.body)
        except (ValidationError, RecursionError) as error:
            raise ServerError(
                f"{self.url}: the answer is no {kind.__name__} of DietCode ({reason_of(error)}); "
                "does DIETCODE_SERVER name a DietCode server?"
            ) from None


def reason_of(error: Exception) -> str:
    """Return where validation failed and why, briefly."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        return one_line(".".join(map(str, first["loc"])) + ": " + first["msg"], 160).lstrip(": ")
    return one_line(str(error), 160)


def check_status(status: int, headers: Mapping[str, str], url: str) -> None:
    """Refuse what no part of this client asked for.

    Raises
    ------
    ServerError
        A redirect, which is not followed so that no token goes elsewhere, or a compressed answer.
    """
    if 300 <= status < 400 and status != 304:
        where = one_line(headers.get("location", "elsewhere"), 120)
        raise ServerError(f"{url}: redirects to {where}, which is not followed; set DIETCODE_SERVER to that")
    encoding = headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise ServerError(
            f"{url}: answered with content encoding {one_line(encoding, 40)!r}; none was asked for"
        )


def error_from(answer: Answer) -> DietCodeError:
    """Return the error that an answer of status 400 or more stands for."""
    try:
        problem = ProblemDetails.model_validate_json(answer.body)
    except (ValidationError, RecursionError):
        return _without_problem(answer)
    detail = one_line(problem.detail or problem.title, _MAX_DETAIL)
    if answer.status >= 500:
        return UnreachableError(f"{answer.url}: the server failed: {detail} (status {answer.status})")
    if answer.status in _KINDS:
        return _KINDS[answer.status](detail)
    if answer.status == 422 and problem.field is not None:
        field = one_line(problem.field, 120)
        return SpecError(field, detail.removeprefix(f"{field}: "))
    if answer.status == 401:
        return RequestError(f"{detail}; set DIETCODE_TOKEN")
    return RequestError(detail)


def _without_problem(answer: Answer) -> DietCodeError:
    """A status that something other than DietCode's server gave: a proxy, or another program."""
    kind = UnreachableError if answer.status >= 500 else ServerError
    return kind(
        f"{answer.url}: status {answer.status} without a problem document; "
        "does DIETCODE_SERVER name a DietCode server?"
    )


def error_of_transport(error: Exception, server: str, timeout_secs: float) -> ServerError:
    """Return the error for a request that got no whole answer."""
    if isinstance(error, httpx2.UnsupportedProtocol | httpx2.InvalidURL):
        return ServerError(f"{server}: {one_line(str(error))}")
    if isinstance(error, httpx2.TimeoutException):
        return UnreachableError(
            f"{server}: no answer within {timeout_secs:g} s; is it overloaded or behind a firewall?"
        )
    reason = _reason(error)
    if isinstance(error, httpx2.ConnectError):
        return UnreachableError(
            f"{server}: cannot be reached: {reason}; start it with `dietcode serve` or set DIETCODE_SERVER"
        )
    return UnreachableError(f"{server}: the connection broke: {reason}; try again")


def _reason(error: BaseException) -> str:
    """The innermost cause that says something, in lower case: ``connection refused``."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return one_line(f"TLS: {cause.reason or cause}", 160)
        if isinstance(cause, OSError) and cause.strerror:
            if cause.errno is None or isinstance(cause, socket.gaierror):
                return one_line(cause.strerror, 160).lower()
            return os.strerror(cause.errno).lower()  # asyncio words its own
        cause = cause.__cause__ or cause.__context__
    return one_line(str(error) or type(error).__name__, 160)


def parse_object(data: bytes) -> object:
    """Parse JSON from an untrusted place.

    Raises
    ------
    ValueError
        It is not JSON, or nested too deep.
    """
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("nested too deep") from None
