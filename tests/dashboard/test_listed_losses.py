"""Where a library loses, against what: sorted, the worst first, with the vendor's path."""

from __future__ import annotations

from typing import Any

from published import report_data
from small_libraries import spec_data

from dietcode_server.dashboard.losses import MAX_SHOWN, losses_of
from dietcode_server.dashboard.reports import read_report
from dietcode_server.store.subjects import utc_now
from dietcode_server.store.tables import ComparisonRow

_SHAPES = [{"M": m, "N": n} for m in range(1, 7) for n in (16, 32, 64)]


def _report() -> Any:
    manifest = {"variable_order": ["M", "N"], "workload": spec_data()}
    return read_report(report_data(_SHAPES), manifest, "sha256:0")


def _row(position: int, measured: float, vendor: float | None, **changes: Any) -> ComparisonRow:
    facts = {
        "library_id": 1,
        "position": position,
        "measured_gflops": measured,
        "vendors": {},
        "vendor": "mkl-eager" if position % 2 else "onednn",
        "vendor_gflops": vendor,
        "max_rel_error": 0.0,
        "measured_at": utc_now(),
        "spread": 1.02,
    }
    return ComparisonRow(**facts | changes)


def test_the_worst_comes_first_with_shape_kernel_and_path() -> None:
    report = _report()
    rows = [_row(0, 100.0, 50.0), _row(4, 30.0, 60.0, roof_gflops=120.0), _row(7, 90.0, 100.0)]
    found = losses_of(report, rows)
    assert found is not None and (found.num_slower, found.num_compared) == (2, 3)
    assert [round(one.ratio, 2) for one in found.shown] == [0.5, 0.9, 2.0]
    assert [one.shape for one in found.shown] == ["M = 2, N = 32", "M = 3, N = 32", "M = 1, N = 16"]
    assert [one.vendor for one in found.shown] == ["onednn", "mkl-eager", "onednn"]
    assert [one.micro_kernel for one in found.shown] == [report.kernel_of(at) for at in (4, 7, 0)]
    assert [one.of_roof for one in found.shown] == [0.25, None, None]


def test_only_the_first_are_shown_and_all_are_counted() -> None:
    rows = [_row(at, 10.0 + at, 100.0) for at in range(len(_SHAPES))]
    found = losses_of(_report(), rows)
    assert found is not None and len(found.shown) == MAX_SHOWN < found.num_compared == len(_SHAPES)
    assert found.shown[0].shape == "M = 1, N = 16" and found.num_slower == len(_SHAPES)


def test_instances_without_a_vendor_or_without_an_instance_are_no_losses() -> None:
    assert losses_of(_report(), []) is None
    assert losses_of(_report(), [_row(0, 5.0, None), _row(999, 5.0, 10.0)]) is None
