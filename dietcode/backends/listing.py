"""The generated code of a library's micro-kernels, as text for people."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from dietcode.backends.table import BACKENDS


def listings(report: Mapping[str, Any], secs: float = 2.0) -> dict[str, tuple[str, str]]:
    """Return language and text of the code of each measured micro-kernel, by name.

    Parameters
    ----------
    report : mapping
        Of a library.
    secs : float
        Once so much time has passed no further one is begun: the chosen ones come first, then those that most
        instances would have preferred.

    Returns
    -------
    dict of str to (str, str)
        As `Backend.code_of` has them.
    """
    until = time.monotonic() + secs
    language, write = BACKENDS[report["target"]["kind"]].code_of(report)
    rows = sorted(
        report["micro_kernels"],
        key=lambda row: (row["category"] is None, -row.get("instances_preferring", 0)),
    )
    found: dict[str, tuple[str, str]] = {}
    for row in rows:
        if time.monotonic() > until:
            break
        found[row["micro_kernel"]] = language, write(row)
    return found
