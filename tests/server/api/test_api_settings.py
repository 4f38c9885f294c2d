"""The server's settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from dietcode.cli.serve import serve
from dietcode.errors import RequestError
from dietcode_server.settings import ENV_PREFIX, Settings, load_settings


def test_options_go_before_the_environment_before_defaults(monkeypatch, tmp_path):
    monkeypatch.setenv("DIETCODE_SERVE_PORT", "9000")
    monkeypatch.setenv("DIETCODE_SERVE_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("DIETCODE_SERVE_MAX_BODY_BYTES", "")
    monkeypatch.setenv("DIETCODE_SERVE_ALLOWED_HOSTS", "a.example, b.example,")
    settings = load_settings(port=9001, host=None, data_dir=None)
    assert (settings.port, settings.host, settings.data_dir) == (9001, "127.0.0.1", tmp_path)
    assert settings.max_body_bytes == 1 << 20
    assert settings.allowed_hosts == ("a.example", "b.example")
    assert load_settings().port == 9000


def test_the_variable_of_the_client_is_no_setting(monkeypatch):
    monkeypatch.setenv("DIETCODE_SERVER", "http://elsewhere")
    assert load_settings() == load_settings()
    assert not "DIETCODE_SERVER".startswith(ENV_PREFIX)


def test_every_setting_is_described():
    for name, field in Settings.model_fields.items():
        assert field.description, name


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PORT", "x"),
        ("PORT", "65536"),
        ("HEARTBEAT_SECS", "0"),
        ("MAX_BODY_BYTES", "-1"),
        ("COMPARE", "cublas"),
        ("LOST_AFTER_SECS", ""),
    ],
)
def test_a_refused_setting_is_named(monkeypatch, variable, value):
    monkeypatch.setenv(ENV_PREFIX + variable, value)
    if value == "":
        assert load_settings().lost_after_secs == 15.0
        return
    with pytest.raises(RequestError, match=f"^{ENV_PREFIX}{variable}: ") as caught:
        load_settings()
    assert "\n" not in str(caught.value)


def test_a_folder_that_no_database_url_can_name_is_refused(tmp_path: Path):
    with pytest.raises(RequestError, match=r"^--data-dir: .*question mark"):
        load_settings(data_dir=tmp_path / "q?x")


def test_a_refused_option_is_named():
    with pytest.raises(RequestError, match=r"^--port: "):
        load_settings(port=-1)


@pytest.mark.parametrize("name", ["plain", "a b", "x=1#y", "100%25", "ü"])
def test_the_default_database_lies_in_the_data_folder(tmp_path: Path, name):
    from dietcode_server.store.database import Database

    folder = tmp_path / name
    folder.mkdir()
    database = Database(Settings(data_dir=folder).database)
    database.upgrade()
    database.dispose()
    assert (folder / "dietcode.db").is_file()
    assert Settings(database_url="postgresql+psycopg://x/y").database == "postgresql+psycopg://x/y"


def test_serve_takes_the_database_as_the_other_commands_do(monkeypatch):
    started: list[Settings] = []
    monkeypatch.setattr("dietcode_server.run.run", started.append)
    serve(database_url="postgresql+psycopg://me@host/name", no_jobs=True)
    assert started[0].database == "postgresql+psycopg://me@host/name" and not started[0].jobs
