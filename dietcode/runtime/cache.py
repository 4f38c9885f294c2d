"""Where DietCode keeps what can be made again: blobs, tuning records, locks."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def cache_dir() -> Path:
    """``$DIETCODE_CACHE``, or the user's cache folder."""
    given = os.environ.get("DIETCODE_CACHE")
    return Path(given).expanduser() if given else Path(platformdirs.user_cache_dir("dietcode"))
