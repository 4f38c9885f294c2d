"""The real application in this process, over a real database; only the engine is left out."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from plain_server import NoTargets
from starlette.testclient import TestClient

from dietcode_server.app import create_app
from dietcode_server.engine.targets import Targets
from dietcode_server.settings import Settings
from dietcode_server.store.database import Database

URL = "http://127.0.0.1:8000"
HOSTILE = "<script>alert('x')</script>\"&'>{{ 7*7 }}"


class _Supervisor:
    def wake(self) -> None:
        pass

    def healthy(self) -> bool:
        return True


class MadeApp:
    """An application and what it works with."""

    def __init__(self, folder: Path, targets: Targets | None = None, **settings: Any) -> None:
        self.settings = Settings(data_dir=folder, **settings)
        self.database = Database(self.settings.database)
        self.database.upgrade()
        app = create_app(self.database, self.settings, _Supervisor(), targets or NoTargets())
        self.client = TestClient(app, base_url=URL)

    def page(self, path: str, status: int = 200, **options: Any) -> str:
        """The HTML of a page; checks that nothing of it is inline."""
        found = self.client.get(path, headers={"accept": "text/html"}, **options)
        assert found.status_code == status, found.text
        for inline in (" style=", "onclick", "javascript:", "<style"):
            assert inline not in found.text
        assert "unsafe" not in found.headers["content-security-policy"]
        return found.text


@contextmanager
def opened(folder: Path, targets: Targets | None = None, **settings: Any) -> Iterator[MadeApp]:
    """An application, closed at the end."""
    made = MadeApp(folder, targets, **settings)
    yield made
    made.database.dispose()


def text_of(markup: str) -> str:
    """What a person reads of a page, on one line."""
    apart = re.sub(r"</(d[dt]|div|h[1-6]|li|p|t[dh])>|<br>", " ", markup)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", apart)).split())


def code_of(markup: str) -> list[str]:
    """Texts that a page offers to copy."""
    found = re.findall(r'<div class="copy"><pre[^>]*><code>(.*?)</code>', markup, re.DOTALL)
    return [html.unescape(each) for each in found]
