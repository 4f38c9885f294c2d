"""The database's password from a file: what compose's secrets are."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import make_url

from dietcode.errors import RequestError
from dietcode_server.settings import load_settings

URL = "postgresql+psycopg://dietcode@db.example:5432/dietcode?sslmode=require"


@pytest.mark.parametrize("password", ["plain", "p@ss:w/o?r#d%41", "ü", " space "])
def test_it_goes_into_the_url(tmp_path: Path, password: str) -> None:
    file = tmp_path / "password"
    file.write_text(password + "\n", encoding="utf-8")
    settings = load_settings(database_url=URL, database_password_file=file)
    parsed = make_url(settings.database)
    assert parsed.password == password
    assert make_url(URL).set(password=password) == parsed
    assert password not in repr(settings)


def test_it_is_read_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "password").write_text("secret")
    monkeypatch.setenv("DIETCODE_SERVE_DATABASE_URL", URL)
    monkeypatch.setenv("DIETCODE_SERVE_DATABASE_PASSWORD_FILE", str(tmp_path / "password"))
    assert make_url(load_settings().database).password == "secret"


@pytest.mark.parametrize(
    ("url", "content", "said"),
    [
        (URL, None, "cannot be read: No such file"),
        (URL, b"", "one line"),
        (URL, b"\n", "one line"),
        (URL, b"two\nlines", "one line"),
        (URL, b"\xff", "cannot be read"),
        ("postgresql+psycopg://a:b@c/d", b"x", "no password beside"),
        ("postgresql+psycopg://c/d", b"x", "a user"),
        ("sqlite:////tmp/x.db", b"x", "a user"),
        ("", b"x", "needs DIETCODE_SERVE_DATABASE_URL"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, url: str, content: bytes | None, said: str) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    settings = load_settings(database_url=url, database_password_file=file)
    with pytest.raises(RequestError, match=said) as caught:
        _ = settings.database
    message = str(caught.value)
    assert message.startswith("DIETCODE_SERVE_DATABASE_PASSWORD_FILE: ") and "\n" not in message
    assert "a:b" not in message
