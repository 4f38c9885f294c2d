"""What the end of a run says of the tests that were skipped."""

from __future__ import annotations

from collections import Counter
from typing import Any

from needs import extra_of


def say_skips(terminalreporter: Any) -> None:
    """Say why tests were skipped: a line for each reason with how many, and what would run them."""
    counts: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        _, _, said = report.longrepr
        counts[said.removeprefix("Skipped: ")] += 1
    if not counts:
        return
    terminalreporter.section("skipped; a file that needs an extra as a whole counts once", sep="-")
    for reason, skipped in counts.most_common():
        extra = extra_of(reason)
        runs = "" if extra is None else f": make test EXTRAS=server,dev,{extra}"
        terminalreporter.write_line(f"{skipped:>6}  {reason}{runs}")
