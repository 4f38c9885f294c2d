"""Callers, and what they may do.

A job and a name belong to an owner: the name that a token was made for. A server that asks for no tokens has
one owner, ``local``, who may do everything.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy.orm import Session

from dietcode_server.api.problems import Refusal
from dietcode_server.store.owners import owner_of
from dietcode_server.store.tables import LOCAL, JobRow

CALLER = "dietcode.caller"  # its place in the ASGI scope
MAX_KEY_CHARS = 255  # of the column


@dataclass(frozen=True)
class Caller:
    """A caller whom the gate admitted.

    Attributes
    ----------
    scopes : frozenset of str
        Of read, submit, publish and admin; admin holds the others.
    """

    owner: str
    scopes: frozenset[str]

    @property
    def is_admin(self) -> bool:
        """Return whether everything is allowed."""
        return "admin" in self.scopes

    def need(self, scope: str, what: str) -> None:
        """Refuse a caller without a scope.

        Raises
        ------
        Refusal
            The token does not have it.
        """
        if self.is_admin or scope in self.scopes:
            return
        has = ", ".join(sorted(self.scopes))
        raise forbidden(f"{what} needs a token with the scope {scope}; this one has {has}", scope)

    def need_job(self, row: JobRow) -> None:
        """Refuse a caller who wants to steer another's job.

        Raises
        ------
        Refusal
            It is another's.
        """
        if not self.is_admin and row.owner != self.owner:
            raise forbidden(f"job {row.id!r} belongs to {row.owner}; only its owner or an admin steers it")

    def need_name(self, session: Session, name: str) -> None:
        """Refuse a caller who wants to publish under another's name, or to yank what is there.

        Raises
        ------
        Refusal
            It is another's.
        """
        owner = owner_of(session, name)
        if not self.is_admin and owner not in (None, self.owner):
            raise forbidden(f"{name} belongs to {owner}; choose another name, or ask them or an admin")

    def own_key(self, key: str | None) -> str | None:
        """An Idempotency-Key as the database has it: the same word is another key for another owner."""
        if key is None or (self.owner == LOCAL and "/" not in key):
            return key
        own = f"{self.owner}/{key}"
        return (
            own if len(own) <= MAX_KEY_CHARS else f"{self.owner}/{hashlib.sha256(key.encode()).hexdigest()}"
        )


EVERYBODY = Caller(LOCAL, frozenset({"admin"}))
"""The caller of a server that needs no tokens."""


def forbidden(detail: str, scope: str | None = None) -> Refusal:
    """The answer to somebody who is known and may not."""
    challenge = 'Bearer realm="DietCode", error="insufficient_scope"'
    headers = None if scope is None else {"WWW-Authenticate": f'{challenge}, scope="{scope}"'}
    return Refusal("forbidden", 403, detail, headers)


async def _caller(request: Request) -> Caller:
    caller: Caller = request.scope[CALLER]
    return caller


CallerOf = Annotated[Caller, Depends(_caller)]
