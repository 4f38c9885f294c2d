"""``dietcode key``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dietcode.trust.keys import SigningKey

Command = Callable[..., Any]


def test_list_rotate_revoke(inside: Command, tmp_path: Path) -> None:
    first = inside("key", "list", "--data-dir", tmp_path)
    assert first.returncode == 0 and "current, since" in first.stdout
    old = first.stdout.split()[0]
    done = inside("key", "rotate", "--data-dir", tmp_path)
    new = done.stdout.strip()
    assert done.returncode == 0 and old in done.stderr and new != old
    refused = inside("key", "revoke", new, "--data-dir", tmp_path)
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1
    assert inside("key", "revoke", old, "--data-dir", tmp_path).returncode == 0
    facts = json.loads(inside("key", "list", "--json", "--data-dir", tmp_path).stdout)
    assert facts["current"] == new and facts["rotations"] == []
    assert {key["fingerprint"]: key["state"] for key in facts["keys"]} == {old: "revoked", new: "current"}
    assert inside("key", "list", "--data-dir", tmp_path).stdout.startswith(new)


def test_a_key_of_the_operator(inside: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("1.pem", "2.pem"):
        (tmp_path / name).write_bytes(SigningKey.generate().pem)
        (tmp_path / name).chmod(0o600)
    monkeypatch.setenv("DIETCODE_SERVE_SIGNING_KEY", str(tmp_path / "1.pem"))
    assert inside("key", "rotate", "--data-dir", tmp_path).returncode == 2
    done = inside("key", "rotate", "--to", tmp_path / "2.pem", "--data-dir", tmp_path)
    assert done.returncode == 0, done
    monkeypatch.setenv("DIETCODE_SERVE_SIGNING_KEY", str(tmp_path / "2.pem"))
    assert done.stdout.strip() in inside("key", "list", "--data-dir", tmp_path).stdout
