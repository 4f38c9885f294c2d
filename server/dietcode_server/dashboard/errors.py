"""Errors of pages are pages: what went wrong, in the words of the problem document."""

from __future__ import annotations

import json
from collections.abc import Mapping

from fastapi import Request, Response
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dietcode_server.api.guards import HEADERS
from dietcode_server.api.problems import HANDLERS, MEDIA_TYPE
from dietcode_server.dashboard.render import page

_API = "/api/"
_OWN = ("content-type", "content-length", "content-security-policy")  # of a page


class ErrorPages:
    """ASGI middleware: gives a browser that goes to a page a page, where a program gets a problem document.

    Status and headers stay, the challenge that makes a browser ask for a password among them.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and put a page in the place of a problem document."""
        if scope["type"] != "http" or not _wants_page(scope):
            await self.app(scope, receive, send)
            return
        start: Message | None = None
        body, begun = b"", False

        async def send_page(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start":
                if Headers(raw=message["headers"]).get("content-type") != MEDIA_TYPE:
                    await send(message)
                    return
                start = message
            elif start is None:
                await send(message)
            else:
                body += message.get("body", b"")
                if not message.get("more_body", False):
                    headers = Headers(raw=start["headers"])
                    await _error_page(scope, start["status"], headers, body)(scope, receive, send)

        async def send_watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send_page(message)

        try:
            await self.app(scope, receive, send_watched)
        except Exception as error:
            if not begun:
                failure = await HANDLERS[Exception](Request(scope), error)
                await _error_page(scope, failure.status_code, HEADERS, failure.body)(scope, receive, send)
            raise  # what stands outside logs it


def _wants_page(scope: Scope) -> bool:
    headers = Headers(scope=scope)
    return (
        scope["method"] in ("GET", "HEAD")
        and not scope["path"].startswith(_API)
        and "text/html" in headers.get("accept", "")
        and "hx-request" not in headers
    )


def _error_page(scope: Scope, status: int, given: Mapping[str, str], body: bytes) -> Response:
    kept = {name: value for name, value in given.items() if name.lower() not in _OWN}
    return page(Request(scope), "error.html", status, kept, problem=json.loads(body))
