"""Who comes in, and what they may do there."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from plain_server import NoTargets, plain_files
from small_libraries import spec_data
from small_models import model_data

from dietcode_server.api.callers import EVERYBODY, Caller
from dietcode_server.api.gate import OPEN_PATHS, needed
from dietcode_server.store import libraries, tokens
from dietcode_server.store.database import Database

ALL = ("read", "submit", "publish")
PATHS = ("/", "/jobs/0123456789abcdef", "/nowhere", "/api/v1/nowhere", "/metrics", "//healthz", "/healthz/")


@pytest.fixture(scope="module")
def closed(service, tmp_path_factory) -> Iterator[Any]:
    """A server that has tokens, and so asks for them."""
    database = Database(f"sqlite:///{tmp_path_factory.mktemp('closed')}/dietcode.db")
    database.upgrade()
    settings = service.settings.model_copy(update={"max_jobs_per_owner": 3})
    other = replace(service, database=database, settings=settings, targets=NoTargets())
    bearer(other, "somebody")
    yield other
    database.dispose()


def bearer(service, owner: str = "alice", scopes=ALL, days: int = 1) -> dict[str, str]:
    """Headers of a client with a new token."""
    with service.database.write() as session:
        _, token = tokens.create(session, owner, scopes, timedelta(days=days))
    return {"authorization": f"Bearer {token}"}


def basic(headers: dict[str, str], user: str = "anything") -> dict[str, str]:
    """The same token as a browser sends it."""
    pair = f"{user}:{headers['authorization'].removeprefix('Bearer ')}"
    return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def operations(service) -> list[tuple[str, str]]:
    paths = service.app.openapi()["paths"]
    known = {
        "job_id": "0" * 16,
        "name": "dense",
        "version": "1",
        "digest": "sha256:" + "0" * 64,
        "token_id": "0" * 8,
        "workload": "sha256:" + "0" * 64,
        "device": "0" * 16,
    }
    return [
        (method.upper(), re.sub(r"\{(\w+)\}", lambda found: known[found[1]], path))
        for path, methods in paths.items()
        for method in methods
    ] + [("GET", path) for path in PATHS]


def submit(service, headers, name: str, **options: Any):
    return service.client.post("/api/v1/jobs", json={"spec": spec_data(name)} | options, headers=headers)


def publish(service, owner: str, files: str = "dense") -> str:
    """Have `owner` publish a library, through a job of theirs; its name."""
    from dietcode_server.store.owners import claim_name
    from dietcode_server.store.subjects import utc_now
    from dietcode_server.store.tables import JobRow

    with service.database.write() as session:
        claim_name(session, files, JobRow(owner=owner, created_at=utc_now()), utc_now())
        libraries.publish(session, job=None, device_name="a test", files=plain_files(files))
    return files


def test_every_route_asks_for_a_token(closed, problem):
    asked = operations(closed)
    assert len(asked) > 20
    for method, path in asked:
        response = closed.client.request(method, path)
        if path in OPEN_PATHS:
            assert response.status_code == 200
            continue
        assert response.status_code == 401, (method, path)
        assert 'Bearer realm="DietCode"' in response.headers["www-authenticate"]
        assert ("Basic" in response.headers["www-authenticate"]) == (not path.startswith("/api/"))
        if method != "HEAD":
            problem(response, 401, "unauthorized")


def test_every_route_asks_for_its_scope(closed, problem):
    for method, path in operations(closed):
        if path in OPEN_PATHS:
            continue
        scope = needed(method, path)
        headers = bearer(closed, scopes=[s for s in ALL if s != scope])
        response = closed.client.request(method, path, headers=headers)
        assert response.status_code == 403, (method, path)
        assert f'scope="{scope}"' in response.headers["www-authenticate"]
        if method != "HEAD":
            assert scope in problem(response, 403, "forbidden")["detail"]
        headers = bearer(closed, scopes=[scope])
        assert closed.client.request(method, path, headers=headers).status_code not in {401, 403}
        headers = bearer(closed, scopes=["admin"])
        assert closed.client.request(method, path, headers=headers).status_code not in {401, 403}


def test_unknown_expired_and_revoked_tokens_look_the_same(closed, caplog):
    unknown = {"authorization": "Bearer dct_" + "A" * 43}
    expired, revoked = bearer(closed, "erin", days=-1), bearer(closed, "rose")
    with closed.database.write() as session:
        (row,) = [row for row in tokens.list_tokens(session) if row.owner == "rose"]
        tokens.revoke(session, row.id)
    answers = []
    for headers in (unknown, expired, revoked):
        response = closed.client.get("/api/v1/jobs", headers=headers)
        assert response.status_code == 401
        answers.append((response.content, sorted(response.headers.items())))
    assert answers[0] == answers[1] == answers[2]
    assert "not known" in caplog.text and "erin, which is expired" in caplog.text
    assert f"token {row.id} of rose, which is revoked" in caplog.text
    for headers in (unknown, expired, revoked):
        assert headers["authorization"].removeprefix("Bearer ") not in caplog.text


@pytest.mark.parametrize(
    "given",
    [
        "",
        "Bearer",
        "Bearer ",
        "bearer x",
        "Basic",
        "Basic !!!",
        "Basic " + base64.b64encode(b"\xff\xfe").decode(),
        "Basic " + base64.b64encode(b"no colon").decode(),
        "Digest username=x",
        "Bearer " + "x" * 20_000,
        "Bearer ../../etc/passwd",
        "Bearer ' OR 1=1 --",
        "Bearer %00",
        "Bearer \xe4\xff",
    ],
)
def test_odd_credentials_are_refused(closed, problem, given):
    response = closed.client.get("/api/v1/jobs", headers={"authorization": given.encode("latin-1")})
    problem(response, 401, "unauthorized")
    assert 'error="invalid_token"' in response.headers["www-authenticate"]


def test_two_credentials_are_refused(closed, problem):
    good = bearer(closed)["authorization"]
    both = [("authorization", good), ("authorization", "Bearer x")]
    problem(closed.client.get("/api/v1/jobs", headers=both), 401, "unauthorized")


def test_the_token_is_no_parameter(closed, problem):
    token = bearer(closed)["authorization"].removeprefix("Bearer ")
    problem(closed.client.get(f"/api/v1/jobs?token={token}&access_token={token}"), 401, "unauthorized")


def test_a_browser_uses_the_token_as_password(closed, problem):
    """For reading; for anything else only where it says that a page of this server asks."""
    headers = basic(bearer(closed, scopes=["admin"]))
    for path in ("/", "/api/v1/jobs", "/metrics"):
        assert closed.client.get(path, headers=headers).status_code == 200
    for path in ("/api/v1/jobs", "/api/v1/libraries/dense/1/yank"):
        response = closed.client.post(path, json={"spec": spec_data("browser")}, headers=headers)
        problem(response, 401, "unauthorized")
        assert "Basic" not in response.headers["www-authenticate"]
        own = headers | {"origin": "http://127.0.0.1:8000"}
        assert closed.client.post(path, json={"spec": spec_data("browser")}, headers=own).status_code in (
            201,
            404,
        )


def test_guards_stand_before_tokens(closed, problem):
    """A page of another site has the browser send the token: it is refused all the same."""
    for headers in (bearer(closed), basic(bearer(closed))):
        for path in ("/", "/api/v1/jobs"):
            for more, status, kind in (
                ({"host": "evil.example"}, 421, "host"),
                ({"origin": "https://evil.example"}, 403, "origin"),
                ({"sec-fetch-site": "cross-site"}, 403, "origin"),
            ):
                problem(closed.client.get(path, headers=headers | more), status, kind)
        form = headers | {"content-type": "text/plain"}
        problem(closed.client.post("/api/v1/jobs", content=b"{}", headers=form), 415, "request")


@pytest.mark.parametrize(
    "path",
    [
        "/../etc/passwd",
        "/api/v1/jobs/..%2F..%2Fetc",
        "/api/v1/jobs/%00",
        "/api/v1/jobs/" + "9" * 5_000,
        "/api/v1/libraries/..%00/1",
        "/api/v1/libraries/dense/99999999999999999999999999",
        "/api/v1/blobs/sha256:" + "A" * 64,
    ],
)
def test_hostile_paths_with_a_token(closed, problem, path):
    problem(closed.client.get(path), 401, "unauthorized")
    problem(closed.client.get(path, headers=bearer(closed)), 404, "not-found")


def test_what_one_caller_gets_is_not_for_shared_caches(closed, service):
    name = publish(closed, "carol", "values")
    headers = bearer(closed)
    response = closed.client.get(f"/api/v1/libraries/{name}/1", headers=headers)
    assert response.headers["cache-control"].startswith("private")
    assert "authorization" in response.headers["vary"].lower()
    digest = response.headers["dietcode-manifest"]
    blob = closed.client.get(f"/api/v1/blobs/{digest}", headers=headers | {"range": "bytes=0-9"})
    assert (blob.status_code, blob.headers["cache-control"][:7]) == (206, "private")
    beyond = closed.client.get(f"/api/v1/blobs/{digest}", headers=headers | {"range": "bytes=99999999-"})
    assert beyond.status_code == 416


def test_the_first_token_closes_a_running_server(service, tmp_path, problem):
    database = Database(f"sqlite:///{tmp_path}/dietcode.db")
    database.upgrade()
    running = replace(service, database=database)
    assert running.client.get("/api/v1/jobs").status_code == 200
    headers = bearer(running)
    problem(running.client.get("/api/v1/jobs"), 401, "unauthorized")
    assert running.client.get("/api/v1/jobs", headers=headers).status_code == 200
    with database.write() as session:
        for row in tokens.list_tokens(session):
            tokens.revoke(session, row.id)
    problem(running.client.get("/api/v1/jobs", headers=headers), 401, "unauthorized")
    again = replace(service, database=database)  # a restart does not open it either
    problem(again.client.get("/api/v1/jobs"), 401, "unauthorized")
    database.dispose()


def test_an_address_that_others_reach_is_closed_from_the_start(service, problem):
    far = replace(service, settings=service.settings.model_copy(update={"host": "0.0.0.0"}))
    problem(far.client.get("/api/v1/jobs"), 401, "unauthorized")
    problem(far.client.get("/metrics"), 401, "unauthorized")
    problem(far.client.get("/healthz", headers={"host": "0.0.0.0"}), 421, "host")
    assert far.client.get("/healthz").status_code == 200


def test_the_last_use_is_noted(closed):
    headers = bearer(closed, "lucy")

    def used() -> Any:
        with closed.database.read() as session:
            (row,) = [row for row in tokens.list_tokens(session) if row.owner == "lucy"]
            return row.last_used_at

    assert used() is None
    closed.client.get("/api/v1/jobs", headers=headers)
    first = used()
    assert first is not None
    closed.client.get("/api/v1/jobs", headers=headers)
    assert used() == first  # not every time


def test_a_job_belongs_to_its_owner(closed, problem):
    alice, bob, admin = bearer(closed, "alice"), bearer(closed, "bob"), bearer(closed, "root", ["admin"])
    job = submit(closed, alice, "owned").json()
    assert job["owner"] == "alice"
    assert closed.client.get(f"/api/v1/jobs/{job['id']}", headers=bob).json()["owner"] == "alice"
    for what in ("cancel", "resume"):
        refused = closed.client.post(f"/api/v1/jobs/{job['id']}/{what}", headers=bob)
        assert "alice" in problem(refused, 403, "forbidden")["detail"]
    rotated = bearer(closed, "alice")  # another token of the same owner
    assert closed.client.post(f"/api/v1/jobs/{job['id']}/cancel", headers=rotated).status_code == 200
    assert closed.client.post(f"/api/v1/jobs/{job['id']}/resume", headers=admin).status_code == 200
    assert closed.client.post(f"/api/v1/jobs/{job['id']}/cancel", headers=admin).status_code == 200


def test_a_name_belongs_to_its_publisher(closed, problem):
    name = publish(closed, "alice", "rows")
    response = submit(closed, bearer(closed, "bob"), name)
    assert "alice" in problem(response, 403, "forbidden")["detail"]
    problem(submit(closed, bearer(closed, "bob"), name, force=True), 403, "forbidden")
    for owner, scopes in (("alice", ALL), ("root", ["admin"])):
        job = submit(closed, bearer(closed, owner, scopes), name, force=True)
        assert job.status_code == 201
        headers = bearer(closed, "root", ["admin"])
        closed.client.post(f"/api/v1/jobs/{job.json()['id']}/cancel", headers=headers)


def test_a_new_job_needs_the_scope_to_publish(closed, problem):
    bare = bearer(closed, "paul", ["submit"])
    assert "publish" in problem(submit(closed, bare, "unpublished"), 403, "forbidden")["detail"]
    with closed.database.read() as session:
        from dietcode_server.store import jobs

        assert jobs.list_jobs(session, name="unpublished") == ([], None)
    job = submit(closed, bearer(closed, "paul"), "unpublished").json()
    again = submit(closed, bare, "unpublished")  # the one that is there is nothing new
    assert (again.status_code, again.json()["id"]) == (200, job["id"])
    assert closed.client.post(f"/api/v1/jobs/{job['id']}/cancel", headers=bare).status_code == 200


def test_keys_of_two_owners_are_two_keys(closed):
    found = [
        closed.client.post(
            "/api/v1/jobs",
            json={"spec": spec_data(f"key-{owner}")},
            headers=bearer(closed, owner) | {"Idempotency-Key": "one"},
        )
        for owner in ("kim", "kai", "kim")
    ]
    assert [response.status_code for response in found] == [201, 201, 200]
    assert found[0].json()["id"] == found[2].json()["id"] != found[1].json()["id"]


def test_a_long_key_of_a_long_owner_fits_its_column():
    caller = Caller("o" * 64, frozenset(ALL))
    keys = {caller.own_key("k" * length) for length in (1, 190, 191, 254, 255)}
    assert len(keys) == 5
    assert max(map(len, keys)) <= 255
    assert EVERYBODY.own_key("k") == "k"
    assert EVERYBODY.own_key("bob/k") != Caller("bob", frozenset(ALL)).own_key("k")
    assert caller.own_key(None) is None


def test_only_so_many_jobs_of_an_owner_wait(closed, problem):
    quinn, admin = bearer(closed, "quinn"), bearer(closed, "root", ["admin"])
    made = [submit(closed, quinn, f"quota-{number}") for number in range(4)]
    assert [response.status_code for response in made] == [201, 201, 201, 429]
    assert "at most 3 jobs of quinn" in problem(made[3], 429, "too-many")["detail"]
    assert int(made[3].headers["retry-after"]) > 0
    assert submit(closed, quinn, "quota-0").status_code == 200  # nothing new
    first = made[0].json()["id"]
    assert closed.client.post(f"/api/v1/jobs/{first}/cancel", headers=quinn).status_code == 200
    assert submit(closed, quinn, "quota-3").status_code == 201
    refused = closed.client.post(f"/api/v1/jobs/{first}/resume", headers=quinn)
    problem(refused, 429, "too-many")
    assert closed.client.get(f"/api/v1/jobs/{first}", headers=quinn).json()["state"] == "cancelled"
    made += [submit(closed, admin, f"quota-{number}") for number in range(4, 9)]
    assert [response.status_code for response in made[4:]] == [201] * 5


def test_only_so_many_submissions_a_minute(closed, problem):
    settings = closed.settings.model_copy(update={"max_submissions_per_minute": 5})
    limited = replace(closed, settings=settings)
    rita, sven = bearer(limited, "rita"), bearer(limited, "sven")
    statuses = [submit(limited, rita, "again-and-again").status_code for _ in range(6)]
    assert statuses == [201, 200, 200, 200, 200, 429]
    response = submit(limited, rita, "again-and-again")
    assert "5 submissions a minute" in problem(response, 429, "too-many")["detail"]
    assert 1 <= int(response.headers["retry-after"]) <= 12
    assert submit(limited, sven, "again-and-again").status_code == 200
    admin = bearer(limited, "root", ["admin"])
    assert {submit(limited, admin, "again-and-again").status_code for _ in range(8)} == {200}


def test_only_so_many_texts_are_checked_a_minute(closed, problem):
    limited = replace(closed, settings=closed.settings.model_copy(update={"max_checks_per_minute": 3}))
    rita, sven = bearer(limited, "rita"), bearer(limited, "sven")

    def check(headers):
        return limited.client.post("/submit/check", json={"text": "name: a"}, headers=headers)

    assert [check(rita).status_code for _ in range(4)] == [200, 200, 200, 429]
    response = check(rita)
    assert "3 texts a minute" in problem(response, 429, "too-many")["detail"]
    assert 1 <= int(response.headers["retry-after"]) <= 20
    assert submit(limited, rita, "checked-often").status_code == 201, "submissions are counted apart"
    assert check(sven).status_code == 200
    admin = bearer(limited, "root", ["admin"])
    assert {check(admin).status_code for _ in range(5)} == {200}


def test_the_bucket_fills_again():
    from dietcode_server.api.quotas import Rates

    rates = Rates()
    assert [rates.take("a", 60, 0.0) for _ in range(61)][-2:] == [0.0, 1.0]
    assert rates.take("b", 60, 0.0) == 0.0
    assert rates.take("a", 60, 0.5) == 0.5
    assert rates.take("a", 60, 1.0) == 0.0
    assert [rates.take("a", 60, 1e6) for _ in range(61)][-2:] == [0.0, 1.0]  # not more than a minute's worth


def test_yank(closed, problem):
    name = publish(closed, "yann", "dense")
    yann, zoe = bearer(closed, "yann", ["publish"]), bearer(closed, "zoe")
    address = f"/api/v1/libraries/{name}"
    assert "yann" in problem(closed.client.post(f"{address}/1/yank", headers=zoe), 403, "forbidden")["detail"]
    info = closed.client.post(f"{address}/1/yank", headers=yann).json()
    assert (info["version"], info["owner"]) == (1, "yann") and info["yanked_at"]
    assert (
        "all its versions are yanked"
        in problem(closed.client.get(f"{address}/latest", headers=zoe), 404, "not-found")["detail"]
    )
    assert closed.client.get(address, headers=zoe).json()["libraries"] == []
    (listed,) = closed.client.get(f"{address}?include_yanked=true", headers=zoe).json()["libraries"]
    assert listed["yanked_at"] == info["yanked_at"]
    exact = closed.client.get(f"{address}/1", headers=zoe)
    assert exact.status_code == 200 and exact.headers["dietcode-yanked"].startswith("20")
    assert closed.client.get(f"{address}/1/info", headers=zoe).json()["yanked_at"]
    assert f"{name}@1" not in closed.client.get("/", headers=basic(zoe)).text
    admin = bearer(closed, "root", ["admin"])
    assert closed.client.post(f"{address}/1/unyank", headers=admin).json()["yanked_at"] is None
    latest = closed.client.get(f"{address}/latest", headers=zoe)
    assert latest.status_code == 200 and "dietcode-yanked" not in latest.headers
    for path, status, kind in (
        ("nothing/1/yank", 404, "not-found"),
        (f"{name}/2/yank", 404, "not-found"),
        (f"{name}/latest/yank", 422, "request"),
        ("%00/1/yank", 404, "not-found"),
    ):
        problem(closed.client.post(f"/api/v1/libraries/{path}", headers=yann), status, kind)


def test_overtaking_others_takes_an_admin(closed, problem):
    mallory = bearer(closed, "mallory", ["read", "submit", "publish"])
    refused = submit(closed, mallory, "in-a-hurry", priority=1)
    assert "admin" in problem(refused, 403, "forbidden")["detail"]
    assert submit(closed, mallory, "in-a-hurry", priority=-5).json()["priority"] == -5
    assert submit(closed, bearer(closed, "ops", ["admin"]), "urgent-for-ops", priority=100).status_code == 201


@pytest.mark.parametrize("kind", ["spec", "model"])
def test_an_owner_keeps_so_many_bytes_and_no_more(closed, kind):
    """Submitting and cancelling fills the database, graphs too; an admin clears it, and is not held up."""
    data = {"spec": spec_data, "model": model_data}[kind]
    settings = closed.settings.model_copy(update={"max_bytes_per_owner": 9000})
    server, name = replace(closed, settings=settings, targets=NoTargets()), f"carol-{kind}"
    carol = bearer(closed, name)
    for number in range(20):
        asked = {kind: data(f"{name}{number}")}
        reply = server.client.post("/api/v1/jobs", json=asked, headers=carol)
        if reply.status_code != 201:
            break
        cancel = server.client.post(f"/api/v1/jobs/{reply.json()['id']}/cancel", headers=carol)
        assert cancel.status_code == 200
    assert 1 < number < 19 and reply.status_code == 403
    said = reply.json()["detail"]
    assert f"specs and libraries of {name} take" in said and "9000" in said
    other = {"json": {kind: data(f"other-{kind}")}}
    assert server.client.post("/api/v1/jobs", **other, headers=bearer(closed, "dan")).status_code == 201
    scopes = (*ALL, "admin")
    another = {"json": {kind: data(f"another-{kind}")}, "headers": bearer(closed, name, scopes)}
    assert server.client.post("/api/v1/jobs", **another).status_code == 201
