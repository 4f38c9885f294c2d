"""The server's keys on disk, and the signatures of its libraries in the database."""

from __future__ import annotations

import hashlib
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from store_helpers import library_files

from dietcode.errors import DietCodeError, NotFoundError, RequestError
from dietcode.trust.envelope import parse_envelope
from dietcode.trust.keys import PublicKey, SigningKey
from dietcode.trust.rotation import follow, read_rotations
from dietcode.trust.statements import LibraryStatement, open_library
from dietcode_server.store import libraries
from dietcode_server.store.database import Database
from dietcode_server.store.keys import KeyRing
from dietcode_server.store.signatures import signature
from dietcode_server.store.tables import SignatureRow


def one_line(caught: pytest.ExceptionInfo[DietCodeError], *words: str) -> None:
    text = str(caught.value)
    assert "\n" not in text and len(text) < 600 and all(word in text for word in words), text


def modes(folder: Path) -> set[str]:
    return {oct(path.stat().st_mode & 0o777) for path in folder.iterdir() if path.suffix in {".pem", ".json"}}


def test_a_key_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    first = ring.signing_key().public
    assert KeyRing(tmp_path).signing_key().public == first
    assert modes(tmp_path / "keys") == {"0o600"} and oct((tmp_path / "keys").stat().st_mode)[-3:] == "700"
    assert [(key.fingerprint, key.state) for key in ring.public().keys] == [(first.fingerprint, "current")]
    assert "PRIVATE" not in ring.public().model_dump_json()
    assert "PRIVATE" not in (tmp_path / "keys" / "ring.json").read_text()


def test_threads_that_begin_at_once_make_one_key(tmp_path: Path) -> None:
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(KeyRing(tmp_path).signing_key().public.fingerprint))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len(set(found)) == 1
    assert len(list((tmp_path / "keys").glob("*.pem"))) == 1


def test_rotations_lead_from_any_earlier_key(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    keys = [ring.signing_key().public]
    for _ in range(3):
        old, new = ring.rotate()
        keys.append(KeyRing(tmp_path).signing_key().public)
        assert (old, new) == (keys[-2].fingerprint, keys[-1].fingerprint)
    links = read_rotations(ring.public().rotations, "a test")
    for start in range(4):
        assert follow(keys[start], keys[-1].fingerprint, links, "a test") == keys[start:]
    assert follow(keys[-1], keys[0].fingerprint, links, "a test") is None
    assert len(list((tmp_path / "keys").glob("*.pem"))) == 1  # older private keys are gone
    assert [key.state for key in ring.public().keys] == ["earlier"] * 3 + ["current"]


def test_a_revoked_key_vouches_for_nothing(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    first = ring.signing_key().public
    with pytest.raises(RequestError) as caught:
        ring.revoke(first.fingerprint)
    one_line(caught, "`dietcode key rotate` first")
    ring.rotate()
    second = ring.signing_key().public
    ring.rotate()
    ring.revoke(first.fingerprint)
    ring.revoke(first.fingerprint)
    links = read_rotations(ring.public().rotations, "a test")
    goal = ring.signing_key().public.fingerprint
    assert follow(first, goal, links, "a test") is None and follow(second, goal, links, "a test")
    assert ring.revoked() == [first.fingerprint]
    with pytest.raises(RequestError) as caught:
        ring.revoke("sha256:x")
    one_line(caught, "no key of this server")


def write_key(path: Path) -> SigningKey:
    key = SigningKey.generate()
    path.write_bytes(key.pem)
    path.chmod(0o600)
    return key


def test_a_key_that_the_operator_keeps(tmp_path: Path) -> None:
    first, second = write_key(tmp_path / "1.pem"), write_key(tmp_path / "2.pem")
    ring = KeyRing(tmp_path / "data", tmp_path / "1.pem")
    assert ring.signing_key().public == first.public
    assert not list((tmp_path / "data" / "keys").glob("*.pem"))
    with pytest.raises(RequestError, match="--to FILE is missing"):
        ring.rotate()
    with pytest.raises(DietCodeError) as caught:
        KeyRing(tmp_path / "data", tmp_path / "2.pem").signing_key()
    one_line(caught, "2.pem", "`dietcode key rotate --to` it first")
    assert ring.rotate(tmp_path / "2.pem") == (first.public.fingerprint, second.public.fingerprint)
    assert ring.signing_key().public == second.public  # a server that runs takes the new file by itself
    (tmp_path / "1.pem").unlink()
    assert ring.signing_key().public == second.public
    (tmp_path / "2.pem").rename(tmp_path / "1.pem")
    assert ring.signing_key().public == second.public
    (tmp_path / "1.pem").rename(tmp_path / "2.pem")
    later = KeyRing(tmp_path / "data", tmp_path / "2.pem")
    assert later.signing_key().public == second.public
    write_key(tmp_path / "3.pem")
    with pytest.raises(DietCodeError) as caught:
        KeyRing(tmp_path / "data", tmp_path / "3.pem").signing_key()
    one_line(caught, "3.pem", "`dietcode key rotate --to` it first")
    (tmp_path / "1.pem").write_bytes(first.pem)
    (tmp_path / "1.pem").chmod(0o600)
    with pytest.raises(RequestError, match="has signed before"):
        later.rotate(tmp_path / "1.pem")
    with pytest.raises(RequestError, match="is for a server with that setting"):
        KeyRing(tmp_path / "other").rotate(tmp_path / "1.pem")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path.unlink(), "No such file"),
        (lambda path: path.write_text("hello"), "no ed25519 private key"),
        (lambda path: path.chmod(0o644), "others can read this private key"),
        (lambda path: path.write_bytes(path.read_bytes()[:60]), "no ed25519 private key"),
    ],
)
def test_a_key_that_cannot_be_used(tmp_path: Path, spoil: Any, words: str) -> None:
    ring = KeyRing(tmp_path)
    ring.signing_key()
    (path,) = (tmp_path / "keys").glob("*.pem")
    spoil(path)
    with pytest.raises(DietCodeError) as caught:
        ring.signing_key()
    one_line(caught, words, str(path))


