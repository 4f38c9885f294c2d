"""The measured speed of a library, beside the vendor's kernels."""

from __future__ import annotations

from datetime import datetime

from dietcode.protocol.models import ProtocolModel


class ComparedInstance(ProtocolModel):
    """One instance of a library, measured when the library was built; rates in GFLOP/s.

    Attributes
    ----------
    position : int
        Of the instance in the library's report, from 0.
    category : int
        Of the micro-kernel that serves it.
    vendors : dict of str to float
        Each path of the vendor; empty where it has no kernel for the operator.
    vendor, vendor_gflops : str, float or None
        The fastest of them.
    company_gflops, vendor_company_gflops : float or None
        Of the library and of that path where their calls alternate, as in a program that uses both.
    max_rel_error : float
        Largest error against float64, a fraction of the output's largest value.
    spread : float or None
        The largest median of repeats over their fastest.
    disturbed : str or None
        Why the rates must not become figures: what else ran while they were measured; None where they may.
    peak_gflops, roof_gflops : float or None
        What the cores gave at most beside it, of multiply-adds in float32, and the roofline at the instance:
        the lower of the peak and of what reading its tensors once allows.
    """

    position: int
    shape_vars: dict[str, int]
    category: int
    predicted_gflops: float
    measured_gflops: float
    vendor: str | None = None
    vendor_gflops: float | None = None
    vendors: dict[str, float]
    company_gflops: float | None = None
    vendor_company_gflops: float | None = None
    max_rel_error: float
    spread: float | None = None
    disturbed: str | None = None
    peak_gflops: float | None = None
    roof_gflops: float | None = None
    measured_at: datetime


class LibraryComparison(ProtocolModel):
    """The measured speed of a version; no instances where nothing was measured.

    Attributes
    ----------
    instances : list of ComparedInstance
        At most 16, spread over the range, in the order of the report.
    """

    name: str
    version: int
    instances: list[ComparedInstance]
