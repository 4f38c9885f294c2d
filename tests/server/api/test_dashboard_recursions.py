"""Pages of a recursion: its structure in the colours of categories, and where sizes of levels go."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fake_tuning import FakeTuning, plain_library, submit_model, work
from plain_server import NoTargets
from small_recursions import tree_model, two_categories
from starlette.testclient import TestClient

from dietcode_server.app import create_app
from dietcode_server.dashboard.structures import example_structure
from dietcode_server.settings import Settings
from dietcode_server.store.database import Database


class _Idle:
    def wake(self) -> None:
        """Nothing runs."""

    def healthy(self) -> bool:
        return True


@pytest.mark.thorough
def test_pages_of_a_recursion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(data_dir=tmp_path)
    database = Database(settings.database)
    database.upgrade()
    client = TestClient(
        create_app(database, settings, _Idle(), NoTargets()), base_url="http://127.0.0.1:8000"
    )

    def get(path: str) -> str:
        response = client.get(path)
        assert response.status_code == 200, (path, response.text[:300])
        return response.text

    tuning = FakeTuning(two_categories)
    tuning.install(monkeypatch.setattr)
    job_id = submit_model(database, tree_model())
    waiting = get(f"/jobs/{job_id}")
    assert "A sample structure" in waiting and "Colours come with its kernels" in waiting
    assert waiting.count("<circle") == 5 and waiting.count("<line") == 4 and "cat-none" in waiting
    assert work(database, job_id, tmp_path) == 0, get(f"/api/v1/jobs/{job_id}")
    for page in (get(f"/jobs/{job_id}"), get(f"/jobs/{job_id}/live"), get("/libraries/tree/1")):
        levels = re.findall(r'<g class="([\w-]+)">\s*<title>([^<]+)</title>', page)
        assert levels == [
            ("cat-0", "level 2: 1 nodes, category 0, 4x32"),
            ("cat-0", "level 1: 1 nodes, category 0, 4x32"),
            ("cat-1", "leaves: 3 nodes, category 1, 8x32"),
        ]
        assert "3…16" in page and "2 sample calls, up to 5 nodes" in page
        # One state of 16 float32 a node; 65 rows of it for 64 nodes, and what is computed of x.
        assert "<td>plain, kept</td>" in page and "not timed" in page and "128 bytes for each node" in page
    assert 'id="best-chart"' not in get(f"/jobs/{job_id}"), "GFLOP/s of different parts are no curve"
    row = get("/")
    assert "recursion" in row and "up to 2 children, nodes 1–64" in row and "Clone" not in row
    library = get("/libraries/tree/1")
    assert "states = model(structure, x)" in library and "describes no call" not in library
    assert "part:" not in get("/devices")
    tuning.make = plain_library  # whose rule is none
    other = submit_model(database, tree_model("other", None), force=True)
    assert work(database, other, tmp_path) == 0
    page = get(f"/jobs/{other}")
    assert "An example of a structure" in page and "No samples were given" in page
    assert page.count("<circle") == 63 and "Which sizes go where" not in page
    database.dispose()


def test_examples_of_structures() -> None:
    assert example_structure(1, 3) == [[], [0], [1]]
    assert example_structure(2, 1) == [[]]
    assert example_structure(2, 8) == [[], [], [], [], [0, 1], [2, 3], [4, 5]]
    assert len(example_structure(16, 10**6)) == 63
