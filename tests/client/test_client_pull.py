"""Pulling: verified, resumed, cached, atomic, whatever the server does."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_libraries import ROOT, draw, error, expected, older_library_bytes, packed_arguments
from wire_server import Fault, WireServer, digest

import dietcode
from dietcode.client import AsyncClient, Client
from dietcode.errors import DietCodeError, LibraryError, NotFoundError, RequestError, ServerError
from dietcode.runtime.manifest import read_manifest


@pytest.fixture
def client(wire: WireServer) -> Iterator[Client]:
    wire.publish("dense", 1, older_library_bytes("dense"))
    with Client(wire.url, timeout_secs=5.0) as made:
        yield made


def facts(path: str = "library.so") -> tuple[str, bytes]:
    """Digest and content of a file of the library ``dense``."""
    data = older_library_bytes("dense")[path]
    return digest(data), data


def leftovers(cache: Path) -> list[Path]:
    """Partial files and staged folders."""
    return [path for path in cache.rglob("*") if ".part" in path.name or path.name.startswith(".")]


def one_line(caught: pytest.ExceptionInfo[DietCodeError], *words: str) -> None:
    text = str(caught.value)
    assert "\n" not in text and len(text) < 500 and all(word in text for word in words), text


def runtime() -> tuple[str, bytes]:
    manifest = json.loads(older_library_bytes("dense")["manifest.json"])
    found = manifest["runtime"]["sha256"]
    return found, older_library_bytes("dense")[f"blobs/{found.replace(':', '-')}"]


def test_a_pulled_library_runs(client: Client, own_cache: Path) -> None:
    library = dietcode.pull("dense@1", num_threads=2)
    arrays = draw("dense", T=5)
    assert error(library(**packed_arguments(library, arrays)), expected("dense", arrays)) < 1e-5
    assert own_cache in library.folder.parents and library.folder.name == "dense"


def test_a_folder_asked_for_is_complete(client: Client, tmp_path: Path, own_cache: Path) -> None:
    root = client.pull("dense", tmp_path / "deep" / "lib")
    for path, data in older_library_bytes("dense").items():
        assert (root / path).read_bytes() == data
    assert not leftovers(tmp_path) and not leftovers(own_cache)


def test_nothing_is_fetched_twice(client: Client, wire: WireServer, tmp_path: Path) -> None:
    first = client.pull("dense@1")
    before = len(wire.requests)
    inode = first.stat().st_ino
    assert client.pull("dense@1") == first and first.stat().st_ino == inode
    client.pull("dense@1", tmp_path / "again")
    assert len(wire.requests) == before


def test_a_cached_version_needs_no_server(client: Client, wire: WireServer) -> None:
    first = client.pull("dense@1")
    wire.stop()
    assert client.pull("dense@1") == first
    with pytest.warns(UserWarning, match=r"connection refused.*using dense@1 from the cache") as warned:
        assert client.pull("dense") == first
    assert "\n" not in str(warned[0].message)
    with pytest.raises(ServerError, match="cannot be reached: connection refused"):
        client.pull("rows")


def test_the_latest_is_asked_for_each_time(client: Client, wire: WireServer) -> None:
    first = client.pull("dense")
    files = dict(older_library_bytes("dense"))
    files["manifest.json"] += b"\n"  # other bytes, the same library
    wire.publish("dense", 2, files)
    second = client.pull("dense")
    assert second != first and client.pull("dense@1") == first


@pytest.mark.parametrize("cut", [1, 1000, 100_000])
def test_a_broken_download_goes_on_where_it_stopped(client: Client, wire: WireServer, cut: int) -> None:
    name, data = runtime()
    wire.fault(f"/blobs/{name}", Fault(cut=cut), Fault(cut=7))
    client.pull("dense")
    requests = wire.asked(f"/blobs/{name}")
    assert [r.headers.get("range") for r in requests] == [None, f"bytes={cut}-", f"bytes={cut + 7}-"]
    assert requests[1].headers["if-range"] == f'"{name}"'
    assert sum(r.sent_bytes for r in requests) == len(data)


def test_a_later_process_goes_on_too(client: Client, wire: WireServer, own_cache: Path) -> None:
    name, data = runtime()
    wire.fault(f"/blobs/{name}", *[Fault(cut=1000)] * 5)
    with pytest.raises(ServerError) as caught:
        client.pull("dense")
    one_line(caught, "runtime", "5 tries", "what arrived is kept")
    assert [path.stat().st_size for path in leftovers(own_cache) if path.suffix == ".part"] == [5000]
    child(own_cache, wire.url, "dense")
    requests = wire.asked(f"/blobs/{name}")
    assert requests[-1].headers["range"] == "bytes=5000-"
    assert sum(r.sent_bytes for r in requests) == len(data)


def test_a_partial_file_with_other_content_is_thrown_away(
    client: Client, wire: WireServer, own_cache: Path
) -> None:
    name, data = runtime()
    partial = own_cache / "downloads" / f"{name.replace(':', '-')}.part"
    partial.parent.mkdir()
    partial.write_bytes(b"x" * 1000)
    client.pull("dense")
    requests = wire.asked(f"/blobs/{name}")
    assert [r.headers.get("range") for r in requests] == ["bytes=1000-", None]
    assert requests[1].sent_bytes == len(data)


def test_a_partial_file_that_is_a_link_leads_nowhere(client: Client, own_cache: Path, tmp_path: Path) -> None:
    """Who may write to a cache must not have a pull write through to another file."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (own_cache / "downloads").mkdir(parents=True)
    own_cache.joinpath("downloads").chmod(0o777)
    for name, _ in (runtime(), facts()):
        (own_cache / "downloads" / f"{name.replace(':', '-')}.part").symlink_to(victim)
    client.pull("dense")
    assert victim.read_bytes() == b"precious"
    assert (own_cache / "downloads").stat().st_mode & 0o022 == 0  # nobody else makes links there from now on


