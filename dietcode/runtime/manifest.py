"""The files of a library folder: read, checked by digest, written at once."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from dietcode.errors import LibraryError
from dietcode.workload.text import clip

FORMAT = "dietcode-library/1"
MANIFEST, DISPATCH, CODE, REPORT = "manifest.json", "dispatch.json", "library.so", "report.json"
FILES = (DISPATCH, CODE, REPORT)
SIGNATURE = "signature.json"  # of the manifest, beside it: what is signed cannot hold its own signature
BLOBS = "blobs"
MODEL, WEIGHTS, LIBRARIES = "model.json", "weights.safetensors", "libraries"  # of a whole model
BUNDLE_FORMAT = "dietcode-bundle/1"
BUNDLE_FILES = (MODEL, REPORT)  # of a bundle whose weights are apart
RECURSION, RECURSION_FORMAT = "recursion.json", "dietcode-recursion/1"  # a bundle of a recursion
RECURSION_FILES = (RECURSION, REPORT)
PROGRAM, PROGRAM_FORMAT = "program.json", "dietcode-program/1"  # a bundle of a program
RECORDED_FORMAT = "dietcode-program/2"  # of one whose Python code runs as it is
PROGRAM_FILES = (PROGRAM, REPORT)
PART_PREFIX = "part:"  # of a name that a server gives to a library that its bundles share
_CONTENTS = {
    "dietcode-library": {MANIFEST, SIGNATURE, BLOBS, *FILES},
    "dietcode-recursion": {MANIFEST, SIGNATURE, BLOBS, RECURSION, WEIGHTS, LIBRARIES, REPORT},
    "dietcode-program": {MANIFEST, SIGNATURE, BLOBS, PROGRAM, WEIGHTS, LIBRARIES, REPORT},
    "dietcode-bundle": {MANIFEST, SIGNATURE, BLOBS, MODEL, WEIGHTS, LIBRARIES, REPORT},
}
_MAX_MANIFEST_BYTES = 8 << 20
# What loading reads, beside "format" and "files".
_FIELDS: dict[str, type] = {
    "name": str,
    "workload": dict,
    "requires": dict,
    "num_threads": int,
    "argument_order": list,
    "tensor_order": list,
    "inputs": dict,
    "output": dict,
    "dims": dict,
    "variables": dict,
    "variable_order": list,
    "binding": dict,
    "packed": dict,
    "runtime": dict,
}


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file to read; a pipe or a device, which might never end, is refused at once.

    Raises
    ------
    OSError
        It is missing, unreadable, or no regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def sha256_file(path: Path) -> str:
    """``sha256:<hex>`` of a regular file; raises as `open_regular`."""
    digest = hashlib.sha256()
    with open_regular(path) as stream:
        for chunk in iter(lambda: stream.read(1 << 20), b""):
            digest.update(chunk)
    return f"sha256:{digest.hexdigest()}"


def blob_name(digest: str) -> str:
    """File name of a blob.

    Raises
    ------
    LibraryError
        `digest` is not ``sha256:`` and 64 hex digits.
    """
    algorithm, _, value = digest.partition(":")
    if algorithm != "sha256" or len(value) != 64 or set(value) - set("0123456789abcdef"):
        raise LibraryError(f"{digest[:80]!r} is not a digest; allowed: sha256:<64 hex digits>")
    return f"sha256-{value}"


def pretty_json(data: object) -> bytes:
    """Return readable JSON in a fixed order of keys, so that the same content gives the same bytes."""
    return (json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def read_document(path: Path) -> bytes:
    """Read a file of at most 8 MiB.

    Raises
    ------
    LibraryError
        It is missing, too large, or no regular file.
    """
    try:
        with open_regular(path) as stream:
            data = stream.read(_MAX_MANIFEST_BYTES + 1)
    except OSError as error:
        raise LibraryError(f"{path}: {error.strerror or error}; is this a library folder?") from error
    if len(data) > _MAX_MANIFEST_BYTES:
        raise LibraryError(f"{path}: larger than {_MAX_MANIFEST_BYTES >> 20} MiB")
    return data


def read_json(path: Path) -> dict[str, Any]:
    """Read one JSON object; raises as `read_document` and `parse_json`."""
    return parse_json(path, read_document(path))


def parse_json(path: Path, content: bytes) -> dict[str, Any]:
    """Return the JSON object that a file holds.

    Raises
    ------
    LibraryError
        It is not a JSON object.
    """
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise LibraryError(f"{path}: not JSON: {str(error)[:120]}") from error
    if not isinstance(data, dict):
        raise LibraryError(f"{path}: not a JSON object")
    return data


def read_manifest(folder: Path, content: bytes | None = None, later: Collection[str] = ()) -> dict[str, Any]:
    """Read and verify a library's manifest: its format, and size and digest of every file.

    Parameters
    ----------
    folder : Path
    content : bytes, optional
        Of the manifest, where it was read already, and its signature checked.
    later : collection of str
        Files that the caller reads by `read_verified`, which checks them.

    Raises
    ------
    LibraryError
        A file is missing, altered or of another format.
    """
    if not folder.is_dir():
        raise LibraryError(f"{folder}: no such folder; give the folder that `dietcode tune -o` wrote")
    manifest = parse_json(folder / MANIFEST, content or read_document(folder / MANIFEST))
    if manifest.get("format") != FORMAT:
        raise LibraryError(f"{folder}: format {manifest.get('format')!r}; this version reads {FORMAT}")
    files = manifest.get("files")
    if not isinstance(files, dict) or set(files) != set(FILES):
        raise LibraryError(f"{folder}: the manifest must list {', '.join(FILES)}")
    for name, facts in files.items():
        if name not in later:
            verify_file(folder / name, facts)
    for name, kind in _FIELDS.items():
        if not isinstance(manifest.get(name), kind):
            given = "is missing" if name not in manifest else f"is no {kind.__name__}"
            raise LibraryError(f"{folder / MANIFEST}: {name} {given}; tune again, or copy the whole folder")
    operands, order = manifest["tensor_order"], manifest["argument_order"]
    if order[: len(operands)] != operands:  # of versions whose positional arguments followed the kernels
        raise LibraryError(
            f"{folder / MANIFEST}: arguments in the order {clip(order)}, but the spec has {clip(operands)}; "
            "tune again"
        )
    return manifest


def unlisted(path: Path) -> LibraryError:
    """Return the error of a library's manifest that is not the one that its bundle lists."""
    return LibraryError(
        f"{path}: missing or not what the bundle lists; compile again, or copy the whole folder"
    )


