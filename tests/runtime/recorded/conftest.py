"""These tests need PyTorch, and the recorder, which needs Python's headers."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") and find_spec("dietcode.runtime.recorder") else ["test_*.py"]
