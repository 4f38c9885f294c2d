"""Which schedules of a recursion were tried, in the words that reports, the command line and pages have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class ScheduleRow(NamedTuple):
    """A schedule that was tried.

    Attributes
    ----------
    schedule : str
        Its name, and whether it is the one that is kept.
    time : str
        Of a call over samples.
    multiplications : str
        Of that call.
    kernels : str
        Of each level.
    """

    schedule: str
    time: str
    multiplications: str
    kernels: str

    @property
    def text(self) -> str:
        """The row as one line."""
        return f"{self.schedule}: {self.time}, {self.multiplications}, {self.kernels}"


def schedule_rows(report: Mapping[str, Any]) -> list[ScheduleRow]:
    """Return the schedules of a recursion's report, in its order; none where there was one alone.

    Parameters
    ----------
    report : mapping
        Or the facts of a plan.
    """
    return [
        ScheduleRow(
            f"{row['schedule']}, kept" if row["schedule"] == report["schedule"] else str(row["schedule"]),
            "not timed" if row["secs"] is None else f"{1e3 * row['secs']:.3g} ms",
            f"{row['multiply_adds']} multiplications on samples",
            f"{row['kernels']} kernels a level",
        )
        for row in report.get("schedules", ())
    ]
