"""Every error of the interface as a problem document (RFC 9457).

A client reads what it did and what to do; tracebacks and paths of the server stay in its log.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from dietcode.errors import (
    ConflictError,
    DietCodeError,
    NotFoundError,
    RequestError,
    ServerError,
    SpecError,
    TargetError,
)
from dietcode.protocol import ProblemDetails, RecordsImport, SubmitRequest, TokenRequest
from dietcode.workload.text import clip, one_line
from dietcode_server.api.reading import takes_head
from dietcode_server.store.database import StoreError

_OF_TARGET = re.compile(r"(target(?:\.[a-z_]+)?): (.*)")
MEDIA_TYPE = "application/problem+json"
TITLES = {
    "not-found": "Not found",
    "conflict": "Does not fit the present state",
    "spec": "The workload spec was refused",
    "request": "The request was refused",
    "body-too-large": "The body is too large",
    "host": "Not a name of this server",
    "origin": "Refused for pages of other origins",
    "unauthorized": "A valid token is needed",
    "forbidden": "Not allowed with this token",
    "too-many": "Too many requests",
    "too-slow": "The request took too long",
    "internal": "The server failed",
    "unavailable": "The server cannot answer now",
}
_KINDS = {404: "not-found", 409: "conflict", 413: "body-too-large", 503: "unavailable"}

log = logging.getLogger("dietcode_server")


class Refusal(Exception):  # noqa: N818 - a reply, not a failure
    """A reply with a problem document; raised where no error of DietCode's own fits."""

    def __init__(self, kind: str, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.kind, self.status, self.detail, self.headers = kind, status, detail, headers

    def response(self) -> Response:
        """The reply."""
        return problem(self.kind, self.status, self.detail, headers=self.headers)


def problem(
    kind: str,
    status: int,
    detail: str,
    *,
    field: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return a problem document as a response.

    Parameters
    ----------
    kind : str
        The last part of its URN, a key of `TITLES`.
    status : int
    detail : str
        One line for the caller.
    field : str, optional
        Dotted path of the field of a spec that it is about.
    headers : mapping of str to str, optional
    """
    document = ProblemDetails(
        type=f"urn:dietcode:problem:{kind}", title=TITLES[kind], status=status, detail=detail, field=field
    )
    # Plain ASCII: what a client sent may hold characters that UTF-8 cannot encode.
    body = json.dumps(document.model_dump(exclude_none=True))
    return Response(body, status, headers, MEDIA_TYPE)


def of_target(error: TargetError) -> SpecError:
    """The error of a spec's field; its message may begin with a more exact one."""
    match = _OF_TARGET.fullmatch(str(error))
    return SpecError("target", str(error)) if match is None else SpecError(match[1], match[2])


async def _refusal(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return error.response()


async def _dietcode_error(request: Request, error: Exception) -> Response:
    """Errors that were designed: the request's own say what is wrong, the server's own stay in its log."""
    if isinstance(error, TargetError):
        error = of_target(error)
    if isinstance(error, SpecError):
        return problem("spec", 422, one_line(error.problem, 500), field=error.field)
    for kind, status, family in (
        ("not-found", 404, NotFoundError),
        ("conflict", 409, ConflictError),
        ("request", 422, RequestError),
    ):
        if isinstance(error, family):
            return problem(kind, status, one_line(str(error), 500))
    log.error("%s %s: %s", request.method, clip(request.url.path, 200), error)
    if isinstance(error, StoreError):
        return problem("unavailable", 503, "the server's database does not answer; try again later")
    if isinstance(error, ServerError):
        return problem("unavailable", 503, one_line(str(error), 500), headers={"Retry-After": "5"})
    return await _failure(request, error)


async def _http_error(request: Request, error: Exception) -> Response:
    """Answer what the framework refuses: unknown routes, wrong methods, bodies."""
    assert isinstance(error, HTTPException)
    where = f"{one_line(request.method, 20)} {clip(request.url.path, 120)}"
    headers = dict(error.headers or {})
    allowed = ", ".join(sorted(_methods(request)))
    if error.status_code == 405:
        headers["Allow"] = allowed  # the framework names those of one route only
    details = {
        400: "the body cannot be read as JSON; send one JSON object, not nested too deep",
        404: f"{where}: no such route; /openapi.json lists them",
        405: f"{where}: wrong method; allowed: {allowed}",
        413: body_too_large(request.app.state.services.settings.max_body_bytes),
    }
    detail = details.get(error.status_code, one_line(str(error.detail)))
    kind = _KINDS.get(error.status_code, "internal" if error.status_code >= 500 else "request")
    return problem(kind, error.status_code, detail, headers=headers)


def _methods(request: Request) -> set[str]:
    """Methods that this path answers."""
    routes = [route for route in request.app.state.routes if route.path_regex.fullmatch(request.url.path)]
    methods = {method for route in routes for method in route.methods}
    return methods | {"HEAD"} if "GET" in methods and takes_head(request.url.path) else methods


def body_too_large(limit: int) -> str:
    """Return the problem of a body of more than `limit` bytes."""
    return f"the body is larger than {limit} bytes; DIETCODE_SERVE_MAX_BODY_BYTES sets the limit"


async def _invalid(request: Request, error: Exception) -> Response:
    """A parameter, header or body of the wrong form."""
    assert isinstance(error, RequestValidationError)
    detail: dict[str, Any] = error.errors()[0]
    if detail["type"] == "json_invalid":
        return problem("request", 400, f"the body is not JSON: {one_line(detail['ctx']['error'])}")
    name = ".".join(str(part) if isinstance(part, int) else one_line(part, 60) for part in detail["loc"])
    if detail["type"] == "missing":
        return problem("request", 422, f"{name}: missing")
    if detail["type"] == "extra_forbidden":
        last = request.url.path.rpartition("/")[2]
        models: dict[str, type[BaseModel]] = {"tokens": TokenRequest, "records": RecordsImport}
        model = models.get(last, SubmitRequest)
        fields = ", ".join(model.model_fields)
        return problem("request", 422, f"{name}: unknown field; allowed: {fields}")
    value = detail.get("input")
    # Not the whole of it: a list may be nested deeper than repr goes.
    given = f"a {type(value).__name__}" if isinstance(value, list | dict) else clip(value)
    return problem("request", 422, f"{name}: given {given}; {one_line(detail['msg'])}")


async def _failure(_: Request, error: Exception) -> Response:
    """Anything else: the server logs it with its traceback."""
    return problem("internal", 500, "the server failed on this request; its log says why")


HANDLERS: dict[int | type[Exception], Any] = {
    Refusal: _refusal,
    DietCodeError: _dietcode_error,
    HTTPException: _http_error,
    RequestValidationError: _invalid,
    Exception: _failure,
}
