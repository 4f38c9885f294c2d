"""What is refused before a route sees it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from small_libraries import spec_data

JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:1",
        "127.0.0.1",
        "127.0.0.1:9999",
        "[::1]",
        "[::1]:8000",
        "lab.example",
        "lab.example:80",
    ],
)
def test_names_of_the_server_are_accepted(client, host):
    assert client.get("/healthz", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.example#localhost",
        "localhost@evil.example",
        "localhost:80:80",
        "localhost.",
        "xlab.example",
        "0.0.0.0",
        "::1",
        "[::1",
        "[::2]",
        "",
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/v1/jobs", "/nowhere", "/openapi.json"])
def test_other_names_are_refused_on_every_route(client, problem, host, path):
    found = problem(client.get(path, headers={"host": host}), 421, "host")
    assert "localhost" in found["detail"]


def test_two_host_headers_are_refused(client, problem):
    headers = [("host", "localhost"), ("host", "evil.example")]
    problem(client.get("/healthz", headers=headers), 421, "host")


def test_the_bind_address_is_accepted(service, problem):
    from dataclasses import replace

    other = replace(service, settings=service.settings.model_copy(update={"host": "::1"}))
    assert other.client.get("/healthz", headers={"host": "[::1]:8000"}).status_code == 200
    second = replace(service, settings=service.settings.model_copy(update={"host": "127.0.0.2"}))
    assert second.client.get("/healthz", headers={"host": "127.0.0.2:8000"}).status_code == 200
    problem(service.client.get("/healthz", headers={"host": "127.0.0.2:8000"}), 421, "host")


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "http://127.0.0.1",
        "http://127.0.0.1:8001",
        "http://localhost:8000",
        "https://127.0.0.1:8000",
        "http://127.0.0.1:8000.evil.example",
        "null",
        "",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "HEAD"])
def test_other_origins_are_refused_for_every_method(client, problem, origin, method):
    response = client.request(method, "/api/v1/jobs", headers={"origin": origin})
    if method == "HEAD":
        assert response.status_code == 403
    else:
        problem(response, 403, "origin")
    assert not [name for name in response.headers if name.startswith("access-control")]


def test_the_own_origin_is_accepted(client):
    assert client.get("/api/v1/jobs", headers={"origin": "http://127.0.0.1:8000"}).status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site", "Cross-Site"])
def test_requests_of_other_sites_are_refused(client, problem, site):
    embed = {"sec-fetch-site": site, "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
    follow = {"sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    for path in ("/", "/api/v1/jobs", "/healthz"):
        problem(client.get(path, headers=embed), 403, "origin")
    problem(client.get("/api/v1/jobs", headers=follow), 403, "origin")
    problem(client.post("/", headers=follow), 403, "origin")
    problem(client.get("/", headers=follow | {"sec-fetch-dest": "iframe"}), 403, "origin")


def test_a_link_from_another_site_leads_to_pages(client, service):
    follow = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert client.get("/", headers=follow).status_code == 200
    assert client.get(f"/jobs/{service.add_job()}", headers=follow).status_code == 200


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_requests_of_the_own_site_are_accepted(client, site):
    assert client.get("/api/v1/jobs", headers={"sec-fetch-site": site}).status_code == 200


@pytest.mark.parametrize(
    "given",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonx",
        "application/ld+json",
        "text/plain; application/json",
        "",
    ],
)
def test_other_content_types_are_refused(client, service, problem, given):
    for path in ("/api/v1/jobs", f"/api/v1/jobs/{service.add_job()}/cancel"):
        problem(client.post(path, content=b"{}", headers={"content-type": given}), 415, "request")


def test_a_body_without_content_type_is_refused(client, problem):
    problem(client.post("/api/v1/jobs", content=b"{}"), 415, "request")

    def pieces() -> Iterator[bytes]:
        yield b"{}"

    problem(client.post("/api/v1/jobs", content=pieces()), 415, "request")


def test_json_with_a_charset_is_accepted(client, problem):
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    problem(client.post("/api/v1/jobs", content=b"{}", headers=headers), 422, "request")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\x00",
        b"\xff\xfe{}",
        b'{"spec": "\xff"}',
        b"{'spec': {}}",
        b"[" * 60_000,
        b'{"spec": ' + b'{"a":' * 9_000 + b"1" + b"}" * 9_001,
        b'{"spec": {"name": ' + b"9" * 5_000 + b"}}",
    ],
)
def test_bodies_that_are_no_json_are_refused(client, problem, body):
    response = client.post("/api/v1/jobs", content=body, headers=JSON)
    problem(response, 422 if body == b"" else 400, "request")


@pytest.mark.parametrize(
    "body", [b"[]", b"null", b"1", b'"x"', b"{}", b'{"spec": []}', b'{"spec": {}, "x": 1}']
)
def test_json_of_another_form_is_refused(client, problem, body):
    problem(client.post("/api/v1/jobs", content=body, headers=JSON), 422, "request")


@pytest.mark.parametrize("depth", [60, 300, 600, 900, 980, 2_000])
@pytest.mark.parametrize(
    "shape", ['{"spec": %s1%s}', '{"spec": {"name": %s1%s}}', "%s1%s", '{"spec": {}, "x": %s1%s}']
)
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_deep_nesting_is_refused(client, problem, depth, shape, opening, closing):
    body = (shape % (opening * depth, closing * depth)).encode()
    response = client.post("/api/v1/jobs", content=body, headers=JSON)
    kind = response.json()["type"].rpartition(":")[2]
    problem(response, response.status_code, kind)
    assert (response.status_code, kind) in {(400, "request"), (422, "request"), (422, "spec")}


def test_an_unknown_field_of_the_body_is_named(client, problem):
    response = client.post("/api/v1/jobs", json={"spec": {}, "forse": True})
    assert "forse" in problem(response, 422, "request")["detail"]


@pytest.mark.parametrize(
    "value",
    [
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"1e999",
        b"9" * 400,
        b"[" * 100 + b"]" * 100,
        b'"\\ud800"',
        b'"\\u0000"',
    ],
)
def test_odd_values_are_refused_with_their_field(client, problem, value):
    body = b'{"spec": {"name": ' + value + b"}}"
    found = problem(client.post("/api/v1/jobs", content=body, headers=JSON), 422, "spec")
    assert found["field"]


def test_an_odd_value_outside_the_spec_is_refused(client, problem):
    problem(client.post("/api/v1/jobs", content=b'{"spec": {}, "force": NaN}', headers=JSON), 422, "request")


def test_a_declared_body_over_the_limit_is_refused(client, problem):
    problem(
        client.post("/api/v1/jobs", content=b" " * (64 << 10) + b"!", headers=JSON), 413, "body-too-large"
    )
    for declared in ("65537", "9" * 30):
        headers = JSON | {"content-length": declared}
        found = problem(client.post("/api/v1/jobs", content=b"{}", headers=headers), 413, "body-too-large")
        assert "65536" in found["detail"]


def test_a_body_at_the_limit_is_read(client, problem):
    problem(client.post("/api/v1/jobs", content=b"{}".ljust(64 << 10), headers=JSON), 422, "request")


def test_a_chunked_body_over_the_limit_is_refused(client, problem):
    sent = 0

    def pieces() -> Iterator[bytes]:
        nonlocal sent
        while sent < 1_000:
            sent += 1
            yield b" " * 1024

    problem(client.post("/api/v1/jobs", content=pieces(), headers=JSON), 413, "body-too-large")


def test_every_response_carries_the_headers(client, service):
    for path in ("/", "/api/v1/jobs", "/nowhere", f"/jobs/{service.add_job()}", "/openapi.json"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
    assert "x-content-type-options" in client.get("/", headers={"host": "evil.example"}).headers


@pytest.mark.parametrize(
    "path",
    [
        "/nowhere",
        "/api/v1",
        "/api/v1/jobs/",
        "/api/v2/jobs",
        "/docs",
        "/redoc",
        "/../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/api/v1/jobs/%00",
        "/api/v1/jobs/..",
        "/api/v1/jobs/..%2F..%2Fetc",
        "/api/v1/jobs/" + "a" * 5_000,
        "/api/v1/jobs/" + "9" * 16,
        "/api/v1/jobs/'; drop table jobs; --",
        "/api/v1/jobs/%F0%9F%98%80/events",
        "/api/v1/libraries/%00",
        "/api/v1/libraries/..%00/1",
        "/api/v1/libraries/dense/0",
        "/api/v1/libraries/dense/-1",
        "/api/v1/libraries/dense/1.5",
        "/api/v1/libraries/dense/99999999999999999999999999",
        "/api/v1/libraries/nothing",
        "/api/v1/libraries/nothing/1/info",
        "/api/v1/blobs/x",
        "/api/v1/blobs/sha256:%00",
        "/api/v1/blobs/sha256:" + "g" * 64,
        "/api/v1/blobs/sha256:" + "a" * 64,
        "/api/v1/blobs/sha256:" + "A" * 64,
        "/jobs/%00",
        "/jobs/" + "0" * 16,
    ],
)
def test_what_does_not_exist_is_not_found(client, problem, path):
    problem(client.get(path), 404, "not-found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/api/v1/jobs", "GET, HEAD, POST"),
        ("PUT", "/api/v1/jobs/0123456789abcdef", "GET, HEAD"),
        ("PUT", "/api/v1/jobs/0123456789abcdef/events", "GET"),
        ("GET", "/api/v1/jobs/0123456789abcdef/cancel", "POST"),
        ("POST", "/api/v1/blobs/x", "GET, HEAD"),
        ("POST", "/", "GET, HEAD"),
        ("OPTIONS", "/api/v1/jobs", "GET, HEAD, POST"),
        ("X-ODD", "/healthz", "GET, HEAD"),
    ],
)
def test_wrong_methods(client, problem, method, path, allowed):
    response = client.request(method, path)
    assert allowed in problem(response, 405, "request")["detail"]
    assert response.headers["allow"] == allowed


@pytest.mark.parametrize(
    "path", ["/", "/api/v1/jobs", "/api/v1/libraries", "/healthz", "/metrics", "/openapi.json"]
)
def test_head_is_answered_as_get_without_a_body(client, path):
    whole, head = client.get(path), client.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == whole.headers["content-type"] and "content-length" in head.headers
    assert client.head(f"{path}x").status_code == client.get(f"{path}x").status_code == 404


def test_head_of_a_job_and_of_its_events(client, service):
    job = service.add_job()
    head = client.head(f"/api/v1/jobs/{job}")
    assert (head.status_code, head.content) == (200, b"") and client.head("/api/v1/jobs/0").status_code == 404
    assert client.head(f"/api/v1/jobs/{job}/events").status_code == 405


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=501",
        "limit=x",
        "limit=" + "9" * 5_000,
        "state=odd",
        "name=%00",
        "name=../x",
        "name=" + "a" * 65,
        "cursor=x",
        "cursor=%00",
        "cursor=" + "a" * 600,
        "cursor=e30",
        "state=queued&" * 20,
    ],
)
def test_bad_parameters(client, problem, query):
    problem(client.get(f"/api/v1/jobs?{query}"), 422, "request")


def test_a_failure_shows_nothing_of_the_server(service, problem, caplog):
    def fail() -> None:
        raise RuntimeError("secret of the server")

    service.supervisor.wake, kept = fail, service.supervisor.wake
    try:
        response = service.client.post("/api/v1/jobs", json={"spec": spec_data("fails")})
    finally:
        service.supervisor.wake = kept
    problem(response, 500, "internal")
    assert "secret" not in response.text


def test_a_database_that_does_not_answer_is_unavailable(tmp_path, targets, service, problem, caplog):
    from dataclasses import replace

    from dietcode_server.store.database import Database

    broken = replace(service, database=Database(f"sqlite:///{tmp_path}/nowhere/dietcode.db"))
    for path in (
        "/",
        "/api/v1/jobs",
        "/api/v1/libraries",
        "/metrics",
        "/readyz",
        f"/api/v1/jobs/{'0' * 16}/events",
    ):
        assert str(tmp_path) not in problem(broken.client.get(path), 503, "unavailable")["detail"]
    assert str(tmp_path) in caplog.text
    assert broken.client.get("/healthz").status_code == 200


def test_every_route_with_get_has_head_but_for_events(service):
    """As docs/rest.md promises: the same status and type, and no body, also where nothing is found."""
    known = {"job_id": "0" * 16, "version": "1"} | dict.fromkeys(("digest", "workload"), "sha256:" + "0" * 64)
    paths = [path for path, methods in service.app.openapi()["paths"].items() if "get" in methods]
    assert len(paths) > 15
    for path in paths:
        url = re.sub(r"{(\w+)}", lambda found: known.get(found[1], "dense"), path)
        head = service.client.head(url)
        if path.endswith("/events"):
            assert head.status_code == 405
            continue
        whole = service.client.get(url)
        assert (head.status_code, head.content) == (whole.status_code, b""), url
        assert head.headers.get("content-type") == whole.headers.get("content-type"), url
