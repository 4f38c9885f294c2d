"""Signatures as a server gives them, written from the description of the interface alone."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

SIGNED_AT = "2026-01-02T03:04:05Z"


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def canonical(plain: Any) -> bytes:
    """RFC 8785 of ASCII texts and small integers."""
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()


def public_der(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def envelope(key: Ed25519PrivateKey, kind: str, payload: bytes) -> dict[str, Any]:
    """A DSSE envelope, written from its description."""
    signed = f"DSSEv1 {len(kind)} {kind} {len(payload)} ".encode() + payload
    value = base64.b64encode(key.sign(signed)).decode()
    return {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": kind,
        "signatures": [{"keyid": digest(public_der(key)), "sig": value}],
    }


def signature(
    key: Ed25519PrivateKey, name: str, version: int, manifest: bytes, revoked: Sequence[str] = ()
) -> bytes:
    """The envelope of one version."""
    statement = {
        "type": "dietcode-library-version/1",
        "name": name,
        "version": version,
        "manifest": {"sha256": digest(manifest), "bytes": len(manifest)},
        "issued_at": SIGNED_AT,
        "revoked": sorted(revoked),
    }
    return canonical(envelope(key, "application/vnd.dietcode.manifest+json", canonical(statement)))


def head(
    key: Ed25519PrivateKey, name: str, version: int, sequence: int, expires_at: str | None = None
) -> bytes:
    """The envelope that says which version is the latest."""
    statement = {
        "type": "dietcode-latest/1",
        "name": name,
        "version": version,
        "sequence": sequence,
        "issued_at": SIGNED_AT,
    } | ({} if expires_at is None else {"type": "dietcode-latest/2", "expires_at": expires_at})
    return canonical(envelope(key, "application/vnd.dietcode.latest+json", canonical(statement)))


def rotation(old: Ed25519PrivateKey, new: Ed25519PrivateKey) -> dict[str, Any]:
    """The older key names the one that follows."""
    statement = {
        "type": "dietcode-key-rotation/1",
        "old": digest(public_der(old)),
        "new": public_pem(new),
        "issued_at": SIGNED_AT,
    }
    return envelope(old, "application/vnd.dietcode.key-rotation+json", canonical(statement))


def public_pem(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def key_list(
    key: Ed25519PrivateKey, older: Sequence[Ed25519PrivateKey], rotations: Sequence[dict[str, Any]]
) -> bytes:
    """What ``GET /keys`` answers."""
    shown = [
        {
            "fingerprint": digest(public_der(one)),
            "public_key": public_pem(one),
            "state": "current" if one is key else "earlier",
            "since": SIGNED_AT,
        }
        for one in [*older, key]
    ]
    return json.dumps({"current": digest(public_der(key)), "keys": shown, "rotations": rotations}).encode()
