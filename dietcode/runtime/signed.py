"""The signature of a library folder: a library that was pulled has one, one that was tuned here has none."""

from __future__ import annotations

import os
from pathlib import Path

from dietcode.errors import LibraryError
from dietcode.runtime.manifest import MANIFEST, SIGNATURE, parse_json, read_document

POLICY = Path("/etc/dietcode/require-signature")


def is_required(given: bool | None = None) -> bool:
    """Return whether only signed folders load, as a caller, $DIETCODE_REQUIRE_SIGNATURE or the machine says.

    A machine whose administrator has made the file `POLICY` requires signatures whatever else is said.

    Raises
    ------
    LibraryError
        The variable is neither 0 nor 1.
    """
    text = os.environ.get("DIETCODE_REQUIRE_SIGNATURE") or "0"
    if text not in {"0", "1"}:
        raise LibraryError(f"DIETCODE_REQUIRE_SIGNATURE: given {text!r}; allowed: 0, 1")
    return POLICY.exists() or (text == "1" if given is None else given)


def signed_manifest(folder: Path, required: bool = False) -> bytes:
    """Return a folder's manifest, byte for byte as its signature signs it, where the folder has one.

    Parameters
    ----------
    folder : Path
    required : bool
        Refuse a folder without a signature.

    Raises
    ------
    LibraryError
        The signature is wrong, is of another manifest, or of a key that is not trusted here; or there is
        none, and the manifest or `required` asks for one.
    """
    content = read_document(folder / MANIFEST) if (folder / MANIFEST).exists() else b""
    if not (folder / SIGNATURE).exists() and not (folder / SIGNATURE).is_symlink():
        if content and parse_json(folder / MANIFEST, content).get("signature") is not None:
            raise LibraryError(
                f"{folder}: a server published it, and its {SIGNATURE} is missing; pull it again, or copy "
                "the whole folder"
            )
        if required:
            raise LibraryError(
                f"{folder}: not signed, and only signed libraries load here (require_signature, "
                f"DIETCODE_REQUIRE_SIGNATURE, or {POLICY}); `dietcode pull` it from a server"
            )
        return content
    from dietcode.trust.envelope import parse_envelope
    from dietcode.trust.pins import Pins
    from dietcode.trust.statements import open_library

    envelope = parse_envelope(read_document(folder / SIGNATURE), str(folder))
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
    open_library(envelope, pin.key, content, str(folder))
    return content
