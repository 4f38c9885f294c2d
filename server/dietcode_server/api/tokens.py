"""Tokens over REST, for admins: as ``dietcode token`` on the server's machine, but for the first one."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Body

from dietcode.protocol import TokenInfo, TokenList, TokenMade, TokenRequest
from dietcode_server.api import examples
from dietcode_server.api.callers import EVERYBODY, Caller, CallerOf, forbidden
from dietcode_server.api.names import check_token_id
from dietcode_server.api.openapi import problems, shows
from dietcode_server.api.services import ServicesOf
from dietcode_server.store import tokens, wire
from dietcode_server.store.subjects import utc_now

router = APIRouter(prefix="/api/v1/tokens", tags=["tokens"])


@router.get("", summary="List tokens", responses={200: shows(examples.TOKENS), **problems()})
def list_tokens(services: ServicesOf) -> TokenList:
    """All, the newest last; the tokens themselves are not kept."""
    with services.database.read() as session:
        rows, now = tokens.list_tokens(session), utc_now()
        return TokenList(tokens=[wire.token_to_wire(row, now) for row in rows])


@router.post(
    "",
    status_code=201,
    summary="Make a token",
    responses={201: shows(examples.TOKEN_MADE), **problems(400, 413, 415, 422)},
)
def create_token(
    request: Annotated[TokenRequest, Body(examples=[examples.TOKEN_REQUEST])],
    services: ServicesOf,
    caller: CallerOf,
) -> TokenMade:
    """The token is in this answer, and nowhere kept."""
    _need_token(caller)
    lifetime = None if request.expires_secs is None else timedelta(seconds=request.expires_secs)
    with services.database.write() as session:
        row, token = tokens.create(session, request.owner, request.scopes, lifetime)
        return TokenMade(**wire.token_to_wire(row, utc_now()).model_dump(), token=token)


@router.delete(
    "/{token_id}", summary="Revoke a token", responses={200: shows(examples.TOKEN), **problems(404, 422)}
)
def revoke_token(token_id: str, services: ServicesOf) -> TokenInfo:
    """Revoke a token: no request with it is admitted any more; a second time changes nothing."""
    with services.database.write() as session:
        return wire.token_to_wire(tokens.revoke(session, check_token_id(token_id)), utc_now())


def _need_token(caller: Caller) -> None:
    """The first token closes the server to all without one: whoever runs it makes it, on its machine.

    Raises
    ------
    Refusal
        The server has no token yet.
    """
    if caller is EVERYBODY:
        raise forbidden(
            "this server has no token yet; `dietcode token create` on its machine makes the first"
        )
