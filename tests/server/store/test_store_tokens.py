"""Tokens in the database, and what the migration makes of an older one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from alembic import command
from sqlalchemy import text
from store_helpers import library_files, submit

from dietcode.errors import LibraryError, NotFoundError, RequestError
from dietcode_server.store import jobs, libraries, owners, tokens
from dietcode_server.store.database import Database, migrations_config

NOW = datetime(2026, 1, 5, tzinfo=UTC)
DAY = timedelta(days=1)


def make(database: Database, owner: str = "alice", **options: Any) -> tuple[str, str]:
    """Id of a new token, and the token."""
    with database.write() as session:
        row, token = tokens.create(
            session, owner, options.get("scopes", ["read"]), options.get("lifetime", DAY), now=NOW
        )
        return row.id, token


def found(database: Database, token: str, at: datetime = NOW) -> tuple[str | None, str]:
    with database.read() as session:
        row, why = tokens.check(session, token, now=at)
    return (None if row is None else row.owner), why


def test_a_token_is_random_and_only_its_digest_is_kept(database: Database) -> None:
    made = [make(database) for _ in range(20)]
    for token_id, token in made:
        assert len(token) == len("dct_") + 43 and token.startswith("dct_")
        assert token_id not in token
    assert len({token for _, token in made}) == 20
    with database.read() as session:
        rows = session.execute(text("SELECT * FROM tokens")).all()
    assert not any(token[4:] in str(row) for row in rows for _, token in made)


def test_who_is_let_in(database: Database) -> None:
    token_id, token = make(database)
    assert found(database, token) == ("alice", "")
    for wrong in ("", "dct_", token[:-1], token + "x", token.upper(), token.encode().hex(), "\0", "\udcff"):
        assert found(database, wrong) == (None, "a token that is not known")
    assert found(database, token, NOW + DAY - timedelta(seconds=1)) == ("alice", "")
    assert found(database, token, NOW + DAY) == (None, f"token {token_id} of alice, which is expired")
    with database.write() as session:
        tokens.revoke(session, token_id, now=NOW)
        tokens.revoke(session, token_id, now=NOW + DAY)
    assert found(database, token) == (None, f"token {token_id} of alice, which is revoked")
    with database.read() as session:
        (row,) = tokens.list_tokens(session)
    assert row.revoked_at == NOW


def test_whether_there_is_a_token(database: Database) -> None:
    def state(at: datetime) -> tuple[bool, bool]:
        with database.read() as session:
            return tokens.any_made(session), tokens.any_live(session, now=at)

    assert state(NOW) == (False, False)
    make(database)
    assert state(NOW) == (True, True)
    assert state(NOW + DAY) == (True, False)  # an expired token opens nothing again
    make(database, lifetime=None)
    assert state(NOW + 9999 * DAY) == (True, True)
    with database.write() as session:
        for row in tokens.list_tokens(session):
            tokens.revoke(session, row.id)
    assert state(NOW) == (True, False)


@pytest.mark.parametrize("name", ["", "A", "a b", "a/b", "-a", "a" * 65, "ü", "a\n", "a\0"])
def test_names_that_are_none(database: Database, name: str) -> None:
    with pytest.raises(RequestError, match=r"^owner: given") as caught:
        make(database, name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("scopes", [[], ["write"], ["read", "Admin"], [""]])
def test_scopes_that_are_none(database: Database, scopes: list[str]) -> None:
    with pytest.raises(RequestError, match=r"^scopes: given .*read, submit, publish, admin"):
        make(database, scopes=scopes)


def test_a_token_that_is_not_there(database: Database) -> None:
    with pytest.raises(NotFoundError, match="token list"), database.write() as session:
        tokens.revoke(session, "00000000")


def test_an_older_database_belongs_to_local(database: Database) -> None:
    config = migrations_config()
    with database.write() as session:
        row, _ = submit(session)
        libraries.publish(session, job=row, device_name="a CPU", files=library_files())
    with database.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0003")
        command.upgrade(config, "head")
    with database.read() as session:
        assert jobs.get(session, row.id).owner == "local"
        assert owners.owner_of(session, "dense") == "local"
        assert owners.owner_of(session, "other") is None
        assert libraries.get(session, "dense").yanked_at is None


def test_a_name_goes_to_who_publishes_first(database: Database) -> None:
    with database.write() as session:
        first, _ = submit(session, owner="alice", force=True)
        second, _ = submit(session, owner="bob", force=True)
        libraries.publish(session, job=first, device_name="a CPU", files=library_files())
    again = library_files(code=b"other code")
    refused = pytest.raises(LibraryError, match="alice has published under this name first")
    with refused, database.write() as session:
        job = jobs.get(session, second.id)
        libraries.publish(session, job=job, device_name="a CPU", files=again)
    with database.write() as session:
        third, _ = submit(session, owner="carol", force=True)  # younger than the name: an admin's
        row = libraries.publish(
            session, job=third, device_name="a CPU", files=library_files(code=b"third code")
        )
        assert row.version == 2
        assert owners.owner_of(session, "dense") == "alice"


def test_the_same_spec_of_two_owners(database: Database) -> None:
    with database.write() as session:
        mine, _ = submit(session, owner="alice")
        theirs, is_new = submit(session, owner="bob")
        assert (theirs.id, is_new) == (mine.id, False)  # as long as it goes well, it is the one
        assert owners.num_open(session, "alice") == 1
        jobs.request_cancel(session, mine.id)
        assert owners.num_open(session, "alice") == 0
        other, is_new = submit(session, owner="bob")
        assert is_new and other.owner == "bob"
        again, is_new = submit(session, owner="alice")
        assert (again.id, is_new) == (other.id, False)
        jobs.request_cancel(session, other.id)
        again, is_new = submit(session, owner="alice")
        assert (again.id, is_new) == (mine.id, False)


def test_yanked_versions(database: Database) -> None:
    with database.write() as session:
        for number in range(3):
            files = library_files(code=b"code %d" % number)
            libraries.publish(session, job=None, device_name="a CPU", files=files)

        def listed(**options: bool) -> list[int]:
            return [row.version for row in libraries.list_libraries(session, **options)[0]]

        assert libraries.yank(session, "dense", 3, now=NOW).yanked_at == NOW
        assert libraries.yank(session, "dense", 3).yanked_at == NOW
        assert libraries.get(session, "dense").version == 2
        assert libraries.get(session, "dense", 3).yanked_at == NOW
        assert (listed(), listed(include_yanked=True)) == ([2, 1], [3, 2, 1])
        # the same bytes again are a new version: nobody could see the old one
        same = libraries.publish(session, job=None, device_name="a CPU", files=files)
        assert same.version == 4
        for number in (1, 2, 4):
            libraries.yank(session, "dense", number)
        with pytest.raises(NotFoundError, match=r"all its versions are yanked.*dense@4"):
            libraries.get(session, "dense")
        assert libraries.yank(session, "dense", 2, undo=True).yanked_at is None
        assert libraries.get(session, "dense").version == 2
        with pytest.raises(NotFoundError, match="no such version"):
            libraries.yank(session, "dense", 5)