def verify_file(path: Path, facts: Mapping[str, Any]) -> None:
    """Check one file against ``{"bytes", "sha256"}``.

    Raises
    ------
    LibraryError
        It is missing or altered.
    """
    try:
        size = path.stat().st_size
        digest = sha256_file(path)
    except OSError as error:
        raise LibraryError(f"{path}: {error.strerror or error}; the library is incomplete") from error
    _check_listed(path, {"bytes": size, "sha256": digest}, facts)


def read_verified(path: Path, facts: Mapping[str, Any]) -> bytes:
    """Return the content of one file that ``{"bytes", "sha256"}`` describe, the very bytes that were checked.

    Raises
    ------
    LibraryError
        It is missing or altered.
    """
    try:
        with open_regular(path) as stream:
            content = stream.read()
    except OSError as error:
        raise LibraryError(f"{path}: {error.strerror or error}; the library is incomplete") from error
    _check_listed(path, file_facts(content), facts)
    return content


def _check_listed(path: Path, found: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    listed = facts if isinstance(facts, Mapping) else {}
    if any(found[name] != listed.get(name) for name in found):
        raise LibraryError(
            f"{path}: {found['bytes']} bytes, {found['sha256']}: not what the manifest lists; it was altered"
        )


def as_published(manifest: Mapping[str, Any]) -> bytes:
    """The manifest of a library that a server publishes: it says that a signature goes with it.

    So a folder that lost its signature is not taken for one that was tuned here.
    """
    return pretty_json({**manifest, "signature": SIGNATURE})


def file_facts(data: bytes) -> dict[str, Any]:
    """``{"bytes", "sha256"}`` of some content."""
    return {"bytes": len(data), "sha256": f"sha256:{hashlib.sha256(data).hexdigest()}"}


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a whole folder, or nothing: built beside its place, then moved there.

    An older library in the same place is replaced; any other non-empty folder is left alone.

    Parameters
    ----------
    files : mapping of str to bytes
        Content by relative path.

    Raises
    ------
    LibraryError
        The place cannot be written, or holds something else.
    """
    with staged_folder(folder) as staged:
        for name, data in files.items():
            path = staged / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())


@contextlib.contextmanager
def staged_folder(folder: Path) -> Iterator[Path]:
    """Give a new folder to write to, and move it to its place at the end; nothing is there after an error.

    Raises
    ------
    LibraryError
        The place cannot be written, or holds something else.
    """
    check_writable(folder)
    staged: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        staged = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        yield staged
        staged.chmod(0o755)
        _move(staged, folder)
    except OSError as error:
        raise LibraryError(f"{folder}: cannot be written: {error.strerror or error}") from error
    finally:
        if staged is not None and staged.exists():
            shutil.rmtree(staged, ignore_errors=True)


def _move(staged: Path, folder: Path) -> None:
    """Replace `folder` by `staged`; the older folder is restored if that fails."""
    if not folder.exists():
        staged.replace(folder)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{folder.name}-old-", dir=folder.parent))
    try:
        folder.replace(old)
        staged.replace(folder)
    except BaseException:
        if not folder.exists():
            old.replace(folder)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def is_bundle(folder: Path) -> bool:
    """Whether a folder says that it holds a whole model, of any version."""
    return _has_format(folder, "dietcode-bundle/")


def is_recursion(folder: Path) -> bool:
    """Whether a folder says that it holds a recursion, of any version."""
    return _has_format(folder, "dietcode-recursion/")


def is_program(folder: Path) -> bool:
    """Whether a folder says that it holds a program, of any version."""
    return _has_format(folder, "dietcode-program/")


def is_recorded(folder: Path) -> bool:
    """Whether a folder says that it holds a program whose Python code runs as it is."""
    return _has_format(folder, RECORDED_FORMAT)


def has_parts(folder: Path) -> bool:
    """Whether a folder says that it holds a model, a recursion or a program, whose libraries are in it."""
    return is_bundle(folder) or is_recursion(folder) or is_program(folder)


def kind_of_bundle(folder: Path) -> tuple[str, str]:
    """Return the format of a bundle, and the file that describes what it holds."""
    if is_recorded(folder):
        return RECORDED_FORMAT, PROGRAM
    if is_program(folder):
        return PROGRAM_FORMAT, PROGRAM
    return (RECURSION_FORMAT, RECURSION) if is_recursion(folder) else (BUNDLE_FORMAT, MODEL)


def _has_format(folder: Path, beginning: str) -> bool:
    path = folder / MANIFEST
    return path.is_file() and str(read_json(path).get("format")).startswith(beginning)


def _holds_a_library(folder: Path) -> bool:
    """Whether a folder holds a library or a model, of any version, and nothing else: it may be replaced."""
    names = {path.name for path in folder.iterdir()}
    try:
        kind = str(read_json(folder / MANIFEST).get("format")).partition("/")[0]
        return kind in _CONTENTS and names <= _CONTENTS[kind]
    except LibraryError:
        return False


def check_writable(folder: Path) -> None:
    """Refuse early a place that `write_folder` would refuse after the work is done.

    Raises
    ------
    LibraryError
        The place is a file, a folder of something else, or not writable.
    """
    parent = folder.parent
    try:
        if folder.is_file() or folder.is_symlink():
            raise LibraryError(f"{folder}: is a file; give a folder to write the library to")
        if folder.is_dir() and any(folder.iterdir()) and not _holds_a_library(folder):
            raise LibraryError(f"{folder}: holds files that are no library; give an empty or new folder")
        if folder.is_dir() and (folder.is_mount() or folder.resolve() == Path.cwd()):
            raise LibraryError(
                f"{folder}: is a mount point or the current folder, which cannot be replaced; "
                "give a new folder inside it"
            )
        while not parent.exists():
            parent = parent.parent
        with tempfile.TemporaryFile(dir=parent):
            pass
    except OSError as error:
        raise LibraryError(f"{folder}: cannot be written: {error.strerror or error}") from error


def packing_function(facts: Mapping[str, Any]) -> str:
    """Return the name of the function that packs a constant, from what a manifest says of it."""
    return str(facts.get("function", "pack"))
