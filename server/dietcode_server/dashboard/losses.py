"""Where a library loses, and against what: instances that were compared, the worst first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dietcode_server.dashboard.reports import Report
from dietcode_server.store.tables import ComparisonRow

MAX_SHOWN = 8


@dataclass(frozen=True)
class AgainstVendor:
    """One instance beside the vendor's fastest kernel; rates in GFLOP/s.

    Attributes
    ----------
    shape : str
        Values of the shape variables, ``T = 37``.
    vendor : str
        The name of the vendor's path that was the fastest there.
    ratio : float
        Measured over the vendor's: below 1 the library is slower.
    of_roof : float or None
        Measured over the roofline; None where that is not known.
    spread : float or None
        The largest median of repeats over their fastest: 1 where all agree.
    """

    shape: str
    micro_kernel: str
    measured_gflops: float
    vendor: str
    vendor_gflops: float
    ratio: float
    of_roof: float | None
    spread: float | None


@dataclass(frozen=True)
class Losses:
    """What was compared, the worst first.

    Attributes
    ----------
    shown : list of AgainstVendor
        The first `MAX_SHOWN` of them.
    num_slower, num_compared : int
        Instances at which the vendor is faster, and all that were compared.
    """

    shown: list[AgainstVendor]
    num_slower: int
    num_compared: int


def losses_of(report: Report, compared: Sequence[ComparisonRow]) -> Losses | None:
    """Return where a library does worst; None where nothing was compared.

    Parameters
    ----------
    compared : sequence of ComparisonRow
        Those that nothing disturbed.
    """
    rows = [row for row in compared if row.vendor_gflops and row.position < len(report)]
    ratios = {row.position: row.measured_gflops / (row.vendor_gflops or 1.0) for row in rows}
    rows.sort(key=lambda row: ratios[row.position])
    shown = [
        AgainstVendor(
            ", ".join(
                f"{name} = {value}"
                for name, value in zip(report.variables, report.shapes[row.position].tolist(), strict=True)
            ),
            report.kernel_of(row.position),
            row.measured_gflops,
            row.vendor or "",
            row.vendor_gflops or 0.0,
            ratios[row.position],
            row.measured_gflops / row.roof_gflops if row.roof_gflops else None,
            row.spread,
        )
        for row in rows[:MAX_SHOWN]
    ]
    return Losses(shown, sum(ratio < 1.0 for ratio in ratios.values()), len(rows)) if rows else None
