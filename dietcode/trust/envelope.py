"""DSSE envelopes (https://github.com/secure-systems-lab/dsse): a payload, its type, and who signed both.

Readers here take one spelling only: canonical JSON (RFC 8785), one signature, standard base64. So any altered
byte of an envelope is noticed, also one that would change nothing.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any

import rfc8785

from dietcode.errors import LibraryError
from dietcode.trust.keys import SIGNATURE_BYTES, PublicKey, SigningKey, is_fingerprint
from dietcode.workload.text import clip, one_line

MAX_ENVELOPE_BYTES = 1 << 20
_FIELDS = {"payload", "payloadType", "signatures"}


@dataclass(frozen=True)
class Envelope:
    """A payload, its signature and the signing key's id; nothing of it is verified yet.

    Attributes
    ----------
    keyid : str
        Fingerprint of the key that is said to have signed.
    """

    payload_type: str
    payload: bytes
    keyid: str
    signature: bytes

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form that DSSE prescribes."""
        return {
            "payload": base64.b64encode(self.payload).decode(),
            "payloadType": self.payload_type,
            "signatures": [{"keyid": self.keyid, "sig": base64.b64encode(self.signature).decode()}],
        }

    def to_bytes(self) -> bytes:
        """The one spelling that `parse_envelope` takes."""
        return bytes(rfc8785.dumps(self.to_json()))

    def payload_of(self, key: PublicKey, payload_type: str, what: str) -> bytes:
        """Return the payload once it is verified; nothing else of this package hands it out.

        Raises
        ------
        LibraryError
            It is of another type, names another key, or the signature is wrong.
        """
        if self.payload_type != payload_type:
            given = clip(self.payload_type, 80)
            raise LibraryError(
                f"{what}: the signature is of a payload of type {given}; allowed: {payload_type}"
            )
        if self.keyid != key.fingerprint:
            raise LibraryError(
                f"{what}: the signature names the key {self.keyid}; allowed: {key.fingerprint}"
            )
        if not key.verifies(self.signature, pae(self.payload_type, self.payload)):
            raise LibraryError(
                f"{what}: the signature is not that of the key {self.keyid}; one of both was altered"
            )
        return self.payload


def pae(payload_type: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: the bytes that are signed."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def seal(key: SigningKey, payload_type: str, payload: bytes) -> Envelope:
    """Sign a payload."""
    return Envelope(payload_type, payload, key.public.fingerprint, key.sign(pae(payload_type, payload)))


def parse_envelope(data: bytes, what: str) -> Envelope:
    """Read an envelope from an untrusted place.

    Parameters
    ----------
    what : str
        Named by errors, like ``bert-dense@3``.

    Raises
    ------
    LibraryError
        It is not an envelope, or is not spelled as `Envelope.to_bytes` does.
    """
    if len(data) > MAX_ENVELOPE_BYTES:
        raise LibraryError(f"{what}: the signature is larger than {MAX_ENVELOPE_BYTES >> 20} MiB")
    try:
        plain = json.loads(data)
    except (ValueError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else one_line(str(error), 80)
        raise LibraryError(f"{what}: the signature is not JSON: {reason}") from None
    envelope = read_envelope(plain, what)
    if envelope.to_bytes() != data:
        raise LibraryError(f"{what}: the signature is not in canonical JSON (RFC 8785); it was altered")
    return envelope


def read_envelope(plain: object, what: str) -> Envelope:
    """Read an envelope that is parsed JSON already; raises as `parse_envelope`."""
    if not isinstance(plain, dict) or set(plain) != _FIELDS:
        raise LibraryError(
            f"{what}: the signature is no DSSE envelope; allowed: {', '.join(sorted(_FIELDS))}"
        )
    signatures = plain["signatures"]
    if not isinstance(signatures, list) or len(signatures) != 1:
        given = len(signatures) if isinstance(signatures, list) else clip(signatures, 20)
        raise LibraryError(f"{what}: given {given} signatures; allowed: 1")
    signed = signatures[0]
    if not isinstance(signed, dict) or set(signed) != {"keyid", "sig"}:
        raise LibraryError(f"{what}: a signature without a key or a value; allowed: keyid and sig")
    keyid, kind = signed["keyid"], plain["payloadType"]
    if not isinstance(keyid, str) or not is_fingerprint(keyid):
        raise LibraryError(
            f"{what}: the signature names the key {clip(keyid)}; allowed: sha256:<64 hex digits>"
        )
    if not isinstance(kind, str) or not kind.isascii():
        raise LibraryError(f"{what}: the signature is of a payload of type {clip(kind)}; allowed: ASCII text")
    signature = _decoded(signed["sig"], f"{what}: the signature's value")
    if len(signature) != SIGNATURE_BYTES:
        raise LibraryError(f"{what}: the signature has {len(signature)} bytes; allowed: {SIGNATURE_BYTES}")
    return Envelope(kind, _decoded(plain["payload"], f"{what}: the signed payload"), keyid, signature)


def _decoded(given: object, what: str) -> bytes:
    """Standard base64 in its one spelling."""
    try:
        data = base64.b64decode(given, validate=True) if isinstance(given, str) else None
    except (binascii.Error, ValueError):
        data = None
    if data is None or base64.b64encode(data).decode() != given:
        raise LibraryError(f"{what} is {clip(given, 30)}; allowed: base64 (RFC 4648, section 4)")
    return data
