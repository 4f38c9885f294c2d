"""Admission: tokens are checked before any route sees a request.

Closed by default: what is not open needs a token, a path that does not exist as well. Unknown,
expired and revoked tokens get the same answer after the same work; only the server's log tells them apart.
"""

from __future__ import annotations

import base64
import binascii
import math
import threading
from datetime import datetime

from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dietcode.errors import DietCodeError
from dietcode.workload.text import clip
from dietcode_server.api.callers import CALLER, EVERYBODY, Caller
from dietcode_server.api.lanes import Lane
from dietcode_server.api.problems import HANDLERS, Refusal, log
from dietcode_server.api.quotas import too_many
from dietcode_server.api.strangers import Strangers
from dietcode_server.store import tokens
from dietcode_server.store.database import Database, StoreError
from dietcode_server.store.subjects import utc_now
from dietcode_server.store.tables import TokenRow

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/openapi.json"})
OPEN_FOLDER = "/static/"  # scripts and styles, the same for everybody
READING = frozenset({"GET", "HEAD", "OPTIONS"})

_API = "/api/"
_LIBRARIES = "/api/v1/libraries/"
_TOKENS = "/api/v1/tokens"
_NO_TOKEN = "no token that is valid here; `dietcode token create NAME` on the server's machine makes one"


class Gate:
    """ASGI middleware: identifies the caller, and refuses those who may not call.

    Parameters
    ----------
    database : Database
        With the tokens.
    always : bool
        Ask for tokens even where none was ever made: others than this machine's users reach the server.
    max_wrong_per_minute : int
        Wrong tokens that one address may show.
    """

    def __init__(self, app: ASGIApp, database: Database, always: bool, max_wrong_per_minute: int) -> None:
        self.app = app
        self._database = database
        self._closed = always
        self._strangers = Strangers(max_wrong_per_minute)
        self._lane = Lane("gate", num_threads=8)  # who comes in does not wait for those who are in
        self._noting = threading.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a refused request, or pass it on with its caller."""
        if scope["type"] != "http" or _is_open(scope["path"]):
            await self.app(scope, receive, send)
            return
        try:
            caller = await self._lane.run(self._admit, scope)
        except Refusal as refusal:
            await refusal.response()(scope, receive, send)
            return
        except DietCodeError as error:
            answer = await HANDLERS[DietCodeError](Request(scope), error)
            await answer(scope, receive, send)
            return
        scope[CALLER] = caller
        await self.app(scope, receive, send if caller is EVERYBODY else _private(send))

    def _admit(self, scope: Scope) -> Caller:
        if not self._requires_token():
            return EVERYBODY
        headers = Headers(scope=scope)
        if "authorization" not in headers:
            raise Refusal("unauthorized", 401, _NO_TOKEN, {"WWW-Authenticate": _challenge(scope, headers)})
        row = self._token(scope, headers)
        caller = Caller(row.owner, frozenset(row.scopes.split()))
        caller.need(needed(scope["method"], scope["path"]), f"{scope['method']} {clip(scope['path'], 120)}")
        return caller

    def _requires_token(self) -> bool:
        """Return whether a token is needed; once it is, always."""
        if not self._closed:
            with self._database.snapshot() as connection:
                self._closed = tokens.any_made(connection)
        return self._closed

    def _token(self, scope: Scope, headers: Headers) -> TokenRow:
        """The live token that a request shows."""
        given, now = _credentials(headers, scope["method"]) or "", utc_now()
        address, digest = (scope.get("client") or ("?",))[0], tokens.digest_of(given)
        wait = math.ceil(self._strangers.must_wait(address, digest))
        if wait:
            raise too_many(f"too many wrong tokens came from {address}; try again in {wait} s", wait)
        with self._database.read() as session:
            row, why = tokens.check(session, given, now=now)
        if row is None:
            self._strangers.was_wrong(address, digest)
            where = f"{clip(scope['method'], 20)} {clip(scope['path'], 120)}"
            log.warning("%s from %s: refused %s", where, address, why)
            raise Refusal("unauthorized", 401, _NO_TOKEN, {"WWW-Authenticate": _challenge(scope, headers)})
        self._strangers.was_right(digest)
        if not tokens.used_lately(row, now):
            self._note_use(row.id, now)
        return row

    def _note_use(self, token_id: str, now: datetime) -> None:
        """Note that a token was used, unless somebody does so now: a database that is locked holds one up."""
        if not self._noting.acquire(blocking=False):
            return
        try:
            with self._database.write() as session:
                tokens.note_use(session, token_id, now)
        except StoreError as error:  # a full disk keeps nobody from reading
            log.warning("last use of token %s: %s", token_id, error)
        finally:
            self._noting.release()


def needed(method: str, path: str) -> str:
    """The scope without which a route is not reached; routes may ask for more."""
    if path == _TOKENS or path.startswith(f"{_TOKENS}/"):
        return "admin"
    if method in READING:
        return "read"
    return "publish" if path.startswith(_LIBRARIES) else "submit"


def _is_open(path: str) -> bool:
    return path in OPEN_PATHS or path.startswith(OPEN_FOLDER)


def _credentials(headers: Headers, method: str) -> str | None:
    """The token that a request shows: as Bearer, or as the password of HTTP Basic.

    A browser sends Basic by itself, whatever page made it ask. So it is taken for reading, and for anything
    else only where the browser says which page asked: `guards` has checked that it is one of this server's.
    """
    given = headers.getlist("authorization")
    scheme, _, rest = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    if scheme.lower() == "bearer":
        return rest.strip()
    if scheme.lower() == "basic" and (method in READING or "origin" in headers):
        try:
            pair = base64.b64decode(rest.strip(), validate=True).decode()
        except (binascii.Error, ValueError):
            return None
        return pair.partition(":")[2]
    return None


def _challenge(scope: Scope, headers: Headers) -> str:
    """Return the challenge that a browser shows its prompt for: on pages only, so that no program opens one.

    A page that is live would open it again and again.
    """
    bearer = 'Bearer realm="DietCode"'
    if "authorization" in headers:
        bearer += ', error="invalid_token"'
    return f'Basic realm="DietCode", charset="UTF-8", {bearer}' if _is_page(scope, headers) else bearer


def _is_page(scope: Scope, headers: Headers) -> bool:
    """Return whether somebody goes to a page: not where a script of one asks for a part of it."""
    by_script = "hx-request" in headers or headers.get("accept") == "application/json"
    return not scope["path"].startswith(_API) and not by_script


def _private(send: Send) -> Send:
    """Keep caches that several people share from keeping what one of them was given."""

    async def private_send(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            if "cache-control" in headers:
                headers["cache-control"] = headers["cache-control"].replace("public", "private")
            headers.add_vary_header("Authorization")
        await send(message)

    return private_send
