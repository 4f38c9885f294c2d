"""Libraries and blobs over HTTP: bytes, ranges and conditions."""

from __future__ import annotations

import hashlib
import json

import pytest
from small_libraries import as_served, library_bytes

from dietcode.protocol import LibraryComparison, LibraryInfo, LibraryPage
from dietcode_server.store import blobs, comparisons, libraries
from dietcode_server.store.comparisons import Compared
from dietcode_server.store.subjects import utc_now

SIZE = 2 * blobs.CHUNK_BYTES + 777


@pytest.fixture(scope="module")
def content() -> bytes:
    return hashlib.shake_256(b"a blob of more than two chunks").digest(SIZE)


@pytest.fixture(scope="module")
def blob(service, content) -> str:
    with service.database.write() as session:
        return f"/api/v1/blobs/{blobs.add(session, content)}"


@pytest.fixture(scope="module", autouse=True)
def published(service) -> None:
    """dense in two versions that differ in their report, values in one."""
    files = dict(library_bytes("dense"))
    with service.database.write() as session:
        libraries.publish(session, job=None, device_name="a test", files=files)
    report = files["report.json"].replace(b"a test", b"another test")
    facts = {"bytes": len(report), "sha256": f"sha256:{hashlib.sha256(report).hexdigest()}"}
    manifest = json.loads(files["manifest.json"])
    manifest["files"]["report.json"] = facts
    changed = files | {"report.json": report, "manifest.json": json.dumps(manifest).encode()}
    with service.database.write() as session:
        libraries.publish(session, job=None, device_name="a test", files=changed)
        libraries.publish(session, job=None, device_name="a test", files=library_bytes("values"))


def test_a_manifest_is_given_byte_for_byte(client):
    expected = as_served(library_bytes("dense"))["manifest.json"]
    digest = f"sha256:{hashlib.sha256(expected).hexdigest()}"
    response = client.get("/api/v1/libraries/dense/1")
    assert response.content == expected
    assert response.headers["content-type"] == "application/json"
    assert response.headers["etag"] == f'"{digest}"'
    assert response.headers["dietcode-manifest"] == digest
    assert response.headers["dietcode-version"] == "1"
    assert "immutable" in response.headers["cache-control"]


