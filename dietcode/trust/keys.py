"""Ed25519 keys and their fingerprints.

Only signing and verifying import ``cryptography``: a library that was tuned here loads without it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dietcode.errors import DietCodeError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SIGNATURE_BYTES = 64
_KEY_BYTES = 32
# SubjectPublicKeyInfo of RFC 8410 in front of the key itself: always the same for ed25519.
_DER_PREFIX = bytes.fromhex("302a300506032b6570032100")
_BEGIN, _END = "-----BEGIN PUBLIC KEY-----", "-----END PUBLIC KEY-----"
_FINGERPRINT = re.compile(r"sha256:[0-9a-f]{64}")


class KeyFormatError(DietCodeError):
    """The text is not an ed25519 key."""


def is_fingerprint(text: str) -> bool:
    """Return whether `text` is ``sha256:`` and 64 hex digits."""
    return _FINGERPRINT.fullmatch(text) is not None


@dataclass(frozen=True)
class PublicKey:
    """The public half.

    Attributes
    ----------
    raw : bytes
        The 32 bytes of RFC 8032.
    """

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != _KEY_BYTES:
            raise KeyFormatError(f"given {len(self.raw)} bytes; an ed25519 key has {_KEY_BYTES}")

    @property
    def fingerprint(self) -> str:
        """``sha256:<hex>`` of the key in DER: ``openssl pkey -pubin -outform DER | sha256sum``."""
        return f"sha256:{hashlib.sha256(_DER_PREFIX + self.raw).hexdigest()}"

    @property
    def pem(self) -> str:
        """The key as a text that openssl reads."""
        return f"{_BEGIN}\n{base64.b64encode(_DER_PREFIX + self.raw).decode()}\n{_END}\n"

    @classmethod
    def from_pem(cls, text: str) -> PublicKey:
        """Read what `pem` gives.

        Raises
        ------
        KeyFormatError
            It is no ed25519 public key in PEM.
        """
        lines = text.strip().splitlines() if len(text) < 1000 else []
        try:
            der = base64.b64decode("".join(lines[1:-1]), validate=True)
        except (binascii.Error, ValueError):
            der = b""
        framed = len(lines) > 2 and (lines[0], lines[-1]) == (_BEGIN, _END)
        if not framed or not der.startswith(_DER_PREFIX):
            raise KeyFormatError("no ed25519 public key in PEM; `openssl pkey -in KEY -pubout` writes one")
        return cls(der.removeprefix(_DER_PREFIX))

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Return whether the owner of this key signed `message`."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True


@dataclass(frozen=True)
class SigningKey:
    """The private half; its repr shows nothing of it."""

    private: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def generate(cls) -> SigningKey:
        """Make a new key."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_pem(cls, data: bytes) -> SigningKey:
        """Read what `pem`, or ``openssl genpkey -algorithm ed25519``, gives.

        Raises
        ------
        KeyFormatError
            It is no ed25519 private key in PEM, or needs a password.
        """
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            found = load_pem_private_key(data, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            found = None
        if not isinstance(found, Ed25519PrivateKey):
            raise KeyFormatError(
                "no ed25519 private key in PEM without a password; "
                "`openssl genpkey -algorithm ed25519` writes one"
            )
        return cls(found)

    @property
    def public(self) -> PublicKey:
        """The public half."""
        return PublicKey(self.private.public_key().public_bytes_raw())

    @property
    def pem(self) -> bytes:
        """The private key in PKCS #8, without a password."""
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        return self.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def sign(self, message: bytes) -> bytes:
        """The 64 bytes of the signature."""
        return self.private.sign(message)
