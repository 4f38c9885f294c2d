"""Signatures and keys over HTTP."""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import UTC, datetime, timedelta

import pytest
from small_libraries import as_served, library_bytes

from dietcode.protocol import KeyList
from dietcode_server.store import libraries


@pytest.fixture(scope="module", autouse=True)
def published(service) -> None:
    with service.database.write() as session:
        libraries.publish(session, job=None, device_name="a test", files=library_bytes("dense"))


def test_a_signature_says_name_version_and_manifest(client):
    response = client.get("/api/v1/libraries/dense/1/signature")
    assert response.headers["content-type"] == "application/json"
    assert response.headers["cache-control"] == "no-cache"
    envelope = response.json()
    payload = base64.b64decode(envelope["payload"])
    manifest = as_served(library_bytes("dense"))["manifest.json"]
    said = json.loads(payload)
    assert (said["name"], said["version"]) == ("dense", 1)
    assert said["manifest"] == {
        "sha256": f"sha256:{hashlib.sha256(manifest).hexdigest()}",
        "bytes": len(manifest),
    }
    assert envelope["payloadType"] == "application/vnd.dietcode.manifest+json"
    latest = client.get("/api/v1/libraries/dense/latest/signature")
    assert latest.content == response.content and latest.headers["dietcode-version"] == "1"


def test_the_keys_are_public(client):
    found = KeyList.model_validate_json(client.get("/api/v1/keys").content)
    envelope = client.get("/api/v1/libraries/dense/1/signature").json()
    assert [key.fingerprint for key in found.keys] == [found.current] == [envelope["signatures"][0]["keyid"]]
    assert "PRIVATE" not in client.get("/api/v1/keys").text


def test_what_is_not_there(client, problem):
    for path in ("nothing/1", "dense/2", "dense/x", "DENSE/1"):
        problem(client.get(f"/api/v1/libraries/{path}/signature"), 404, "not-found")


def test_a_server_whose_key_is_lost_says_so_in_its_log_only(service, problem):
    assert service.client.get("/api/v1/libraries/dense/1/signature").status_code == 200  # makes the key
    (path,) = (service.settings.data_dir / "keys").glob("*.pem")
    kept = path.read_bytes()
    path.unlink()
    problem(service.client.get("/api/v1/libraries/dense/1/signature"), 500, "internal")
    path.write_bytes(kept)
    path.chmod(0o600)
    assert service.client.get("/api/v1/libraries/dense/1/signature").status_code == 200


def test_what_is_said_of_the_latest_expires(client):
    said = json.loads(base64.b64decode(client.get("/api/v1/libraries/dense/head").json()["payload"]))
    ends = datetime.fromisoformat(said["expires_at"].replace("Z", "+00:00"))
    assert said["type"] == "dietcode-latest/2"
    assert timedelta(hours=23) < ends - datetime.now(UTC) <= timedelta(days=1)


def test_a_library_s_provenance_is_signed_too(client):
    envelope = client.get("/api/v1/libraries/dense/latest/provenance").json()
    assert envelope["payloadType"] == "application/vnd.in-toto+json"
    said = json.loads(base64.b64decode(envelope["payload"]))
    names = {one["name"] for one in said["subject"]}
    assert {"dense@1/library.so", "dense@1/manifest.json"} <= names
    assert "invocationId" not in said["predicate"]["runDetails"]["metadata"]  # no job made it
    assert client.get("/api/v1/libraries/dense/7/provenance").status_code == 404
