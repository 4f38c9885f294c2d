"""Tokens over REST: made, listed and revoked by admins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from plain_server import NoTargets

from dietcode_server.store import tokens
from dietcode_server.store.database import Database

PATH = "/api/v1/tokens"


@pytest.fixture
def server(service, tmp_path) -> Iterator[Any]:
    database = Database(f"sqlite:///{tmp_path}/dietcode.db")
    database.upgrade()
    yield replace(service, database=database, targets=NoTargets())
    database.dispose()


@pytest.fixture
def admin(server) -> dict[str, str]:
    return bearer(server, ["admin"])


def bearer(server, scopes: list[str]) -> dict[str, str]:
    with server.database.write() as session:
        return {"authorization": f"Bearer {tokens.create(session, 'root', scopes, None)[1]}"}


def test_a_token_is_made_used_and_revoked(server, admin):
    body = {"owner": "alice", "scopes": ["submit", "read"], "expires_secs": 3600}
    response = server.client.post(PATH, json=body, headers=admin)
    assert response.status_code == 201 and response.headers["cache-control"] == "no-store"
    made = response.json()
    assert (made["owner"], made["scopes"], made["state"]) == ("alice", ["read", "submit"], "live")
    left = datetime.fromisoformat(made["expires_at"].replace("Z", "+00:00")) - datetime.now(UTC)
    assert timedelta(minutes=59) < left <= timedelta(hours=1)
    own = {"authorization": f"Bearer {made['token']}"}
    assert server.client.get("/api/v1/jobs", headers=own).status_code == 200
    listed = server.client.get(PATH, headers=admin)
    assert made["token"] not in listed.text
    assert [one["owner"] for one in listed.json()["tokens"]] == ["root", "alice"]
    for _ in range(2):
        gone = server.client.delete(f"{PATH}/{made['id']}", headers=admin)
        assert gone.status_code == 200 and gone.json()["state"] == "revoked"
    assert server.client.get("/api/v1/jobs", headers=own).status_code == 401


@pytest.mark.parametrize("scopes", [["read"], ["read", "submit", "publish"]])
def test_only_admins_see_or_make_any(server, admin, problem, scopes):
    headers = bearer(server, scopes)
    for answer in (
        server.client.get(PATH, headers=headers),
        server.client.post(PATH, json={"owner": "eve", "scopes": ["admin"]}, headers=headers),
        server.client.delete(f"{PATH}/00000000", headers=headers),
    ):
        assert "the scope admin" in problem(answer, 403, "forbidden")["detail"]


def test_the_first_is_made_on_the_servers_machine(server, problem):
    """Else anybody on a machine that several share could close the server to all others."""
    response = server.client.post(PATH, json={"owner": "eve"})
    assert "dietcode token create" in problem(response, 403, "forbidden")["detail"]
    assert server.client.get(PATH).json() == {"tokens": []}
    assert server.client.get("/api/v1/jobs").status_code == 200


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "body.owner: missing"),
        ({"owner": "Alice"}, "owner: given 'Alice'"),
        ({"owner": "alice", "scopes": ["write"]}, "scopes: given 'write'; allowed: read, submit"),
        ({"owner": "alice", "scopes": []}, "scopes: given none"),
        ({"owner": "alice", "expires_secs": 0}, "body.expires_secs"),
        ({"owner": "alice", "expires_secs": 10**12}, "body.expires_secs"),
        ({"owner": "alice", "forever": True}, "unknown field; allowed: owner, scopes, expires_secs"),
    ],
)
def test_what_is_refused(server, admin, problem, body, words):
    assert words in problem(server.client.post(PATH, json=body, headers=admin), 422, "request")["detail"]
    assert len(server.client.get(PATH, headers=admin).json()["tokens"]) == 1


@pytest.mark.parametrize("token_id", ["00000000", "x", "00000000%00", "..%2f"])
def test_what_is_not_there(server, admin, problem, token_id):
    problem(server.client.delete(f"{PATH}/{token_id}", headers=admin), 404, "not-found")