def test_a_ring_that_cannot_be_read_makes_no_new_key(tmp_path: Path) -> None:
    KeyRing(tmp_path).signing_key()
    (tmp_path / "keys" / "ring.json").write_text("{}")
    with pytest.raises(DietCodeError) as caught:
        KeyRing(tmp_path).signing_key()
    one_line(caught, "ring.json", "restore it from a backup")


@pytest.fixture
def published(database: Database) -> Database:
    with database.write() as session:
        libraries.publish(session, job=None, device_name="a test", files=library_files())
        libraries.publish(session, job=None, device_name="a test", files=library_files(code=b"other"))
    return database


def opened(database: Database, ring: KeyRing, version: int | None) -> LibraryStatement:
    data, found = signature(database, ring, "dense", version)
    with database.read() as session:
        manifest = libraries.manifest_bytes(session, libraries.get(session, "dense", found))
    return open_library(parse_envelope(data, "a test"), ring.signing_key().public, manifest, "a test")


def test_a_version_is_signed_once(published: Database, tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    said = opened(published, ring, 1)
    assert (said.name, said.version, said.revoked) == ("dense", 1, [])
    assert signature(published, ring, "dense", 1) == signature(published, ring, "dense", 1)
    assert opened(published, ring, None).version == 2
    with pytest.raises(NotFoundError):
        signature(published, ring, "dense", 3)
    with published.read() as session:
        assert len(list(session.scalars(select(SignatureRow)))) == 2


def test_it_is_signed_anew_after_a_rotation_or_revocation(published: Database, tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    first = signature(published, ring, "dense", 1)
    old, new = ring.rotate()
    second = signature(published, ring, "dense", 1)
    assert second != first and parse_envelope(second[0], "a test").keyid == new
    ring.revoke(old)
    assert opened(published, ring, 1).revoked == [old]
    assert opened(published, ring, 2).revoked == [old]


def test_a_kept_signature_that_was_spoilt_is_made_again(published: Database, tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    signature(published, ring, "dense", 1)
    with published.write() as session:
        for row in session.scalars(select(SignatureRow)):
            row.envelope = "{}"
    assert opened(published, ring, 1).version == 1


def test_requests_at_once_sign_alike(published: Database, tmp_path: Path) -> None:
    ring, said = KeyRing(tmp_path), []
    threads = [
        threading.Thread(target=lambda: said.append(opened(published, ring, 1).version)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == [1] * 8


def test_openssl_agrees(published: Database, tmp_path: Path) -> None:
    """What ``docs/signing.md`` does by hand."""
    if not any((Path(folder) / "openssl").exists() for folder in os.environ["PATH"].split(":")):
        pytest.skip("no openssl on this machine")
    ring = KeyRing(tmp_path)
    envelope = parse_envelope(signature(published, ring, "dense", 1)[0], "a test")
    (tmp_path / "key.pem").write_text(ring.public().keys[0].public_key)
    kind = envelope.payload_type
    signed = f"DSSEv1 {len(kind)} {kind} {len(envelope.payload)} ".encode() + envelope.payload
    (tmp_path / "message").write_bytes(signed)
    (tmp_path / "sig").write_bytes(envelope.signature)
    command = "openssl pkeyutl -verify -pubin -inkey key.pem -rawin -in message -sigfile sig"
    subprocess.run(command.split(), cwd=tmp_path, check=True, capture_output=True)
    der = subprocess.run(
        ["openssl", "pkey", "-pubin", "-in", "key.pem", "-outform", "DER"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    ).stdout
    assert f"sha256:{hashlib.sha256(der).hexdigest()}" == envelope.keyid
    assert PublicKey.from_pem((tmp_path / "key.pem").read_text()).fingerprint == envelope.keyid
