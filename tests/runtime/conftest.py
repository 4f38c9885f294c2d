"""Both ways of a short call: in C, and in Python, which is its reference and stands in for it."""

from __future__ import annotations

import pytest

from dietcode.runtime import compiled
from dietcode.runtime.compile_launcher import python_headers


@pytest.fixture(params=["compiled", "python"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The way that libraries go which are loaded in this test."""
    if request.param == "python":
        monkeypatch.setattr(compiled, "CompiledCall", None)
    elif python_headers() is None:
        pytest.skip("this machine's Python has no headers: calls stay in Python")
    else:
        assert compiled.CompiledCall is not None, "run python -m dietcode.runtime.compile_launcher"
    return str(request.param)
