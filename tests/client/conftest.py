"""A running wire server, and commands in this process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from wire_server import WireServer, running

from dietcode.cli import main


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Iterator[WireServer]:
    """A server that `DIETCODE_SERVER` names; tries follow each other without the usual pause."""
    monkeypatch.setattr("dietcode.client.blobs._FIRST_DELAY_SECS", 0.001)
    monkeypatch.setattr("dietcode.client.events._FIRST_DELAY_SECS", 0.02)
    monkeypatch.setattr("dietcode.client.client.PEEK_SECS", 0.2)
    monkeypatch.delenv("DIETCODE_TOKEN", raising=False)
    with running(WireServer()) as server:
        monkeypatch.setenv("DIETCODE_SERVER", server.url)
        yield server


@pytest.fixture
def command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return what `dietcode` does, in this process."""

    def call(*arguments: object) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["dietcode", *map(str, arguments)])
        capsys.readouterr()
        status: Any = 0
        try:
            main()
        except SystemExit as stop:
            status = stop.code or 0
        return subprocess.CompletedProcess([], status, *capsys.readouterr())

    return call
