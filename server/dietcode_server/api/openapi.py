"""The OpenAPI document: what each operation answers, examples and problems included."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema

from dietcode.protocol import JobEvent, ProblemDetails
from dietcode_server.api.examples import FORBIDDEN, PROBLEMS, SPEC_PROBLEM
from dietcode_server.api.gate import OPEN_PATHS
from dietcode_server.api.problems import MEDIA_TYPE, TITLES

Responses = dict[int | str, dict[str, Any]]

_ANYWHERE = (403, 421, 500, 503)
_SECURITY: dict[str, Any] = {
    "token": {"type": "http", "scheme": "bearer", "description": "A token of this server."},
    "password": {
        "type": "http",
        "scheme": "basic",
        "description": "For browsers, and for reading only: a token as the password, with any name.",
    },
}
_REF = "#/components/schemas/{model}"


def shows(example: object, media_type: str = "application/json", description: str = "") -> dict[str, Any]:
    """A response with an example."""
    shown: dict[str, Any] = {"content": {media_type: {"example": example}}}
    return shown | ({"description": description} if description else {})


def problems(*statuses: int, spec: bool = False, token: bool = True) -> Responses:
    """Problem documents of an operation: these, and those that every operation may give.

    Parameters
    ----------
    spec : bool
        Whether status 422 may also say that a spec was refused.
    token : bool
        Whether the operation may need a token.
    """
    responses: Responses = {}
    for status in sorted({*statuses, *_ANYWHERE, *((401, 429) if token else ())}):
        kind, detail = PROBLEMS[status]
        examples = {kind: {"value": _document(kind, status, detail)}}
        if spec and status == 422:
            kind, detail, field = SPEC_PROBLEM
            examples[kind] = {"value": _document(kind, status, detail) | {"field": field}}
        if token and status == 403:
            kind, detail = FORBIDDEN
            examples[kind] = {"value": _document(kind, status, detail)}
        content = {"schema": {"$ref": _REF.format(model="ProblemDetails")}, "examples": examples}
        responses[status] = {"description": TITLES[PROBLEMS[status][0]], "content": {MEDIA_TYPE: content}}
    return responses


def _document(kind: str, status: int, detail: str) -> dict[str, Any]:
    urn = f"urn:dietcode:problem:{kind}"
    return ProblemDetails(type=urn, title=TITLES[kind], status=status, detail=detail).model_dump(
        exclude_none=True
    )


def operation_id(route: APIRoute) -> str:
    """The name of the function that answers, which generated clients use."""
    return route.name


def describe(app: FastAPI) -> dict[str, Any]:
    """Return the document; made once."""
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
            tags=app.openapi_tags,
        )
        _, extra = models_json_schema(
            [(ProblemDetails, "serialization"), (JobEvent, "serialization")], ref_template=_REF
        )
        schema["components"]["schemas"] |= extra["$defs"]
        _add_security(schema)
        app.openapi_schema = schema
    return app.openapi_schema


def _add_security(schema: dict[str, Any]) -> None:
    """Say which operations take a token.

    A server on a loopback address that never made a token needs none: hence the empty choice.
    """
    schema["components"]["securitySchemes"] = _SECURITY
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            choices: list[dict[str, list[str]]] = [{}, {"token": []}]
            choices += [{"password": []}] if method in {"get", "head"} else []
            operation["security"] = [] if path in OPEN_PATHS else choices
