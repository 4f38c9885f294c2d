"""Keys, envelopes and statements by themselves, held against what their standards print."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dietcode.errors import DietCodeError, LibraryError
from dietcode.trust.envelope import pae, parse_envelope, seal
from dietcode.trust.keys import KeyFormatError, PublicKey, SigningKey
from dietcode.trust.rotation import follow, read_rotations
from dietcode.trust.statements import (
    LIBRARY_PAYLOAD,
    LibraryStatement,
    ManifestFacts,
    open_library,
    open_rotation,
    sign_library,
    sign_rotation,
)

# RFC 8032, section 7.1, test 2.
SEED = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
PUBLIC = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
SIGNATURE = bytes.fromhex(
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)
KEY = SigningKey(Ed25519PrivateKey.from_private_bytes(SEED))
OTHER = SigningKey(Ed25519PrivateKey.from_private_bytes(b"o" * 32))
MANIFEST = b"{}"
EMPTY = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"  # of MANIFEST


def statement(**changes: Any) -> LibraryStatement:
    facts = ManifestFacts(sha256=EMPTY, bytes=2)
    given: dict[str, Any] = {"name": "dense", "version": 3, "manifest": facts, "issued_at": "now"}
    return LibraryStatement(**(given | changes))


def test_the_standards_own_examples() -> None:
    assert pae("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )
    assert KEY.public.raw == PUBLIC and KEY.sign(b"\x72") == SIGNATURE
    assert KEY.public.verifies(SIGNATURE, b"\x72") and not KEY.public.verifies(SIGNATURE, b"\x73")


def test_a_private_key_is_not_shown() -> None:
    assert repr(KEY) == "SigningKey()"
    assert SigningKey.from_pem(KEY.pem).public == KEY.public == PublicKey.from_pem(KEY.public.pem)


def test_what_was_signed_comes_out() -> None:
    data = sign_library(KEY, statement()).to_bytes()
    assert data == json.dumps(json.loads(data), sort_keys=True, separators=(",", ":")).encode()
    said = open_library(parse_envelope(data, "a test"), KEY.public, MANIFEST, "a test")
    assert said == statement() and said.label == "dense@3"


@pytest.mark.parametrize(
    "spell",
    [
        json.dumps,
        lambda plain: json.dumps(plain, separators=(",", ":"), sort_keys=True) + "\n",
        lambda plain: json.dumps(dict(reversed(plain.items())), separators=(",", ":")),
        lambda plain: json.dumps(plain, separators=(",", ":"), sort_keys=True).replace(
            "keyid", "key\\u0069d"
        ),
        lambda plain: json.dumps(plain, separators=(",", ":"), sort_keys=True)[:-1] + ',"payload":""}',
    ],
)
def test_another_spelling_is_refused(spell: Any) -> None:
    with pytest.raises(LibraryError):
        parse_envelope(spell(sign_library(KEY, statement()).to_json()).encode(), "a test")


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        (json.dumps(json.loads(statement().to_bytes())).encode(), LIBRARY_PAYLOAD),  # not canonical
        (statement().to_bytes().replace(b'"version":3', b'"version":"3"'), LIBRARY_PAYLOAD),
        (statement().to_bytes().replace(b'"version":3', b'"version":true'), LIBRARY_PAYLOAD),
        (statement().to_bytes().replace(b'"version":3', b'"version":0'), LIBRARY_PAYLOAD),
        (statement().to_bytes().replace(b"{", b'{"a":1,', 1), LIBRARY_PAYLOAD),
        (b"[" * 100_000, LIBRARY_PAYLOAD),
        (b"\xff", LIBRARY_PAYLOAD),
        (statement().to_bytes(), "text/plain"),
    ],
)
def test_a_right_signature_of_something_else(payload: bytes, kind: str) -> None:
    envelope = seal(KEY, kind, payload)
    with pytest.raises(LibraryError) as caught:
        open_library(envelope, KEY.public, MANIFEST, "a test")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


def test_a_rotation_is_no_library_and_the_other_way_round() -> None:
    with pytest.raises(LibraryError, match="payload of type"):
        open_library(sign_rotation(KEY, OTHER.public, "now"), KEY.public, MANIFEST, "a test")
    with pytest.raises(LibraryError, match="payload of type"):
        open_rotation(sign_library(KEY, statement()), KEY.public, "a test")


def test_a_key_does_not_revoke_itself() -> None:
    envelope = sign_library(KEY, statement(revoked=[KEY.public.fingerprint]))
    with pytest.raises(LibraryError, match="revokes itself"):
        open_library(envelope, KEY.public, MANIFEST, "a test")


def test_rotations_in_a_circle_end() -> None:
    links = [sign_rotation(KEY, OTHER.public, "now"), sign_rotation(OTHER, KEY.public, "now")]
    found = read_rotations([link.to_json() for link in links], "a test")
    assert follow(KEY.public, "sha256:" + "0" * 64, found, "a test") is None


@pytest.mark.parametrize("text", ["", "x" * 2000, KEY.pem.decode(), KEY.public.pem[:-30], KEY.public.pem * 2])
def test_what_is_no_public_key(text: str) -> None:
    with pytest.raises(KeyFormatError):
        PublicKey.from_pem(text)


def test_a_public_key_of_another_length() -> None:
    with pytest.raises(DietCodeError, match="an ed25519 key has 32"):
        PublicKey(b"short")
