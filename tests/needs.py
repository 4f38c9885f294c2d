"""Marks of tests that need what may not be installed."""

from __future__ import annotations

import pytest

from dietcode.target.nvrtc import missing_packages

needs_nvrtc = pytest.mark.skipif(bool(missing_packages()), reason=f"needs {' '.join(missing_packages())}")
