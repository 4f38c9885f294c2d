"""Data of a result's charts: columns as compact JSON, the same bytes forever for one library."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from fastapi import Request, Response

from dietcode._version import __version__
from dietcode_server.api.ranges import etag, is_known
from dietcode_server.dashboard.curves import Fit, fit_of, trade_off
from dietcode_server.dashboard.reports import FloatArray, Report
from dietcode_server.store.tables import ComparisonRow

_FORMAT = 3  # of the JSON; part of its address, since browsers keep it forever
_DIGITS = 4
_LEVEL = 6
_DRAWN = ("f_local", "f_spatial", "f_pad", "waves", "predicted", "best", "other")


def version_of(report: Report, compared: Sequence[ComparisonRow]) -> str:
    """Return the version in the address of the JSON, which changes with its content."""
    stamp = max((row.measured_at.isoformat() for row in compared), default="")
    text = f"{_FORMAT} {__version__} {report.digest} {len(compared)} {stamp}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def chart_data(report: Report, compared: Sequence[ComparisonRow]) -> dict[str, Any]:
    """Columns of all instances, of what was measured, and the two curves; rates in GFLOP/s."""
    points, fit = trade_off(report), fit_of(report)
    return {
        "variables": list(report.variables),
        "shapes": [column.tolist() for column in report.shapes.T],
        "kernels": list(report.names),
        "serves": report.serves.tolist(),
        "slots": report.slots,
        "category": report.category.tolist(),
        "prefers": report.prefers.tolist(),
        "runnerUp": report.runner_up.tolist(),
        **{name: short(report.columns[name]) for name in _DRAWN},
        "compared": {
            "position": [row.position for row in compared],
            "measured": [_rounded(row.measured_gflops) for row in compared],
            "vendor": [_rounded(row.vendor_gflops) for row in compared],
            "vendorName": [row.vendor for row in compared],
            "disturbed": [row.disturbed for row in compared],
            "roof": [_rounded(row.roof_gflops) for row in compared],
        },
        "tradeOff": [
            {
                "bytes": point.num_bytes,
                "mean": _rounded(point.loss_mean),
                "worst": _rounded(point.loss_worst),
                "kernels": point.num_kernels,
                "best": point.is_best,
                "chosen": point.is_chosen,
            }
            for point in points
        ],
        "fit": None if fit is None else _fit(fit),
    }


def _fit(fit: Fit) -> dict[str, Any]:
    return {
        "kappa": _rounded(fit.kappa),
        "slots": fit.slots,
        "full": _rounded(fit.full_gflops),
        "tiles": [int(n) for n in fit.num_tiles],
        "measured": short(fit.measured),
        "spatial": short(fit.f_spatial),
        "withLaunch": short(fit.with_launch),
    }


def short(values: FloatArray) -> list[float | None]:
    """Numbers of few digits, which is what a chart shows; None for those that are not known."""
    known = np.isfinite(values)
    safe = np.where(known & (values != 0), np.abs(values), 1.0)
    scale = 10.0 ** (_DIGITS - 1 - np.floor(np.log10(safe)))
    rounded = np.where(known, np.round(np.where(known, values, 0.0) * scale) / scale, 0.0)
    if known.all():
        found: list[float | None] = rounded.tolist()
        return found
    return [value if is_known else None for value, is_known in zip(rounded.tolist(), known, strict=True)]


def _rounded(value: float | None) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.6g}")


def fixed_json(request: Request, version: str, make: Callable[[], dict[str, Any]]) -> Response:
    """Compressed JSON that a browser keeps forever where its address says, by ``v``, which it is."""
    is_fixed = request.query_params.get("v") == version
    headers = {
        "ETag": etag(version),
        "Cache-Control": "private, max-age=31536000, immutable" if is_fixed else "private, no-cache",
        "Vary": "Accept-Encoding",
    }
    if is_known(request.headers, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    text = json.dumps(make(), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    data = text.encode()
    if "gzip" in request.headers.get("accept-encoding", ""):
        data = gzip.compress(data, _LEVEL, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return Response(data, media_type="application/json", headers=headers)
