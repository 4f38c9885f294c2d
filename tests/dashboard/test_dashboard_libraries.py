"""Pages of libraries, and the Python that they offer: it runs as pasted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from made_app import HOSTILE, MadeApp, code_of, opened, text_of
from plain_server import plain_files
from small_libraries import ROOT, files_of, library_bytes, older_library_bytes, spec_data
from sqlalchemy import update

from dietcode_server.dashboard.snippet import snippet, variables_of
from dietcode_server.store import libraries
from dietcode_server.store.database import Database
from dietcode_server.store.tables import LibraryRow, SignatureRow
from dietcode_server.store.tokens import create

CONV = spec_data(
    "conv",
    op={"conv2d": {"strides": 1, "padding": 1, "data_layout": "NHWC", "kernel_layout": "OIHW"}},
    tensors={
        "X": {"dims": "nhwc", "dtype": "float32"},
        "W": {"dims": "ocrs", "dtype": "float32", "constant": True},
    },
    shape_vars={"B": {"min": 1, "max": 3}},
    dims={"n": "B", "h": 5, "w": 6, "c": 4, "o": 8, "r": 3, "s": 3},
)
CLASHING = spec_data(
    "clashing",
    tensors={
        "np": {"dims": "mk", "dtype": "float32"},
        "lib": {"dims": "nk", "dtype": "float32", "constant": True},
    },
    output={"name": "print", "dtype": "float16"},
)


def publish(database: Database, files: Any) -> None:
    with database.write() as session:
        libraries.publish(session, job=None, device_name="A test CPU", files=files)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MadeApp]:
    with opened(tmp_path_factory.mktemp("data")) as made:
        publish(made.database, older_library_bytes("epilogue"))
        publish(made.database, library_bytes("values"))
        for code in (b"one", b"two", b"three"):
            publish(made.database, plain_files("plain", code))
        classes = [{"multiple": 8, "dims": "kn"}, {"multiple": 4, "dims": "k"}, {"multiple": 1, "dims": ""}]
        publish(made.database, plain_files("aligned", alignment_classes=[classes, classes[2:]]))
        for number in range(60):
            publish(made.database, plain_files(f"many-{number:02}"))
        yield made


def names(page: str) -> list[str]:
    return re.findall(r'<th scope="row" class="wide"><a href="/libraries/([^/"]+)/', page)


def test_each_name_is_listed_with_its_newest_version(app):
    page = app.page("/libraries?q=plain")
    assert names(page) == ["plain"]
    assert 'href="/libraries/plain/3"' in page
    assert "plain 3 einsum mk,nk->mn T 1–8 A test CPU – 0" in text_of(page)
    with app.database.write() as session:
        libraries.yank(session, "plain", 3)
    assert 'href="/libraries/plain/2"' in app.page("/libraries?q=plain")
    assert "3 yanked" in text_of(app.page("/libraries?q=plain&yanked=true"))
    with app.database.write() as session:
        libraries.yank(session, "plain", 3, undo=True)


def test_names_are_found_by_a_part_of_them(app):
    assert names(app.page("/libraries?q=ANY-1")) == [f"many-1{digit}" for digit in range(10)]
    assert "No library's name holds “none”" in text_of(app.page("/libraries?q=none"))
    for odd in ("%", "_", "\0", "'"):
        assert names(app.page("/libraries", params={"q": odd})) == []


def test_names_are_paged(app):
    seen, path = [], "/libraries"
    for _ in range(3):
        page = app.page(path)
        seen += names(page)
        following = re.search(r'rel="next" href="([^"]+)"', page)
        if following is None:
            break
        path = following[1].replace("&amp;", "&")
    assert seen == sorted(seen) and len(set(seen)) == len(seen) == 64
    assert "First page" in page


def test_htmx_is_given_the_list_alone(app):
    found = app.client.get("/libraries?q=plain", headers={"hx-request": "true"}).text
    assert names(found) == ["plain"] and "<html" not in found


def test_an_empty_server_says_what_to_do(tmp_path):
    with opened(tmp_path) as empty:
        page = empty.page("/libraries")
    assert "No library yet" in page and 'href="/submit"' in page


def test_versions_of_a_name(app):
    page = text_of(app.page("/libraries/plain"))
    assert page.index("plain@3") < page.index("plain@2") < page.index("plain@1")
    assert "no such library" in text_of(app.page("/libraries/none", 404))


def test_a_version_is_shown_whole(app):
    page = app.page("/libraries/epilogue/1")
    said = text_of(page)
    assert said.count("Verified now with the server's current key: this manifest is epilogue@1.") == 1
    found = libraries_facts(app, "epilogue")
    for name, facts in found["files"].items():
        assert name in said and facts["sha256"].removeprefix("sha256:") in said
        assert f'href="/api/v1/blobs/{facts["sha256"]}" download="{name}"' in page
    assert found["runtime"]["sha256"] in page
    for words in ("CPU features", "cores", "packed once", "[4*T, 24]", "T 1 to 5"):
        assert words in said
    key = app.client.get("/api/v1/keys").json()["current"]
    commands = code_of(page)
    assert commands[0] == "dietcode pull epilogue@1 -o epilogue --server http://127.0.0.1:8000"
    assert commands[2] == f"dietcode trust http://127.0.0.1:8000 --key {key}"
    assert 'hx-get="/libraries/epilogue/1/result"' in page
    assert app.page("/libraries/epilogue/latest").count("epilogue@1") == page.count("epilogue@1")
    assert "no such version" in text_of(app.page("/libraries/epilogue/2", 404))
    for address in re.findall(r'href="(/api/v1/[^"]+)"', page):
        assert app.client.get(address).status_code == 200


def libraries_facts(app: MadeApp, name: str) -> Any:
    return app.client.get(f"/api/v1/libraries/{name}/1").json()


def test_a_manifest_without_a_call_is_shown_too(app):
    page = text_of(app.page("/libraries/plain/1"))
    assert "describes no call" in page and "library.so" in page


def test_alignment_classes_of_categories_that_have_several_are_shown(app):
    page = text_of(app.page("/libraries/aligned/1"))
    assert page.count("loads and stores of") == 1
    said = "loads and stores of 8 elements where 8 divides k and n, and addresses allow it"
    assert f"{said}; of 4 where 4 divides k" in page
    assert "loads and stores of" not in text_of(app.page("/libraries/plain/1"))


def test_a_signature_that_is_wrong_is_said(app):
    app.page("/libraries/values/1")
    with app.database.write() as session:
        row = session.query(SignatureRow).join(LibraryRow).filter(LibraryRow.name == "values").one()
        good = row.envelope
        other = app.client.get("/api/v1/libraries/epilogue/1/signature").text
        row.envelope = other
    page = app.page("/libraries/values/1")
    assert "Verified now" not in page and re.search(r'class="error" role="alert">[^<]*signed are', page)
    with app.database.write() as session:
        session.execute(update(SignatureRow).where(SignatureRow.envelope == other).values(envelope=good))


def test_yanking_is_offered_to_those_who_may(tmp_path):
    with opened(tmp_path) as app:
        publish(app.database, plain_files("plain"))
        page = app.page("/libraries/plain/1")
        assert 'data-post="/api/v1/libraries/plain/1/yank"' in page and "data-confirm" in page
        assert app.client.post("/api/v1/libraries/plain/1/yank").status_code == 200
        page = app.page("/libraries/plain/1")
        assert 'data-post="/api/v1/libraries/plain/1/unyank"' in page and "Yanked just now" in text_of(page)
        with app.database.write() as session:
            _, reading = create(session, "alice", ["read"], None)
            _, publishing = create(session, "alice", ["read", "publish"], None)
        for secret, why in ((reading, "needs a token with publish"), (publishing, "belongs to local")):
            app.client.headers["authorization"] = f"Bearer {secret}"
            found = re.search(r'aria-disabled="true" title="([^"]*)"', app.page("/libraries/plain/1"))
            assert found is not None and why in found[1]
            assert "DIETCODE_TOKEN" in app.page("/libraries/plain/1")


def test_everything_is_escaped(tmp_path):
    with opened(tmp_path) as app:
        with app.database.write() as session:
            libraries.publish(session, job=None, device_name=HOSTILE, files=plain_files("plain"))
        for path in ("/libraries", "/libraries/plain", "/libraries/plain/1", f"/libraries?q={HOSTILE}"):
            page = app.page(path)
            assert "<script>alert" not in page
        assert "&lt;script&gt;" in app.page("/libraries")


def test_the_snippet_is_for_the_values_that_were_chosen(app):
    def call(path: str) -> str:
        return code_of(app.client.get(path).text)[0]

    assert "X = rng.standard_normal((8, 24)" in call("/libraries/epilogue/1/snippet?T=2")
    assert "X = rng.standard_normal((20, 24)" in call("/libraries/epilogue/1/snippet?T=99")
    assert "X = rng.standard_normal((12, 24)" in call("/libraries/epilogue/1/snippet?T=x&Z=1")
    assert "# T = 4" in call("/libraries/values/1/snippet?T=5"), "one of 1, 2, 4, 9"
    page = app.page("/libraries/values/1")
    assert [int(value) for value in re.findall(r"<option[^>]*>(\d+)", page)] == [1, 2, 4, 9]


def test_where_numpy_has_no_such_dtype_or_device_the_snippet_takes_torch():
    manifest: Any = {
        "target": {"kind": "llvm"},
        "variable_order": ["T"],
        "variables": {"T": {"min": 1, "max": 9, "values": None}},
        "binding": {"steps": [{"variable": "T", "tensor": "X", "axis": 0, "dim": "T"}], "keywords": []},
        "argument_order": ["X", "W"],
        "inputs": {"X": {"dims": "mk", "dtype": "float32"}, "W": {"dims": "nk", "dtype": "float32"}},
        "dims": {"m": "T", "n": "8", "k": "4"},
        "packed": {"W": {}},
        "output": {"name": "Y", "dims": "mn", "dtype": "bfloat16"},
    }
    variables = variables_of(manifest, {})
    made = snippet(manifest, variables, "x@1", "http://a")
    assert "import torch" in made and "numpy" not in made and "X = torch.randn((5, 4))" in made
    on_gpu = manifest | {"target": {"kind": "cuda", "arch": "sm_90"}, "packed": {}}
    made = snippet(on_gpu, variables, "x@1", "http://a")
    assert 'W = torch.randn((8, 4), device="cuda")' in made and "pack" not in made
    half = {name: facts | {"dtype": "float16"} for name, facts in on_gpu["inputs"].items()}
    made = snippet(on_gpu | {"inputs": half}, variables, "x@1", "http://a")
    assert 'W = torch.randn((8, 4), dtype=torch.float16, device="cuda")' in made


class RealServer:
    """``dietcode serve`` as a process, with some libraries."""

    def __init__(self, folder: Path, published: dict[str, Any]) -> None:
        database = Database(f"sqlite:///{folder / 'dietcode.db'}")
        database.upgrade()
        for files in published.values():
            publish(database, files)
        database.dispose()
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "dietcode",
                "serve",
                "--no-jobs",
                "--port",
                "0",
                "--data-dir",
                str(folder),
            ],
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := re.search(r"serving (http://127\.0\.0\.1:\d+)", line):
                self.url = found[1]
                return
        raise AssertionError("the server did not start")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=30)


SHAPES = {
    "epilogue": ("T=3", "(12, 40) float32"),
    "bmm": ("T=7", "(3, 7, 20) float32"),
    "keyword": ("A=3&B=4", "(12, 32) float32"),
    "conv": ("B=2", "(2, 5, 6, 8) float32"),
    "clashing": ("T=8", "(128, 64) float16"),
}


@pytest.mark.long
def test_snippets_run_as_pasted(tmp_path):
    """In a fresh process each, against a server that they name themselves."""
    made = {name: library_bytes(name) for name in ("epilogue", "bmm", "keyword")}
    made |= {data["name"]: files_of(data) for data in (CONV, CLASHING)}
    folder = tmp_path / "data"
    folder.mkdir()
    server = RealServer(folder, made)
    running = {}
    try:
        for name, (values, _) in SHAPES.items():
            page = httpx2.get(f"{server.url}/libraries/{name}/1?{values}").text
            code = next(text for text in code_of(page) if "import dietcode" in text)
            own = {"DIETCODE_CACHE": str(tmp_path / f"{name}-cache"), "DIETCODE_TRUST": str(tmp_path / name)}
            running[name] = subprocess.Popen(
                [sys.executable, "-c", code],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | own,
            )
        said = {name: process.communicate(timeout=120) for name, process in running.items()}
    finally:
        server.stop()
    for name, (_, shape) in SHAPES.items():
        assert said[name][0].strip() == shape, said[name]
