"""A folder that is incomplete, altered or of another kind is refused before any of its code is loaded."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_libraries import built, copy_of, library_bytes, rewrite_manifest

import dietcode
from dietcode.errors import DietCodeError, LibraryError
from dietcode.runtime import loading, native
from dietcode.runtime.manifest import FILES, blob_name, check_writable, read_manifest, write_folder

MANIFEST = "manifest.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return copy_of("dense", tmp_path / "lib")


@pytest.fixture(autouse=True)
def _no_code_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise AssertionError("code of a library that was not verified reached the loader")

    monkeypatch.setattr("dietcode.runtime.loading.load_content", fail)


def refused(folder: Path, *words: str) -> None:
    """Loading must raise one line that holds all of `words`."""
    with pytest.raises(DietCodeError) as caught:
        dietcode.load(folder)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 500, message
    assert all(word in message for word in words), message


def test_the_guard_of_these_tests_works(folder: Path) -> None:
    with pytest.raises(AssertionError, match="reached the loader"):
        dietcode.load(folder)


@pytest.mark.parametrize("name", [*FILES, MANIFEST])
def test_a_missing_file(folder: Path, name: str) -> None:
    (folder / name).unlink()
    refused(folder, name, "No such file")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: bytes([data[0] ^ 1]) + data[1:],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :],
    ],
    ids=["empty", "truncated", "longer", "first byte", "last byte", "middle byte"],
)
def test_an_altered_file(folder: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    (folder / name).write_bytes(change((folder / name).read_bytes()))
    refused(folder, name, "altered")


def test_a_file_that_became_a_folder(folder: Path) -> None:
    (folder / "library.so").unlink()
    (folder / "library.so").mkdir()
    refused(folder, "library.so")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", ["not JSON"]),
        (b"\xff\xfe\x00", ["not JSON"]),
        (b"{", ["not JSON"]),
        (b"[]", ["not a JSON object"]),
        (b"null", ["not a JSON object"]),
        (b"[" * 200_000, ["not JSON"]),
        (b'{"a":' * 100_000, ["not JSON"]),
        (b" " * (9 << 20) + b"{}", ["larger than 8 MiB"]),
        (b"1" * 10_000, ["not JSON"]),
        (b"{}", ["format None"]),
        (b'{"format": "dietcode-library/2"}', ["dietcode-library/2", "dietcode-library/1"]),
        (b'{"format": ["dietcode-library/1"]}', ["format"]),
        (b'{"format": "dietcode-library/1"}', ["must list"]),
    ],
    ids=lambda value: None if isinstance(value, list) else repr(value[:20]),
)
def test_a_manifest_that_is_none(folder: Path, text: bytes, words: list[str]) -> None:
    (folder / MANIFEST).write_bytes(text)
    refused(folder, *words)


def test_a_truncated_manifest(folder: Path) -> None:
    data = (folder / MANIFEST).read_bytes()
    for length in (1, len(data) // 3, len(data) - 3):
        (folder / MANIFEST).write_bytes(data[:length])
        refused(folder, MANIFEST, "not JSON")


def files_of(folder: Path) -> dict[str, Any]:
    files: dict[str, Any] = json.loads((folder / MANIFEST).read_text())["files"]
    return files


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "sub/library.so", "extra.bin", ""])
def test_files_that_a_library_does_not_have(folder: Path, name: str) -> None:
    files = files_of(folder)
    rewrite_manifest(folder, files=files | {name: {"bytes": 1, "sha256": "sha256:" + "0" * 64}})
    refused(folder, "must list")
    del files["library.so"]
    rewrite_manifest(folder, files=files | {name: {"bytes": 1, "sha256": "sha256:" + "0" * 64}})
    refused(folder, "must list")


@pytest.mark.parametrize("facts", [None, [], "x", 1, {}, {"bytes": None}, {"sha256": 3}])
def test_a_file_entry_that_says_nothing(folder: Path, facts: Any) -> None:
    rewrite_manifest(folder, files=files_of(folder) | {"library.so": facts})
    refused(folder)


@pytest.mark.parametrize(
    "field",
    [
        "requires",
        "num_threads",
        "argument_order",
        "inputs",
        "output",
        "dims",
        "variables",
        "variable_order",
        "binding",
        "packed",
    ],
)
@pytest.mark.parametrize("value", ["missing", None, "x", [1], {"x": 1}], ids=repr)
def test_a_manifest_with_a_field_missing_or_of_another_kind(
    folder: Path, field: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may fail after its code was loaded, but always with one line."""
    monkeypatch.setattr(loading, "load_content", native.load_content)  # the code itself is intact here
    manifest = json.loads((folder / MANIFEST).read_text())
    if value == "missing":
        del manifest[field]
    else:
        manifest[field] = value
    (folder / MANIFEST).write_text(json.dumps(manifest))
    refused(folder)


