"""Tokens: who may do what. A token itself is shown once; the database has its SHA-256.

A token is 32 random bytes, so that nobody finds one by trying, and a plain digest of it is enough.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta

from sqlalchemy import Connection, or_, select, update
from sqlalchemy.orm import Session

from dietcode.errors import NotFoundError, RequestError
from dietcode.workload.text import clip
from dietcode_server.store.subjects import utc_now
from dietcode_server.store.tables import TokenRow

SCOPES = ("read", "submit", "publish", "admin")
PREFIX = "dct_"
OWNER = r"[a-z0-9][a-z0-9._@-]{0,63}"
_NUM_BYTES = 32
_USE_EVERY = timedelta(minutes=1)  # how exactly the last use is known
_OWNER = re.compile(OWNER)
_NO_DIGEST = "0" * 64


def create(
    session: Session,
    owner: str,
    scopes: Iterable[str],
    lifetime: timedelta | None,
    *,
    now: datetime | None = None,
) -> tuple[TokenRow, str]:
    """Make a token for `owner`; the row, and the token itself, which cannot be had again.

    Parameters
    ----------
    scopes : iterable of str
        Of `SCOPES`; ``admin`` holds all others.
    lifetime : timedelta or None
        None for one that does not expire.

    Raises
    ------
    RequestError
        The name or a scope is not allowed, or no scope is given.
    """
    if not _OWNER.fullmatch(owner):
        raise RequestError(
            f"owner: given {clip(owner)}; allowed: 1 to 64 of a-z, 0-9, '.', '_', '-', '@', "
            "a letter or digit first"
        )
    given = set(scopes)
    for scope in sorted(given - set(SCOPES)):
        raise RequestError(f"scopes: given {clip(scope)}; allowed: {', '.join(SCOPES)}")
    if not given:
        raise RequestError(f"scopes: given none; allowed: {', '.join(SCOPES)}, separated by commas")
    now = now or utc_now()
    token = PREFIX + secrets.token_urlsafe(_NUM_BYTES)
    row = TokenRow(
        id=secrets.token_hex(4),
        digest=digest_of(token),
        owner=owner,
        scopes=" ".join(scope for scope in SCOPES if scope in given),
        created_at=now,
        expires_at=None if lifetime is None else now + lifetime,
    )
    session.add(row)
    session.flush()
    return row, token


def check(session: Session, given: str, *, now: datetime | None = None) -> tuple[TokenRow | None, str]:
    """Return the live token that `given` is; or None and, for the server's log alone, why not.

    The work is the same whether the token is unknown, expired or revoked.
    """
    digest = digest_of(given)
    row = session.scalar(select(TokenRow).where(TokenRow.digest == digest))
    same = hmac.compare_digest(digest, _NO_DIGEST if row is None else row.digest)
    if row is None or not same:
        return None, "a token that is not known"
    state = state_of(row, now or utc_now())
    return (row, "") if state == "live" else (None, f"token {row.id} of {row.owner}, which is {state}")


def state_of(row: TokenRow, now: datetime) -> str:
    """``live``, ``expired`` or ``revoked``."""
    if row.revoked_at is not None:
        return "revoked"
    return "expired" if row.expires_at is not None and row.expires_at <= now else "live"


def used_lately(row: TokenRow, now: datetime) -> bool:
    """Return whether the last use that is noted is new enough."""
    return row.last_used_at is not None and now - row.last_used_at < _USE_EVERY


def note_use(session: Session, token_id: str, now: datetime) -> None:
    """Note that a token was used."""
    session.execute(
        update(TokenRow)
        .where(TokenRow.id == token_id)
        .values(last_used_at=now)
        .execution_options(synchronize_session=False)
    )


def any_made(session: Session | Connection) -> bool:
    """Return whether a token was ever made: one that is revoked or expired must not open the server again."""
    return session.scalar(select(TokenRow.id).limit(1)) is not None


def any_live(session: Session, *, now: datetime | None = None) -> bool:
    """Return whether anybody can come in with a token."""
    lives_on = or_(TokenRow.expires_at.is_(None), TokenRow.expires_at > (now or utc_now()))
    return session.scalar(select(TokenRow.id).where(TokenRow.revoked_at.is_(None), lives_on)) is not None


def list_tokens(session: Session) -> list[TokenRow]:
    """Return all tokens, the newest last."""
    return list(session.scalars(select(TokenRow).order_by(TokenRow.created_at, TokenRow.id)))


def revoke(session: Session, token_id: str, *, now: datetime | None = None) -> TokenRow:
    """Let nobody in with this token any more; a second time changes nothing.

    Raises
    ------
    NotFoundError
        No token has this id.
    """
    row = session.get(TokenRow, token_id)
    if row is None:
        raise NotFoundError(f"token {clip(token_id)}: no such token; `dietcode token list` shows their ids")
    row.revoked_at = row.revoked_at or now or utc_now()
    session.flush()
    return row


def digest_of(token: str) -> str:
    """SHA-256 of a token, in hex."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
