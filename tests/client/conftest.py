"""A running wire server, and commands in this process."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import pytest
from wire_server import WireServer, running

from dietcode.trust.pins import PinnedKey, Pins, ServerPins


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Iterator[WireServer]:
    """A server that `DIETCODE_SERVER` names, whose key is trusted; tries follow each other at once."""
    monkeypatch.setattr("dietcode.client.blobs._FIRST_DELAY_SECS", 0.001)
    monkeypatch.setattr("dietcode.client.events._FIRST_DELAY_SECS", 0.02)
    monkeypatch.setattr("dietcode.client.client.PEEK_SECS", 0.2)
    monkeypatch.delenv("DIETCODE_TOKEN", raising=False)
    with running(WireServer()) as server:
        monkeypatch.setenv("DIETCODE_SERVER", server.url)
        with Pins().changing() as trusted:
            pin = PinnedKey(fingerprint=server.fingerprint, public_key=server.public_pem, how="given")
            trusted.servers = {server.url: ServerPins(keys=[pin])}
        yield server


@pytest.fixture
def command(
    inside: Callable[..., subprocess.CompletedProcess[str]],
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return what `dietcode` does when `DIETCODE_SERVER` may name the wire server."""
    return inside