def test_no_folder_at_all(tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", "no such folder")
    (tmp_path / "file").write_text("")
    refused(tmp_path / "file", "no such folder")
    refused(tmp_path, "manifest.json", "is this a library folder?")


@pytest.mark.parametrize(
    "digest",
    ["", "sha256:", "md5:" + "0" * 64, "sha256:" + "G" * 64, "sha256:../" + "0" * 61, "sha256:" + "0" * 65],
)
def test_blob_names_come_from_digests_alone(digest: str) -> None:
    with pytest.raises(LibraryError, match="is not a digest"):
        blob_name(digest)


def test_a_blob_name_has_no_path_in_it() -> None:
    assert blob_name("sha256:" + "0a" * 32) == "sha256-" + "0a" * 32


def test_every_file_of_a_written_library_is_in_its_manifest() -> None:
    folder = built("dense")
    manifest = read_manifest(folder)
    assert {str(p.relative_to(folder)) for p in folder.rglob("*")} == {*manifest["files"], MANIFEST}
    assert manifest["signature"] is None
    assert set(manifest["requires"]) == {"system", "machine", "cpu_features"}
    assert {"tvm", "tvm_ffi"} <= set(manifest["versions"])


def test_an_older_library_is_replaced_whole(folder: Path) -> None:
    stray = folder / "blobs" / "sha256-of-the-older-one"
    stray.parent.mkdir()
    stray.write_text("its runtime")
    write_folder(folder, library_bytes("rows"))
    assert read_manifest(folder)["name"] == "rows"
    assert not stray.exists()
    assert [p.name for p in folder.parent.iterdir()] == ["lib"]


def test_a_written_folder_and_its_files_can_be_read_by_others(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_folder(tmp_path / "deep" / "er" / "lib", library_bytes("dense"))
    finally:
        os.umask(before)
    folder = tmp_path / "deep" / "er" / "lib"
    assert folder.stat().st_mode & 0o777 == 0o755
    assert all(p.stat().st_mode & 0o444 == 0o444 for p in folder.rglob("*") if p.is_file())


def test_what_write_folder_leaves_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "full")
    for path in (tmp_path / "file", tmp_path / "full", tmp_path / "link", tmp_path / "file" / "below"):
        for write in (check_writable, lambda p: write_folder(p, library_bytes("dense"))):
            with pytest.raises(LibraryError, match=str(path)):
                write(path)
    assert (tmp_path / "file").read_text() == "mine" and (
        tmp_path / "full" / "thesis.txt"
    ).read_text() == "mine"
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["file", "full", "link", "thesis.txt"]


def test_a_name_that_no_file_system_takes(tmp_path: Path) -> None:
    with pytest.raises(LibraryError, match=r"cannot be written|name too long"):
        check_writable(tmp_path / ("n" * 300))
    with pytest.raises(LibraryError, match=r"cannot be written|name too long"):
        write_folder(tmp_path / ("n" * 300), library_bytes("dense"))


def test_the_current_folder_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would have to be moved away from under the shell that stands in it."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for path in (Path(), tmp_path / "here", Path("../here")):
        with pytest.raises(LibraryError, match="current folder"):
            check_writable(path)
    assert [p.name for p in tmp_path.rglob("*")] == ["here"]
    write_folder(Path("lib"), library_bytes("dense"))
    assert read_manifest(tmp_path / "here" / "lib")["name"] == "dense"


def test_nothing_is_left_of_a_write_that_fails_in_the_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def fsync(_: int) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(LibraryError, match="No space left on device"):
        write_folder(tmp_path / "lib", library_bytes("dense"))
    assert list(tmp_path.iterdir()) == []


def test_an_older_library_survives_a_write_that_fails(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.replace

    failures = [OSError(5, "Input/output error")]

    def replace(self: Path, target: Path) -> Path:
        if target == folder and failures:
            raise failures.pop()
        return real(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(LibraryError, match="Input/output error"):
        write_folder(folder, library_bytes("rows"))
    monkeypatch.undo()
    assert [p.name for p in folder.parent.iterdir()] == ["lib"]
    assert read_manifest(folder)["name"] == "dense"


@pytest.mark.parametrize(
    "files",
    [
        {"manifest.json": '{"manifest_version": 3}', "background.js": "precious"},
        {"manifest.json": '{"format": "something-else/1"}'},
        {"manifest.json": '{"format": "dietcode-library/1"}', "notes.txt": "precious"},
        {"manifest.json": "no JSON"},
    ],
)
def test_a_folder_with_other_files_is_never_replaced(tmp_path: Path, files: dict[str, str]) -> None:
    """As the source of a web extension, which has a manifest.json too."""
    folder = tmp_path / "precious"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    with pytest.raises(LibraryError, match="holds files that are no library"):
        write_folder(folder, library_bytes("dense"))
    assert {p.name: p.read_text() for p in folder.iterdir()} == files


def test_an_older_library_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "lib"
    write_folder(folder, {"manifest.json": b'{"format": "dietcode-library/0"}', "report.json": b"{}"})
    write_folder(folder, library_bytes("dense"))
    assert read_manifest(folder)["name"] == "dense"


@pytest.mark.parametrize("lanes", [0, -8, "8", None])
def test_lanes_that_are_no_number_of_lanes(folder: Path, lanes: Any) -> None:
    packed = json.loads((folder / MANIFEST).read_text())["packed"]
    rewrite_manifest(folder, packed={name: facts | {"lanes": lanes} for name, facts in packed.items()})
    refused(folder, "lanes")


@pytest.mark.parametrize("name", [MANIFEST, "library.so", "dispatch.json"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_file_that_never_ends(folder: Path, name: str, kind: str) -> None:
    (folder / name).unlink()
    if kind == "pipe":
        os.mkfifo(folder / name)  # nobody writes to it: reading would wait for ever
    else:
        (folder / name).symlink_to("/dev/zero")
    refused(folder, name, "not a regular file")


def test_only_signed_libraries_where_that_is_asked_for(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "not signed.*dietcode pull"
    with pytest.raises(LibraryError, match=words):
        dietcode.load(folder, require_signature=True)
    monkeypatch.setenv("DIETCODE_REQUIRE_SIGNATURE", "1")
    with pytest.raises(LibraryError, match=words):
        dietcode.load(folder)
    with pytest.raises(AssertionError, match="reached the loader"):
        dietcode.load(folder, require_signature=False)
    monkeypatch.setattr("dietcode.runtime.signed.POLICY", tmp_path)  # an administrator's word is the last
    with pytest.raises(LibraryError, match=words):
        dietcode.load(folder, require_signature=False)
    monkeypatch.setenv("DIETCODE_REQUIRE_SIGNATURE", "yes")
    refused(folder, "DIETCODE_REQUIRE_SIGNATURE", "'yes'", "allowed: 0, 1")


def test_what_was_verified_is_what_runs(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other code that takes the file's place after it was verified is never loaded."""
    monkeypatch.undo()
    given = copy_of("rows", tmp_path / "other") / "library.so"
    read, loaded = loading.read_verified, []

    def read_and_exchange(path: Path, facts: Any) -> bytes:
        content = read(path, facts)
        path.write_bytes(given.read_bytes())
        return content

    def load_and_note(content: bytes, name: str) -> tuple[Any, str]:
        loaded.append(content)
        return native.load_content(content, name)

    monkeypatch.setattr(loading, "read_verified", read_and_exchange)
    monkeypatch.setattr(loading, "load_content", load_and_note)
    before = (folder / "library.so").read_bytes()
    dietcode.load(folder)
    assert loaded == [before] and before != given.read_bytes() == (folder / "library.so").read_bytes()


def test_code_in_memory_has_a_path_of_its_own(tmp_path: Path) -> None:
    """A descriptor's number comes again, and the loader takes equal paths for the same code."""
    names = ("dense", "rows")
    contents = [(copy_of(name, tmp_path / name) / "library.so").read_bytes() for name in names]
    (_, first), (_, second) = (native.load_content(one, "library.so") for one in contents)
    assert first.split("/")[-1] == second.split("/")[-1] and first != second


_ODD: tuple[Any, ...] = (None, True, -1, 0, 1 << 70, 1e308, "", "x\x1b[31m\n", [], {}, [[0]], {"": None})


def _leaves(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of each value of a document that holds no others, and of each list and mapping."""
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path, *(leaf for key, value in inner for leaf in _leaves(value, (*path, key)))][not path :]


@pytest.mark.thorough
def test_no_value_of_a_manifest_gives_more_than_one_line(folder: Path) -> None:
    """Also of one that its publisher wrote, and signed: nothing but one error, or the code is loaded."""
    given, found = json.loads((folder / MANIFEST).read_bytes()), []
    for path in _leaves(given):
        for odd in _ODD:
            altered = json.loads(json.dumps(given))
            inner = altered
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = odd
            (folder / MANIFEST).write_text(json.dumps(altered))
            try:
                dietcode.load(folder)
            except DietCodeError as error:
                if not (str(error).isprintable() and len(str(error)) < 1000):
                    found.append((path, odd, str(error)))
            except AssertionError as error:
                assert "reached the loader" in str(error), (path, odd)
            except Exception as error:
                found.append((path, odd, repr(error)))
    assert not found, found[:20]
