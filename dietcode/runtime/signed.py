"""The signature of a library folder: a library that was pulled has one, one that was tuned here has none."""

from __future__ import annotations

from pathlib import Path

from dietcode.errors import LibraryError
from dietcode.runtime.manifest import MANIFEST, SIGNATURE, read_json

_MAX_BYTES = 8 << 20


def check_signature(folder: Path) -> None:
    """Verify the signature of a folder that has one, and that it is about the manifest beside it.

    Raises
    ------
    LibraryError
        The signature is wrong, is of another manifest, or of a key that is not trusted here; or there is
        none, and the manifest says that there is one.
    """
    if not (folder / SIGNATURE).exists() and not (folder / SIGNATURE).is_symlink():
        if (folder / MANIFEST).exists() and read_json(folder / MANIFEST).get("signature") is not None:
            raise LibraryError(
                f"{folder}: a server published it, and its {SIGNATURE} is missing; pull it again, or copy "
                "the whole folder"
            )
        return
    from dietcode.trust.envelope import parse_envelope
    from dietcode.trust.pins import Pins
    from dietcode.trust.statements import open_library

    envelope = parse_envelope(_read(folder / SIGNATURE), str(folder))
    pin = Pins().read().of(envelope.keyid)
    if pin is None or pin.key is None:
        raise LibraryError(
            f"{folder}: signed with the key {envelope.keyid}, which nobody here trusts; pull it again, or "
            "`dietcode trust SERVER --key FILE` with the server's public key"
        )
    if pin.state == "revoked":
        raise LibraryError(
            f"{folder}: signed with the key {envelope.keyid}, which its server has revoked; pull it again"
        )
    open_library(envelope, pin.key, _read(folder / MANIFEST), str(folder))


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise LibraryError(f"{path}: larger than {_MAX_BYTES >> 20} MiB")
        return path.read_bytes()
    except OSError as error:
        raise LibraryError(f"{path}: {error.strerror or error}; the library is incomplete") from error
