"""``dietcode token`` on a server's database."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dietcode_server.store import tokens
from dietcode_server.store.database import Database


@pytest.fixture
def data(tmp_path: Path) -> tuple[str, str]:
    return ("--data-dir", str(tmp_path / "data"))


def owner_of(folder: str, token: str) -> str | None:
    database = Database(f"sqlite:///{folder}/dietcode.db")
    with database.read() as session:
        row, _ = tokens.check(session, token)
    database.dispose()
    return None if row is None else row.owner


def test_create_list_and_revoke(inside, data):
    done = inside("token", "create", "alice", *data)
    assert done.returncode == 0, done.stderr
    token = done.stdout.strip()
    assert token.startswith("dct_") and done.stdout == f"{token}\n"
    assert "of alice: read, submit, publish; expires 20" in done.stderr and token not in done.stderr
    assert owner_of(data[1], token) == "alice"

    (row,) = json.loads(inside("token", "list", "--json", *data).stdout)
    assert (row["owner"], row["scopes"], row["state"]) == ("alice", ["read", "submit", "publish"], "live")
    table = inside("token", "list", *data).stdout
    assert row["id"] in table and "alice" in table and "never" in table
    assert token not in table and token not in json.dumps(row)

    revoked = inside("token", "revoke", row["id"], *data)
    assert revoked.stdout == f"token {row['id']} of alice: revoked\n"
    assert owner_of(data[1], token) is None
    assert json.loads(inside("token", "list", "--json", *data).stdout)[0]["state"] == "revoked"


def test_what_a_token_is_made_with(inside, data):
    made = inside("token", "create", "ops", "--scopes", "admin, read", "--expires", "never", "--json", *data)
    facts = json.loads(made.stdout)
    assert facts["scopes"] == ["read", "admin"] and facts["expires_at"] is None
    assert owner_of(data[1], facts["token"]) == "ops"
    for given, days in (("36h", 1), ("2w", 14), ("90d", 90)):
        facts = json.loads(inside("token", "create", "ops", "--expires", given, "--json", *data).stdout)
        from datetime import datetime

        made_at, until = (datetime.fromisoformat(facts[name]) for name in ("created_at", "expires_at"))
        assert (until - made_at).days == days


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("create", "Alice"), "owner: given 'Alice'"),
        (("create", "alice", "--scopes", "write"), "scopes: given 'write'; allowed: read, submit"),
        (("create", "alice", "--scopes", ","), "scopes: given none"),
        (("create", "alice", "--expires", "tomorrow"), "--expires: given 'tomorrow'; allowed: as 12h"),
        (("create", "alice", "--expires", "0d"), "--expires: given '0d'"),
        (("list",), "no such database"),
        (("revoke", "00000000"), "no such database"),
    ],
)
def test_what_is_refused_is_one_line_and_makes_nothing(inside, data, arguments, said):
    done = inside("token", *arguments, *data)
    assert done.returncode == 2
    assert said in done.stderr and done.stderr.count("\n") == 1
    if said == "no such database":
        assert not Path(data[1]).exists()


def test_a_token_that_is_not_there(inside, data):
    inside("token", "create", "alice", *data)
    done = inside("token", "revoke", "00000000", *data)
    assert done.returncode == 2 and "dietcode token list" in done.stderr


def test_another_database(inside, tmp_path, data):
    url = f"sqlite:///{tmp_path / 'other.db'}"
    assert inside("token", "create", "alice", "--database-url", url, *data).returncode == 0
    assert len(json.loads(inside("token", "list", "--json", "--database-url", url, *data).stdout)) == 1
