"""``docs/service.md`` names everything there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from small_libraries import ROOT

from dietcode.protocol import JobState
from dietcode_server.api.app import create_app
from dietcode_server.api.settings import ENV_PREFIX, Settings
from dietcode_server.store.database import Database
from dietcode_server.store.tables import Base

TEXT = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_every_setting_is_there_with_its_default(name: str) -> None:
    (row,) = re.findall(rf"^\| `{ENV_PREFIX}{name.upper()}` \| (.*?) \|", TEXT, re.MULTILINE)
    default = Settings.model_fields[name].default
    if isinstance(default, str | int | float) and default != "":
        assert row == f"`{default}`"


@pytest.mark.parametrize("state", list(JobState))
def test_every_state_is_there(state: JobState) -> None:
    assert re.search(rf"^\| `{state.value}` \|", TEXT, re.MULTILINE)


@pytest.mark.parametrize("table", sorted(Base.metadata.tables))
def test_every_table_is_there(table: str) -> None:
    assert f"`{table}`" in TEXT


def as_written(path: str) -> str:
    path = path.removeprefix("/api/v1").replace("{job_id}", "{id}")
    return path.replace("/{digest}", "/sha256:{digest}")


def test_every_route_is_there(tmp_path: Path) -> None:
    class Idle:
        def wake(self) -> None:
            """Nothing runs here."""

        def healthy(self) -> bool:
            return True

    app = create_app(Database(f"sqlite:///{tmp_path / 'x.db'}"), Settings(data_dir=tmp_path), Idle())
    routes = {
        f"{method.upper()} {as_written(path)}"
        for path, methods in app.openapi()["paths"].items()
        for method in methods
        if path.startswith("/api/v1")
    }
    assert len(routes) > 8
    missing = [route for route in routes if f"`{route}`" not in TEXT and not route.startswith("HEAD ")]
    assert missing == []
