"""What tests say that need what may not be installed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys

import pytest

from dietcode.target.nvrtc import missing_packages

_EXTRA = "needs the extra "
RAY_AUTH = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef0123456789abcdef"}


def import_ray_with_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Import Ray, which reads the mode and the token once a process, as tests of clusters need it later."""
    for name, value in RAY_AUTH.items():
        monkeypatch.setenv(name, value)
    pytest.importorskip("ray", reason=of_extra("ray"))


def of_extra(extra: str) -> str:
    """The reason of a test that is skipped because an extra is not installed."""
    return f"{_EXTRA}{extra}"


def extra_of(reason: str) -> str | None:
    """The extra that would run a test skipped for `reason`; None where it is something else."""
    return reason.partition(_EXTRA)[2].partition(" ")[0] or None


needs_nvrtc = pytest.mark.skipif(bool(missing_packages()), reason=of_extra("cuda"))
needs_emulated_driver = pytest.mark.skipif(
    sys.platform != "linux", reason="the emulated driver is a library of Linux"
)


def needs_torch(release: str, why: str) -> pytest.MarkDecorator:
    """Skip a test with a PyTorch before a release, as ``2.11``, because of a defect of that one."""
    found = importlib.metadata.version("torch") if importlib.util.find_spec("torch") else release
    number, least = ([int(one) for one in text.split(".")[:2]] for text in (found, release))
    return pytest.mark.skipif(number < least, reason=f"PyTorch before {release}: {why}")


ODD_WINDOWS = "its export asserts that windows with pads have odd sizes, as its example has"
