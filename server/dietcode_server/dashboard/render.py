"""Templates, and what every page carries."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import yaml
from fastapi import Request, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from dietcode._version import __version__
from dietcode.protocol.address import DEFAULT_SERVER
from dietcode_server.api.callers import CALLER
from dietcode_server.dashboard import static
from dietcode_server.dashboard.jargon import explained

# No inline script, no inline style, no eval, nothing from elsewhere.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


def page(
    request: Request,
    template: str,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    **context: Any,
) -> Response:
    """A page, or a fragment of one, as HTML.

    Parameters
    ----------
    template : str
        File in ``templates/``. Pages extend ``base.html``; names of fragments begin with ``_``.
    headers : mapping, optional
        Further ones.
    **context
        For the template, beside `request` and `caller`.
    """
    found = templates().get_template(template)
    text = found.render(context, request=request, caller=request.scope.get(CALLER))
    return HTMLResponse(text, status, headers={**(headers or {}), "Content-Security-Policy": POLICY})


def is_fragment(request: Request) -> bool:
    """Return whether htmx wants a part of the page, not a whole one for its history."""
    headers = request.headers
    return "hx-request" in headers and "hx-history-restore-request" not in headers


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
    environment.filters |= {
        "time": _time,
        "iso": _iso,
        "clock": _clock,
        "ago": _ago,
        "secs": secs,
        "ticks": _ticks,
        "explained": explained,
        "size": _size,
        "pretty": _pretty,
        "yaml": _yaml,
    }
    environment.globals |= {"version": __version__, "static": static.url, "server_option": server_option}
    return environment


def server_url(request: Request) -> str:
    """Return the URL by which the browser reaches this server; clients can use the same."""
    return f"{request.url.scheme}://{request.url.netloc}"


def server_option(request: Request) -> str:
    """Return what a command needs to reach this server; nothing where that is the client's default."""
    url = server_url(request)
    return "" if url == DEFAULT_SERVER else f" --server {url}"


def _time(at: datetime | None) -> str:
    return "" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def _clock(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%H:%M:%S")


def _iso(at: datetime | None) -> str:
    """Format a time for the `datetime` attribute of `<time>`."""
    return "" if at is None else at.astimezone(UTC).isoformat(timespec="seconds")


def _ago(at: datetime | None) -> str:
    """Return how long ago, to the minute at the finest: a page that is loaded again stays the same."""
    if at is None:
        return ""
    past = (datetime.now(UTC) - at).total_seconds()
    if abs(past) < 60:
        return "just now" if past >= 0 else "in less than 1 min"
    minutes = abs(past) / 60
    unit, length = next(one for one in (("d", 24 * 60), ("h", 60), ("min", 1)) if minutes >= one[1])
    return f"{minutes / length:.0f} {unit} ago" if past > 0 else f"in {minutes / length:.0f} {unit}"


def secs(duration: float | timedelta | None) -> str:
    """A duration as people say it, of at most two units: 0.4 s, 12 s, 3 min 5 s, 2 h 10 min, 3 d 4 h."""
    if duration is None:
        return ""
    whole = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
    if whole < 10:
        return f"{max(0.0, whole):.1f} s"
    whole = round(whole)
    for large, small, unit, below in ((86400, 3600, "d", "h"), (3600, 60, "h", "min"), (60, 1, "min", "s")):
        if whole >= large:
            rest = whole % large // small
            return f"{whole // large} {unit}" + (f" {rest} {below}" if rest else "")
    return f"{whole} s"


def _size(num_bytes: int) -> str:
    if num_bytes < 1024:
        return f"{num_bytes} B"
    return f"{num_bytes / 1024:.1f} KiB" if num_bytes < 1 << 20 else f"{num_bytes / (1 << 20):.1f} MiB"


def _pretty(data: object) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False)


def _yaml(data: object) -> str:
    """Format as a person would: fields in their order, lists of numbers on one line."""
    text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, default_flow_style=None, width=100)
    return text


def _ticks(text: str) -> Markup:
    """A line of ours or of a compiler's: escaped, and what stands in backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))