def test_latest_is_the_newest_and_not_kept(client):
    response = client.get("/api/v1/libraries/dense/latest")
    assert response.headers["dietcode-version"] == "2"
    assert response.headers["cache-control"] == "no-cache"
    assert response.content == client.get("/api/v1/libraries/dense/2").content
    same = client.get("/api/v1/libraries/dense/latest", headers={"if-none-match": response.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")
    assert same.headers["dietcode-version"] == "2"


def test_all_files_of_a_manifest_can_be_fetched(client):
    manifest = client.get("/api/v1/libraries/dense/1").json()
    for name, facts in manifest["files"].items():
        data = client.get(f"/api/v1/blobs/{facts['sha256']}").content
        assert data == library_bytes("dense")[name]


def test_lists_and_info(client, problem):
    page = LibraryPage.model_validate_json(client.get("/api/v1/libraries").content)
    assert [(entry.name, entry.version) for entry in page.libraries] == [
        ("values", 1),
        ("dense", 2),
        ("dense", 1),
    ]
    versions = LibraryPage.model_validate_json(client.get("/api/v1/libraries/dense").content)
    assert [entry.version for entry in versions.libraries] == [2, 1]
    assert client.get("/api/v1/libraries?name=dense").json() == client.get("/api/v1/libraries/dense").json()
    info = LibraryInfo.model_validate_json(client.get("/api/v1/libraries/dense/latest/info").content)
    assert info == versions.libraries[0]
    first = client.get("/api/v1/libraries/dense?limit=1").json()
    rest = client.get("/api/v1/libraries/dense", params={"limit": 1, "cursor": first["next"]}).json()
    assert [rest["libraries"][0]["version"], rest["next"]] == [1, None]


def test_a_missing_version_says_what_there_is(client, problem):
    detail = problem(client.get("/api/v1/libraries/dense/7"), 404, "not-found")["detail"]
    assert "dense@7" in detail and "2" in detail


def test_a_whole_blob(client, blob, content):
    response = client.get(blob)
    assert response.status_code == 200
    assert response.content == content
    assert response.headers["content-length"] == str(SIZE)
    assert response.headers["content-type"] == "application/octet-stream"
    assert response.headers["accept-ranges"] == "bytes"
    assert response.headers["etag"] == f'"{blob.rpartition("/")[2]}"'
    assert "immutable" in response.headers["cache-control"]


def test_head_gives_the_headers_alone(client, blob):
    whole, head = client.get(blob), client.head(blob)
    assert (head.status_code, head.content) == (200, b"")
    assert {**head.headers} == {**whole.headers}
    # ranges are defined for GET only
    assert client.head(blob, headers={"range": "bytes=0-0"}).headers["content-length"] == str(SIZE)
    assert client.head(f"{blob[:-1]}x").status_code == 404


CHUNK = blobs.CHUNK_BYTES


@pytest.mark.parametrize(
    ("asked", "start", "stop"),
    [
        ("0-0", 0, 1),
        ("0-", 0, SIZE),
        ("5-9", 5, 10),
        (" 5 - 9 ", 5, 10),
        ("-3", SIZE - 3, SIZE),
        ("-1", SIZE - 1, SIZE),
        (f"-{SIZE}", 0, SIZE),
        (f"-{SIZE + 5}", 0, SIZE),
        (f"{SIZE - 1}-", SIZE - 1, SIZE),
        (f"{SIZE - 2}-{SIZE + 100}", SIZE - 2, SIZE),
        (f"{CHUNK - 1}-{CHUNK}", CHUNK - 1, CHUNK + 1),
        (f"{CHUNK}-{2 * CHUNK - 1}", CHUNK, 2 * CHUNK),
        (f"{CHUNK - 5}-{2 * CHUNK + 5}", CHUNK - 5, 2 * CHUNK + 6),
        ("3-" + "9" * 18, 3, SIZE),
    ],
)
def test_ranges(client, blob, content, asked, start, stop):
    response = client.get(blob, headers={"range": f"bytes={asked}"})
    assert response.status_code == 206
    assert response.content == content[start:stop]
    assert response.headers["content-range"] == f"bytes {start}-{stop - 1}/{SIZE}"
    assert response.headers["content-length"] == str(stop - start)


@pytest.mark.parametrize("asked", [f"{SIZE}-", f"{SIZE}-{SIZE + 5}", "-0", "9" * 18 + "-"])
def test_ranges_without_a_byte(client, problem, blob, asked):
    response = client.get(blob, headers={"range": f"bytes={asked}"})
    problem(response, 416, "request")
    assert response.headers["content-range"] == f"bytes */{SIZE}"


@pytest.mark.parametrize(
    "given",
    [
        "bytes=9-5",
        "bytes=0-0,2-3",
        "bytes=0-0, -1",
        "bytes=-",
        "bytes=",
        "bytes",
        "bytes=x-y",
        "bytes=+1-2",
        "bytes=1-2-3",
        "bytes=0x0-0x1",
        "bytes=--3",
        "bytes=" + "9" * 5_000 + "-",
        "lines=0-0",
        "",
    ],
)
def test_ranges_that_are_several_or_none_give_all(client, blob, given):
    response = client.get(blob, headers={"range": given})
    assert (response.status_code, len(response.content)) == (200, SIZE)
    assert "content-range" not in response.headers


def test_if_range_asks_for_the_same_content(client, blob):
    tag = client.head(blob).headers["etag"]
    for condition, status in (
        (tag, 206),
        (f"W/{tag}", 200),
        ('"sha256:0"', 200),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 200),
    ):
        response = client.get(blob, headers={"range": "bytes=1-2", "if-range": condition})
        assert response.status_code == status, condition
    beyond = {"range": f"bytes={SIZE}-", "if-range": '"other"'}
    assert client.get(blob, headers=beyond).status_code == 200


def test_if_none_match(client, blob):
    tag = client.head(blob).headers["etag"]
    for condition, status in ((tag, 304), (f"W/{tag}", 304), (f'"x", {tag}', 304), ("*", 304), ('"x"', 200)):
        for method in ("GET", "HEAD"):
            response = client.request(
                method, blob, headers={"if-none-match": condition, "range": "bytes=0-0"}
            )
            expected = 206 if (status, method) == (200, "GET") else status
            assert response.status_code == expected, (condition, method)
            assert response.headers["etag"] == tag
            assert expected != 304 or response.content == b""


def test_an_empty_blob(service, problem):
    with service.database.write() as session:
        url = f"/api/v1/blobs/{blobs.add(session, b'')}"
    response = service.client.get(url)
    assert (response.status_code, response.content, response.headers["content-length"]) == (200, b"", "0")
    problem(service.client.get(url, headers={"range": "bytes=0-"}), 416, "request")


def test_a_comparison_is_that_of_its_version(service, client):
    at = utc_now()
    rows = [
        Compared(2, 120.0, {"a": 80.0, "b": 90.0}, "b", 90.0, 1e-7, at, 110.0, 85.0),
        Compared(0, 30.0, {}, None, None, 2e-7, at),
    ]
    with service.database.write() as session:
        comparisons.keep(session, libraries.get(session, "dense", 2).id, rows)
    response = client.get("/api/v1/libraries/dense/latest/comparison")
    found = LibraryComparison.model_validate(response.json())
    assert (found.name, found.version) == ("dense", 2)
    first, second = found.instances
    assert (first.position, first.vendor, first.vendors) == (0, None, {})
    assert (second.measured_gflops, second.vendor_gflops, second.measured_at) == (120.0, 90.0, at)
    assert (second.company_gflops, second.vendor_company_gflops) == (110.0, 85.0)
    assert first.company_gflops is None and first.vendor_company_gflops is None
    report = json.loads(library_bytes("dense")["report.json"])["instances"]
    assert [one.shape_vars for one in found.instances] == [report[n]["shape_vars"] for n in (0, 2)]
    assert second.predicted_gflops == report[2]["predicted_gflops"]
    assert client.get("/api/v1/libraries/dense/1/comparison").json()["instances"] == []
    assert client.get("/api/v1/libraries/dense/3/comparison").status_code == 404