def test_a_folder_of_somebody_else_is_not_written_to(client: Client, own_cache: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    own_cache.mkdir(exist_ok=True)
    (own_cache / "downloads").symlink_to(tmp_path / "theirs")
    with pytest.raises(LibraryError) as caught:
        client.pull("dense")
    one_line(caught, "belongs to somebody else", "DIETCODE_CACHE")
    assert not list((tmp_path / "theirs").iterdir())


@pytest.mark.parametrize("extra", [0, 1, 1000])
def test_a_partial_file_that_is_too_long_is_thrown_away(
    client: Client, wire: WireServer, own_cache: Path, extra: int
) -> None:
    name, data = runtime()
    partial = own_cache / "downloads" / f"{name.replace(':', '-')}.part"
    partial.parent.mkdir()
    partial.write_bytes(b"x" * (len(data) + extra))
    client.pull("dense")
    assert [r.headers.get("range") for r in wire.asked(f"/blobs/{name}")] == [None]


def test_a_server_without_ranges_is_served_by_starting_over(client: Client, wire: WireServer) -> None:
    name, data = facts()
    wire.fault(f"/blobs/{name}", Fault(cut=100), Fault(body=data))
    client.pull("dense")
    assert [r.headers.get("range") for r in wire.asked(f"/blobs/{name}")] == [None, "bytes=100-"]


@pytest.mark.parametrize(
    "wrong",
    ["bytes 0-9/10", "bytes 99-100/101", "bytes 100-*/*", "nonsense", "bytes 1-2/99999999999999999999"],
)
def test_an_answer_with_another_range_is_not_used(client: Client, wire: WireServer, wrong: str) -> None:
    name, data = facts()
    wire.fault(
        f"/blobs/{name}",
        Fault(cut=100),
        Fault(status=206, body=data[100:], headers={"Content-Range": wrong}),
    )
    root = client.pull("dense")
    assert (root / "library.so").read_bytes() == data
    assert wire.asked(f"/blobs/{name}")[-1].headers.get("range") is None


def test_a_range_that_the_server_lacks_starts_over(client: Client, wire: WireServer) -> None:
    name, _ = facts()
    wire.fault(f"/blobs/{name}", Fault(cut=100), Fault(status=416))
    client.pull("dense")
    assert wire.asked(f"/blobs/{name}")[-1].headers.get("range") is None


def test_errors_of_the_server_are_tried_again(client: Client, wire: WireServer) -> None:
    wire.fault("/blobs/", Fault(status=500), Fault(status=503), Fault(cut=0))
    read_manifest(client.pull("dense"))


@pytest.mark.parametrize("path", ["runtime", "library.so", "dispatch.json", "report.json"])
def test_altered_bytes_are_refused(client: Client, wire: WireServer, own_cache: Path, path: str) -> None:
    name = runtime()[0] if path == "runtime" else facts(path)[0]
    wire.fault(f"/blobs/{name}", Fault(alter=10))
    with pytest.raises(LibraryError) as caught:
        client.pull("dense")
    one_line(caught, f"dense@1: {path}", name, "nothing of it is kept")
    assert not (own_cache / "blobs" / name.replace(":", "-")).exists()
    assert not list(own_cache.rglob("library.so"))
    assert not [p for p in leftovers(own_cache) if p.suffix == ".part"]
    read_manifest(client.pull("dense"))  # and nothing bad was kept


def test_a_blob_in_the_place_of_another_is_refused(client: Client, wire: WireServer) -> None:
    name, _ = facts("dispatch.json")
    wire.always = [(f"/blobs/{name}", Fault(body=facts("library.so")[1]))]
    with pytest.raises(LibraryError, match=r"more bytes arrived|other bytes arrived"):
        client.pull("dense")


def test_a_body_without_end_is_left_when_it_is_too_long(client: Client, wire: WireServer) -> None:
    name, data = facts()
    wire.fault(f"/blobs/{name}", Fault(endless=True))
    with pytest.raises(LibraryError) as caught:
        client.pull("dense")
    one_line(caught, "library.so", "more bytes arrived", str(len(data)))


@pytest.mark.parametrize("path", ["/libraries/", f"/blobs/{runtime()[0]}"])
def test_a_redirect_is_not_followed(client: Client, wire: WireServer, path: str) -> None:
    wire.fault(path, Fault(status=302, headers={"Location": "http://127.0.0.1:9/elsewhere"}))
    with pytest.raises(ServerError) as caught:
        client.pull("dense")
    one_line(caught, "redirects to http://127.0.0.1:9/elsewhere", "not followed")
    assert len(wire.asked(path)) == 1


def test_compressed_bodies_are_refused(client: Client, wire: WireServer) -> None:
    wire.fault(f"/blobs/{facts()[0]}", Fault(headers={"Content-Encoding": "gzip"}))
    with pytest.raises(ServerError, match="content encoding 'gzip'"):
        client.pull("dense")
    assert {r.headers["accept-encoding"] for r in wire.requests} == {"identity"}


def test_a_missing_blob(client: Client, wire: WireServer) -> None:
    del wire.blobs[facts()[0]]
    with pytest.raises(NotFoundError, match="no such blob"):
        client.pull("dense")


def test_altered_blobs_in_the_cache_are_fetched_again(
    client: Client, wire: WireServer, own_cache: Path, tmp_path: Path
) -> None:
    root = client.pull("dense")
    for blob in (own_cache / "blobs").iterdir():
        blob.write_bytes(b"x" * blob.stat().st_size)
    (root / "library.so").write_bytes(b"spoilt")
    before = len(wire.asked("/blobs/"))
    read_manifest(client.pull("dense@1", tmp_path / "lib"))
    read_manifest(root)
    assert len(wire.asked("/blobs/")) == before + 4  # three files and the runtime; not the manifest
    # Manifest and signature, each twice, and which version is the latest.
    assert len(wire.asked("/libraries/")) == 5


def change(**changes: Any) -> bytes:
    return json.dumps(json.loads(older_library_bytes("dense")["manifest.json"]) | changes).encode()


def with_file(path: str, value: Any) -> bytes:
    files = json.loads(older_library_bytes("dense")["manifest.json"])["files"]
    return change(files=files | {path: value})


GOOD = {"bytes": 1, "sha256": "sha256:" + "0" * 64}
HOSTILE: dict[str, tuple[bytes, str]] = {
    "outside": (with_file("../x", GOOD), "../x"),
    "absolute": (with_file("/etc/passwd", GOOD), "/etc/passwd"),
    "too many files": (change(files={f"f{i}": GOOD for i in range(10_000)}), "allowed: dispatch.json"),
    "no files": (change(files={}), "no files"),
    "a list of files": (change(files=["library.so"]), "library.so"),
    "a huge size": (with_file("library.so", {**GOOD, "bytes": 2**60}), "at most 512 MiB"),
    "a negative size": (with_file("library.so", {**GOOD, "bytes": -1}), "at most 512 MiB"),
    "a size that is text": (with_file("library.so", {**GOOD, "bytes": "1"}), "bytes and sha256"),
    "a size that is true": (with_file("library.so", {**GOOD, "bytes": True}), "bytes and sha256"),
    "a size with a fraction": (with_file("library.so", {**GOOD, "bytes": 1.5}), "bytes and sha256"),
    "a digest with a path": (
        with_file("library.so", {**GOOD, "sha256": "sha256:../../x"}),
        "is not a digest",
    ),
    "no digest": (with_file("library.so", {"bytes": 1}), "bytes and sha256"),
    "facts that are none": (with_file("library.so", None), "bytes and sha256"),
    "a runtime that is none": (change(runtime=[]), "runtime"),
    "another library's": (change(name="rows"), "another library, 'rows'"),
    "a path as its name": (change(name="../dense"), "another library"),
    "another format": (change(format="dietcode-library/9"), "dietcode-library/9"),
    "not JSON": (b"<html>hello</html>", "not JSON"),
    "not an object": (b"[1]", "no JSON object"),
    "nested too deep": (b"[" * 200_000, "not JSON"),
    "not text": (b"\xff\xfe\x00", "not JSON"),
    "fields that loading needs are missing": (
        json.dumps(
            {
                key: value
                for key, value in json.loads(older_library_bytes("dense")["manifest.json"]).items()
                if key in {"format", "name", "files", "runtime"}
            }
        ).encode(),
        "is missing",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_manifest_is_refused(case: str, client: Client, wire: WireServer, tmp_path: Path) -> None:
    wire.manifests["dense", 1], words = HOSTILE[case]
    with pytest.raises(LibraryError) as caught:
        client.pull("dense", tmp_path / "lib")
    one_line(caught, words)
    assert not list(tmp_path.iterdir())


def test_a_manifest_that_is_too_large_is_not_read(client: Client, wire: WireServer) -> None:
    wire.fault("/libraries/", Fault(endless=True), Fault(headers={"Content-Length": str(2**40)}, cut=10))
    for _ in range(2):
        with pytest.raises(ServerError, match="larger than 8 MiB"):
            client.pull("dense")


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"DietCode-Manifest": "sha256:" + "0" * 64}, "the server announced sha256:000"),
        ({"DietCode-Manifest": ""}, "the server announced none"),
        ({"DietCode-Version": "2"}, "asked for version 1, given version 2"),
        ({"DietCode-Version": "../1"}, "names no version"),
        ({"DietCode-Version": ""}, "names no version"),
    ],
)
def test_headers_that_do_not_fit_are_refused(
    client: Client, wire: WireServer, headers: dict[str, str], words: str
) -> None:
    wire.fault("/libraries/", Fault(headers=headers))
    with pytest.raises(DietCodeError) as caught:
        client.pull("dense@1")
    one_line(caught, words)


