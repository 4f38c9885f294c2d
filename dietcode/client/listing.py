"""The content of a library, or of a whole model, read from a manifest that is not trusted."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from dietcode.client.answers import parse_object
from dietcode.errors import LibraryError
from dietcode.protocol import FileFacts
from dietcode.runtime.manifest import (
    BUNDLE_FILES,
    BUNDLE_FORMAT,
    FILES,
    FORMAT,
    PART_PREFIX,
    PROGRAM_FILES,
    PROGRAM_FORMAT,
    RECORDED_FORMAT,
    RECURSION_FILES,
    RECURSION_FORMAT,
    blob_name,
)
from dietcode.workload.text import clip, one_line

MAX_MANIFEST_BYTES = 8 << 20
MAX_FILE_BYTES = 512 << 20
_FILES_OF = {
    FORMAT: FILES,
    BUNDLE_FORMAT: BUNDLE_FILES,
    RECURSION_FORMAT: RECURSION_FILES,
    PROGRAM_FORMAT: PROGRAM_FILES,
    RECORDED_FORMAT: PROGRAM_FILES,
}
_MAX_PARTS = 10_000
_DIGEST = re.compile(r"[0-9a-f]{1,64}")
_PART = re.compile(rf"{PART_PREFIX}[a-z0-9][a-z0-9_-]{{0,63}}")


@dataclass(frozen=True)
class ListedPart:
    """A library that a bundle lists.

    Attributes
    ----------
    manifest : str
        ``sha256:<hex>`` of its manifest.
    """

    name: str
    version: int
    manifest: str


@dataclass(frozen=True)
class Listing:
    """One version of a library, or of a bundle.

    Attributes
    ----------
    manifest : FileFacts
        Of the manifest itself.
    files : dict
        Facts of each file beside it, by name.
    runtime : FileFacts or None
        TVM's runtime, which libraries for CPUs of older versions came with.
    parts : dict
        Of a bundle its libraries, by the digest of what they compute.
    """

    name: str
    version: int
    manifest: FileFacts
    files: dict[str, FileFacts]
    runtime: FileFacts | None
    parts: dict[str, ListedPart] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """``name@version``, for messages."""
        return f"{self.name}@{self.version}"


def digest_of(data: bytes) -> str:
    """Return ``sha256:<hex>`` of some content."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def facts_of(data: bytes) -> FileFacts:
    """Digest and size."""
    return FileFacts(sha256=digest_of(data), size_bytes=len(data))


def read_listing(data: bytes, name: str, version: int) -> Listing:
    """Check what a pull needs of a manifest; loading checks the rest.

    Raises
    ------
    LibraryError
        It is no manifest, is another library's, or lists other files than a library has.
    """
    label = f"{name}@{version}"
    try:
        plain = parse_object(data)
    except ValueError as error:
        raise LibraryError(f"{label}: the manifest is not JSON: {one_line(str(error), 120)}") from None
    if not isinstance(plain, dict):
        raise LibraryError(f"{label}: the manifest is no JSON object")
    allowed = _FILES_OF.get(plain["format"]) if isinstance(plain.get("format"), str) else None
    if allowed is None:
        raise LibraryError(
            f"{label}: format {clip(plain.get('format'))}; this version reads {', '.join(_FILES_OF)}"
        )
    is_bundle = plain["format"] != FORMAT
    no_runtime = is_bundle or plain.get("runtime") == {}  # libraries of a bundle name theirs
    if plain.get("name") != name:
        raise LibraryError(f"{label}: the manifest is that of another library, {clip(plain.get('name'))}")
    files = plain.get("files")
    if not isinstance(files, dict) or set(files) != set(allowed):
        given = ", ".join(sorted(map(clip, files))) if isinstance(files, dict) else clip(files)
        raise LibraryError(
            f"{label}: the manifest lists {one_line(given, 120) or 'no files'}; allowed: {', '.join(allowed)}"
        )
    return Listing(
        name,
        version,
        facts_of(data),
        {path: _facts(facts, f"{label}: {path}") for path, facts in sorted(files.items())},
        None if no_runtime else _facts(plain.get("runtime"), f"{label}: runtime"),
        _parts(plain.get("libraries"), label) if is_bundle else {},
    )


def _parts(given: object, label: str) -> dict[str, ListedPart]:
    """Return the libraries of a bundle, each with the name and version under which its server has it."""
    if not isinstance(given, dict) or len(given) > _MAX_PARTS:
        raise LibraryError(f"{label}: the manifest lists no libraries; allowed: at most {_MAX_PARTS}")
    found = {}
    for digest, facts in given.items():
        where = f"{label}: libraries: {clip(digest)}"
        listed = facts if isinstance(facts, Mapping) else {}
        name, version, manifest = (listed.get(key) for key in ("name", "version", "manifest"))
        if not _DIGEST.fullmatch(digest) or not isinstance(name, str) or not _PART.fullmatch(name):
            raise LibraryError(f"{where}: given {clip(name)}; allowed: a name that begins with {PART_PREFIX}")
        if type(version) is not int or not 1 <= version < 2**31 or not isinstance(manifest, str):
            raise LibraryError(f"{where}: given {clip(facts)}; allowed: name, version and manifest")
        check_facts(FileFacts(sha256=manifest, size_bytes=0), where)
        found[digest] = ListedPart(name, version, manifest)
    return found


def check_facts(facts: FileFacts, where: str) -> FileFacts:
    """Refuse sizes and digests that no file of a library has.

    Raises
    ------
    LibraryError
        One line.
    """
    if not 0 <= facts.size_bytes <= MAX_FILE_BYTES:
        raise LibraryError(
            f"{where}: given a size of {clip(facts.size_bytes)} bytes; "
            f"allowed: at most {MAX_FILE_BYTES >> 20} MiB"
        )
    try:
        blob_name(facts.sha256)
    except LibraryError as error:
        raise LibraryError(f"{where}: {error}") from None
    return facts


def _facts(given: object, where: str) -> FileFacts:
    listed = given if isinstance(given, Mapping) else {}
    size, digest = listed.get("bytes"), listed.get("sha256")
    if not isinstance(size, int) or isinstance(size, bool) or not isinstance(digest, str):
        raise LibraryError(f"{where}: given {clip(given)}; allowed: bytes and sha256")
    return check_facts(FileFacts(sha256=digest, size_bytes=size), where)
