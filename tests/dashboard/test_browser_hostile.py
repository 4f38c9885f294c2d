"""Texts of strangers' models, recursions and programs in a real browser: shown as text on every page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_tuning import FakeTuning, submit_model, work
from hostile_models import KINDS, request_of, with_markup
from needs import of_extra
from served import Served
from small_recursions import two_categories

from dietcode.graph.model_request import model_from_data
from dietcode_server.store.database import Database

pytest.importorskip("playwright.sync_api", reason=of_extra("browser"))


SHOWN = {"graph": 0, "recursion": 0, "program": 2}  # pages that show some of these texts


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Where nothing is tuned."""
    made = Served(tmp_path_factory.mktemp("hostile"))
    yield made
    made.close()


@pytest.mark.thorough
@pytest.mark.parametrize(  # of the other kinds no page shows any
    "kind", [kind if SHOWN[kind] else pytest.param(kind, marks=pytest.mark.long) for kind in KINDS]
)
def test_texts_of_a_model_are_text(
    page: Any, server: Served, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's policy and the console are watched too: nothing was blocked, since nothing was tried."""
    data, count = with_markup(request_of(kind, f"hostile-{kind}"))
    assert count >= 3
    tuning = FakeTuning(two_categories)
    tuning.install(monkeypatch.setattr)
    database = Database(f"sqlite:///{server.folder / 'data' / 'dietcode.db'}")
    try:
        job_id = submit_model(database, model_from_data(data).content)
        assert work(database, job_id, tmp_path) == 0, server.client.job(job_id).error
    finally:
        database.dispose()
    library = server.client.job(job_id).library
    shown = 0
    pages = (f"/jobs/{job_id}", f"/libraries/{library.name}/{library.version}", "/", "/libraries")
    for path in pages:
        page.goto(path)
        assert page.locator("img[src=x]").count() == 0
        content = page.content()
        assert "{{7*7}}" in content or "&lt;img" not in content  # no template ran it
        shown += "onerror" in content
    assert shown == SHOWN[kind]
