"""Requests that are refused before any route sees them, and the headers of every response.

What has to be kept out here are pages in a user's own browser, which reach the server by another name for its
address (DNS rebinding), across origins, or with a form, and for which the browser may even add the token that
the user has given it. Who may come in at all is asked in `gate`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dietcode.workload.text import clip
from dietcode_server.api.problems import Refusal, body_too_large

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
HEADERS = {
    # Pages of the dashboard carry one of their own.
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

_ABSOLUTE = re.compile(rb"https?://(?P<host>[^/]*)(?P<path>/.*)?", re.IGNORECASE)
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")
_PAGES = re.compile(r"/|/(jobs|libraries|devices|submit)(/[^/]+){0,2}")  # links to them may be anywhere
_READING = ("GET", "HEAD", "OPTIONS")


class Guard:
    """ASGI middleware: checks Host and the target, Origin, Sec-Fetch-Site, Content-Type and Content-Length.

    Parameters
    ----------
    allowed_hosts : iterable of str
        Names by which the server may be called, besides the loopback ones.
    max_body_bytes : int
        Largest declared body. Bodies that declare nothing are counted while they are read, elsewhere.
    """

    def __init__(self, app: ASGIApp, allowed_hosts: Iterable[str], max_body_bytes: int) -> None:
        self.app = app
        self.hosts = frozenset(_bracketed(name.lower()) for name in (*LOOPBACK_NAMES, *allowed_hosts))
        self.max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a refused request, or pass it on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            self._check(scope)
        except Refusal as refusal:
            await refusal.response()(scope, receive, send_with_headers)
            return
        await self.app(scope, receive, send_with_headers)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        self._check_host(headers)
        _take_path(scope, headers)
        _check_origin(scope, headers)
        if scope["method"] not in _READING:
            _check_content_type(headers)
        self._check_length(headers)

    def _check_host(self, headers: Headers) -> None:
        given = headers.getlist("host")
        match = _HOST.fullmatch(given[0].lower()) if len(given) == 1 else None
        if match is None or match["name"] not in self.hosts:
            shown = clip(given[0]) if given else "none"
            raise Refusal(
                "host",
                421,
                f"Host: given {shown}; allowed: {', '.join(sorted(self.hosts))}; "
                "DIETCODE_SERVE_ALLOWED_HOSTS adds names",
            )

    def _check_length(self, headers: Headers) -> None:
        declared = headers.get("content-length", "")
        if declared and "transfer-encoding" in headers:
            # A proxy in front may end the body elsewhere, and take the rest of it for another's request.
            detail = "Content-Length and Transfer-Encoding: given both; allowed: one of them"
            raise Refusal("request", 400, detail, {"Connection": "close"})
        if declared.isdecimal() and (len(declared) > 18 or int(declared) > self.max_body_bytes):
            # Nobody reads the rest of that body, so the connection cannot be used again.
            raise Refusal("body-too-large", 413, body_too_large(self.max_body_bytes), {"Connection": "close"})


def _take_path(scope: Scope, headers: Headers) -> None:
    """Leave the path of a target that names a server too, as proxies are asked: it has to be this one."""
    match = _ABSOLUTE.fullmatch(scope["raw_path"])
    if match is None:
        return
    if match["host"].decode("latin-1").lower() != headers["host"].lower():
        raise Refusal(
            "host",
            400,
            f"target: given {clip(scope['path'])}; allowed: a path, or one of http://{headers['host']}",
        )
    scope["raw_path"] = match["path"] or b"/"
    scope["path"] = unquote(scope["raw_path"].decode("ascii"))


def _check_origin(scope: Scope, headers: Headers) -> None:
    """Refuse requests from pages of another origin; following a link to a page is allowed."""
    own = _own_origins(scope["scheme"], headers["host"].lower())
    for origin in headers.getlist("origin"):
        if origin.lower() not in own:
            allowed = " or ".join(own)
            raise Refusal("origin", 403, f"Origin: given {clip(origin)}; allowed: {allowed}, or none")
    site = headers.get("sec-fetch-site", "none").lower()
    follows_link = (
        scope["method"] == "GET"
        and headers.get("sec-fetch-mode", "").lower() == "navigate"
        and headers.get("sec-fetch-dest", "document").lower() == "document"
        and _PAGES.fullmatch(scope["path"]) is not None
    )
    if site not in ("same-origin", "none") and not follows_link:
        raise Refusal(
            "origin",
            403,
            f"Sec-Fetch-Site: given {clip(site)}; allowed: same-origin, none, or a link to a page",
        )


def _own_origins(scheme: str, host: str) -> list[str]:
    """Return the origins of this server for a browser, by the name that it used.

    A proxy in front speaks TLS under a name that is allowed, and asks without it. Names of loopback stay what
    they are: another program of the machine may have the same name under ``https``.
    """
    match = _HOST.fullmatch(host)
    is_loopback = match is None or match["name"] in LOOPBACK_NAMES
    own = [f"{scheme}://{host}"]
    return own if is_loopback or scheme == "https" else [*own, f"https://{host}"]


def _check_content_type(headers: Headers) -> None:
    """Refuse the types that an HTML form can send: a page cannot send JSON here without asking first."""
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    for given in headers.getlist("content-type") or ([""] if has_body else []):
        if given.partition(";")[0].strip().lower() != "application/json":
            raise Refusal(
                "request",
                415,
                f"Content-Type: given {clip(given) if given else 'none'}; allowed: application/json",
            )


def _bracketed(name: str) -> str:
    """An IPv6 address as a Host header writes it."""
    return f"[{name}]" if ":" in name and not name.startswith("[") else name
