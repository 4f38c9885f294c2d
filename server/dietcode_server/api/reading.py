"""``HEAD`` for every ``GET``: the same answer without its body."""

from __future__ import annotations

import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_OTHERWISE = re.compile(r"/api/v1/(blobs/[^/]+|jobs/[^/]+/events)")  # one of its own; no end


def takes_head(path: str) -> bool:
    """Return whether ``HEAD`` of a path that has ``GET`` is answered here."""
    return _OTHERWISE.fullmatch(path) is None


class HeadAsGet:
    """ASGI middleware: answers ``HEAD`` as ``GET``, and leaves the body out."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] != "HEAD" or not takes_head(scope["path"]):
            await self.app(scope, receive, send)
            return

        async def send_without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await self.app({**scope, "method": "GET"}, receive, send_without_body)
