"""Pages of a program: one run of its samples, bucket by bucket, in the colours of categories."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from fake_tuning import FakeTuning, plain_library, submit_model, work
from plain_server import NoTargets
from small_programs import pair_program
from small_recursions import two_categories
from starlette.testclient import TestClient

from dietcode.graph.program_model import MAX_SHOWN
from dietcode_server.app import create_app
from dietcode_server.settings import Settings
from dietcode_server.store.database import Database


class _Resting:
    def wake(self) -> None:
        """Nothing runs."""

    def healthy(self) -> bool:
        return True


def test_pages_of_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(data_dir=tmp_path)
    database = Database(settings.database)
    database.upgrade()
    client = TestClient(
        create_app(database, settings, _Resting(), NoTargets()), base_url="http://127.0.0.1:8000"
    )

    def get(path: str) -> str:
        response = client.get(path)
        assert response.status_code == 200, (path, response.text[:300])
        return response.text

    def buckets(page: str) -> list[tuple[str, str]]:
        return re.findall(r'<g class="([\w-]+)"><title>([^<]+)</title>', page)

    tuning = FakeTuning(two_categories)
    tuning.install(monkeypatch.setattr)
    job_id = submit_model(database, pair_program())
    waiting = get(f"/jobs/{job_id}")
    assert "One run of the samples" in waiting and "Colours come with its kernels" in waiting
    assert [colour for colour, _ in buckets(waiting)] == ["cat-none"] * 3
    assert work(database, job_id, tmp_path) == 0, get(f"/api/v1/jobs/{job_id}")
    for page in (get(f"/jobs/{job_id}"), get(f"/jobs/{job_id}/live"), get("/libraries/pairs/1")):
        assert buckets(page) == [  # a merge is two kernels: a sum and a product
            ("cat-1", "block0: 5 rows, category 1, 8x32, 10.0 µs predicted"),
            ("cat-0", "block1: 2 rows, category 0, 4x32, 8.0 µs predicted"),
            ("cat-0", "block1: 1 row, category 0, 4x32, 4.0 µs predicted"),
        ]
        assert "45.5 %" in page and "54.5 %" in page and "pairs.py:4" in page and "3…64" in page
        assert "left out" not in page and "waited for values" not in page
    tuning.make = plain_library  # whose rule is none
    # Samples that decide between buckets, and have more of them than are drawn.
    shown = tuple((at, 1, at % 2, 1 + at % 3) for at in range(MAX_SHOWN))
    other = submit_model(database, replace(pair_program("other"), shown=shown), force=True)
    assert work(database, other, tmp_path) == 0
    page = get(f"/jobs/{other}")
    assert page.count("<circle") == MAX_SHOWN and page.count("<line") == MAX_SHOWN - 1
    assert "left out" in page and "waited for values" in page and "Which numbers of rows" not in page
    database.dispose()
