"""Templates, and what every page carries."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from functools import cache
from typing import Any

from fastapi import Request, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from dietcode._version import __version__
from dietcode_server.api.callers import CALLER
from dietcode_server.dashboard import static

# No inline script, no inline style, no eval, nothing from elsewhere.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


def page(request: Request, template: str, status: int = 200, **context: Any) -> Response:
    """A page, or a fragment of one, as HTML.

    Parameters
    ----------
    template : str
        File in ``templates/``. Pages extend ``base.html``; names of fragments begin with ``_``.
    **context
        For the template, beside `request` and `caller`.
    """
    found = templates().get_template(template)
    text = found.render(context, request=request, caller=request.scope[CALLER])
    return HTMLResponse(text, status, headers={"Content-Security-Policy": POLICY})


@cache
def templates() -> Environment:
    """The environment: undefined names are errors, everything is escaped."""
    environment = Environment(
        loader=PackageLoader("dietcode_server.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"time": _time, "iso": _iso, "size": _size, "pretty": _pretty}
    environment.globals |= {"version": __version__, "static": static.url}
    return environment


def _time(at: datetime | None) -> str:
    return "" if at is None else at.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def _iso(at: datetime | None) -> str:
    """For the `datetime` attribute of `<time>`."""
    return "" if at is None else at.astimezone(timezone.utc).isoformat(timespec="seconds")


def _size(num_bytes: int) -> str:
    if num_bytes < 1024:
        return f"{num_bytes} B"
    return f"{num_bytes / 1024:.1f} KiB" if num_bytes < 1 << 20 else f"{num_bytes / (1 << 20):.1f} MiB"


def _pretty(data: object) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False)