@pytest.mark.parametrize(
    "ref",
    [
        "",
        "@1",
        "dense@",
        "dense@0",
        "dense@-1",
        "dense@x",
        "dense@1@2",
        "dense@" + "9" * 40,
        "../x",
        "a/b",
        "A",
    ],
)
def test_a_wrong_name_is_refused_before_asking(client: Client, wire: WireServer, ref: str) -> None:
    with pytest.raises(RequestError) as caught:
        client.pull(ref)
    one_line(caught, "allowed")
    assert not wire.requests


def test_a_place_that_holds_something_else_is_refused_before_asking(
    client: Client, wire: WireServer, tmp_path: Path
) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(LibraryError, match="holds files that are no library"):
        client.pull("dense", tmp_path)
    assert not wire.requests and (tmp_path / "mine.txt").read_text() == "precious"


def child(cache: Path, url: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dietcode", "pull", "--no-lock", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
        env=os.environ | {"DIETCODE_CACHE": str(cache), "DIETCODE_SERVER": url},
        **options,
    )


def test_processes_that_pull_at_once_share_the_work(
    client: Client, wire: WireServer, own_cache: Path, tmp_path: Path
) -> None:
    wire.fault("/blobs/", *[Fault(delay_secs=0.3)] * 2)
    results: list[subprocess.CompletedProcess[str]] = []

    def one() -> None:
        results.append(child(own_cache, wire.url, "dense", "-o", str(tmp_path / "lib")))

    threads = [threading.Thread(target=one) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [done.returncode for done in results] == [0, 0, 0], results
    read_manifest(tmp_path / "lib")
    assert len(wire.asked("/blobs/")) == 4  # each blob once
    assert [path.name for path in tmp_path.iterdir()] == ["lib"]


@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize("limit", [100, 20_000, 100_000])
def test_a_disk_that_is_full_leaves_nothing_half_written(
    client: Client, wire: WireServer, own_cache: Path, tmp_path: Path, limit: int
) -> None:
    def no_large_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = child(own_cache, wire.url, "dense", "-o", str(tmp_path / "lib"), preexec_fn=no_large_files)
    assert done.returncode == 1 and done.stdout == ""
    assert re.fullmatch(r"dietcode: .*: cannot be (kept|written): File too large.*\n", done.stderr), (
        done.stderr
    )
    assert not list(tmp_path.iterdir())
    assert not [path for path in leftovers(own_cache) if path.suffix in {".part", ".new"}]
    assert all(digest(blob.read_bytes())[7:] in blob.name for blob in own_cache.glob("blobs/*"))
    read_manifest(client.pull("dense", tmp_path / "lib"))


def test_a_cache_that_cannot_be_made(client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DIETCODE_CACHE", str(tmp_path / "file"))
    with pytest.raises(LibraryError) as caught:
        client.pull("dense")
    one_line(caught, "cannot be kept", "DIETCODE_CACHE")


async def pull_async(url: str) -> Path:
    async with AsyncClient(url) as client:
        assert await client.blob(facts()[0], len(facts()[1])) == await client.blob(
            facts()[0], len(facts()[1])
        )
        return await client.pull("dense@1")


def test_the_same_from_asyncio(client: Client, wire: WireServer) -> None:
    root = asyncio.run(pull_async(wire.url))
    assert root == client.pull("dense@1")


def test_an_empty_blob(client: Client, wire: WireServer) -> None:
    assert client.blob(digest(b""), 0).read_bytes() == b""
    assert not wire.asked("/blobs/")
