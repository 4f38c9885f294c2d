"""Well-formed reports of any size, and jobs that published them: nothing is tuned or compiled."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from small_libraries import spec_data, with_manifest

from dietcode.protocol import JobState
from dietcode.workload.parse import spec_from_data
from dietcode_server.store import comparisons, jobs, libraries
from dietcode_server.store.comparisons import Compared
from dietcode_server.store.database import Database
from dietcode_server.store.subjects import utc_now

TARGET = {"kind": "llvm", "mcpu": "a-test", "num_cores": 4}
FLOPS = 2e6


def report_data(
    shapes: Sequence[dict[str, int]], num_kernels: int = 4, num_chosen: int = 3, seed: int = 0
) -> dict[str, Any]:
    """A report: instances go to the fastest of the chosen micro-kernels, their throughput is made up.

    Parameters
    ----------
    shapes : sequence of dict
        Values of the shape variables, one for each instance.
    """
    rng = np.random.default_rng(seed)
    names = [f"{1 + at % 30}x{16 * (1 + at // 30)}" for at in range(num_kernels)]
    # Each is fastest around a place of its own, so that categories come in runs.
    position = np.linspace(0, 1, len(shapes))[:, None] * 6 % 1
    home = rng.permutation(num_kernels)[None] / num_kernels
    rates = 300.0 - 200.0 * np.abs(position - home) + rng.uniform(0, 4, (len(shapes), num_kernels))
    chosen = np.arange(num_chosen)
    category = rates[:, chosen].argmax(axis=1)
    rows = [_instance(shape, at, rates[at], int(category[at]), names) for at, shape in enumerate(shapes)]
    prefers = np.bincount(rates.argmax(axis=1), minlength=num_kernels)
    serves = np.bincount(category, minlength=num_kernels)
    tiles = list(range(1, 17))
    return {
        "format": "dietcode-report/1",
        "name": "made-up",
        "device": {"id": "d1", "name": "a test", "target": TARGET},
        "target": TARGET,
        "calibration": {
            "kappa": 0.9,
            "num_tiles": tiles,
            "tile_gflops": [n / (0.005 + 0.025 * (0.1 * n + 0.9 * -(-n // 4) * 4)) for n in tiles],
            "reference_secs": 1e-4,
        },
        "problem": {"batch": [], "rows": ["m"], "columns": ["n"], "reduction": ["k"]},
        "rounds": [{"number": 1, "stop": None}, {"number": 2, "stop": "trials"}],
        "seed": {"tile": [4, 32], "best_gflops": 1.0, "trials": 0},
        "fixed_bytes": 30_000,
        "space": {"measured": num_kernels, "failed": [], "pruned": []},
        "selection": {
            "num_votes": 1,
            "micro_kernels": names[:num_chosen],
            "num_free_choice": num_kernels,
            "kernel_bytes": 4000 * num_chosen,
            "loss_mean": 0.01,
            "loss_worst": 0.04,
            "objective_met": True,
            "reason": "",
            "curve": [_point(size, num_chosen) for size in range(1, num_kernels + 1)],
        },
        "rule": {"num_leaves": 2, "depth": 1, "loss_mean": 0.0, "loss_worst": 0.0, "unseen": None},
        "micro_kernels": [
            {
                "micro_kernel": name,
                "rows": 1 + at % 30,
                "columns": 16 * (1 + at // 30),
                "tails": "local",
                "provenance": "hardware" if at % 2 else "expansion",
                "bytes": 4000,
                "object_bytes": 34_000,
                "num_readings": 1,
                "category": at if at < num_chosen else None,
                "instances_preferring": int(prefers[at]),
                "instances_served": int(serves[at]),
                "f_local": {"launch_secs": 0.0, "median_fit_error": 0.01, "measured_points": 2},
                # h follows from m, as in convolutions
                "points": [{"m": 100, "n": 100, "k": 100, "h": 49}] * 5,
                "secs": [FLOPS / (200e9 + at * 1e9)] * 5,
                "drift": 1.0,
            }
            for at, name in enumerate(names)
        ],
        "num_instances": len(rows),
        "instances_are_exhaustive": True,
        "instances": rows,
    }


def _instance(
    shape: dict[str, int], at: int, rates: Any, category: int, names: Sequence[str]
) -> dict[str, Any]:
    best, others = int(rates.argmax()), np.where(np.arange(len(rates)) == category, -np.inf, rates)
    f_pad, f_spatial = 1.0 / (1.0 + at % 5 / 20), 1.0 / (1.0 + at % 3 / 10)
    facts = {
        "shape_vars": shape,
        "weight": 1.0,
        "category": category,
        "micro_kernel": names[category],
        "flops": FLOPS,
        "f_local": float(rates[category] / f_pad / f_spatial * 1e9),
        "f_local_is": "predicted from measured waves",
        "f_spatial": f_spatial,
        "f_pad": f_pad,
        "padding_ratio": 1.0 / f_pad,
        "imbalance": 1.0 / f_spatial,
        "waves": 0.25 * (1 + at),
        "predicted_gflops": float(rates[category]),
        "best_micro_kernel": names[best],
        "best_predicted_gflops": float(rates[best]),
        "predicted_loss": float(1.0 - rates[category] / rates[best]),
    }
    if len(names) > 1:
        other = int(others.argmax())
        facts |= {"other_micro_kernel": names[other], "other_predicted_gflops": float(others[other])}
    return facts


def _point(size: int, num_chosen: int) -> dict[str, Any]:
    loss = 0.01 * num_chosen / size if size > 1 else 0.2
    return {
        "origin": "votes",
        "num_votes": 1,
        "trimmed": False,
        "chosen": list(range(size)),
        "loss_mean": loss,
        "loss_worst": min(1.0, 4 * loss),
        "num_kernels": size,
        "num_bytes": 30_000 + 4000 * size,
    }


def compared(at: int, rate: float, disturbed: str | None) -> Compared:
    """One instance beside a vendor.

    Parameters
    ----------
    at : int
        Its position.
    rate : float
        What is predicted of it.
    disturbed : str or None
        What else ran: then the vendor is a hundred times slower.
    """
    vendor = rate * (0.005 if disturbed else 0.5)
    row = Compared(at, 0.95 * rate, {"onednn": vendor}, "onednn", vendor, 1e-6, utc_now(), 0.9 * rate)
    roof = 2 * row.measured_gflops
    return replace(row, spread=1.04, disturbed=disturbed, peak_gflops=400.0, roof_gflops=roof)


def publish_job(
    database: Database,
    name: str,
    report: dict[str, Any],
    measured: Sequence[int] = (),
    disturbed: Sequence[int] = (),
    **changes: Any,
) -> str:
    """A job that succeeded with this report; its id.

    Parameters
    ----------
    measured : sequence of int
        Positions that were compared with a vendor: 0.95 of the prediction against 0.5 of it.
    disturbed : sequence of int
        Those of them at which the vendor had a hundredth of that, since something else ran.
    **changes
        Fields of its spec.
    """
    variables = list(report["instances"][0]["shape_vars"])
    ranges = {v: {"values": sorted({r["shape_vars"][v] for r in report["instances"]})} for v in variables}
    data = spec_data(name, shape_vars=ranges, dims={"m": "+".join(variables), "n": 64, "k": 48}, **changes)
    spec = spec_from_data(data)
    dispatch = {
        "categories": [
            {"category": row["category"], "micro_kernel": row["micro_kernel"]}
            for row in report["micro_kernels"]
            if row["category"] is not None
        ],
        "rule": {"root": {"category": 0}},
    }
    files = {
        "library.so": f"code of {name}".encode() * 100,
        "dispatch.json": json.dumps(dispatch).encode(),
        "report.json": json.dumps(report).encode(),
    }
    orders = {"variable_order": variables, "tensor_order": list(data["tensors"])}
    files = with_manifest(files, name, workload=spec.to_json(), **orders)
    with database.write() as session:
        row, _ = jobs.submit(
            session,
            spec=spec,
            target=TARGET,
            device=("d1", "a test", TARGET),
            runnable=False,
            force=True,
            idempotency_key=None,
        )
        jobs.request_cancel(session, row.id)
        jobs.resume(session, row.id, runnable=True)
        assert jobs.claim(session, row.id, "a test")
        library = libraries.publish(session, job=row, device_name="a test", files=files)
        assert jobs.finish(session, row.id, JobState.SUCCEEDED, library_id=library.id, runner="a test")
        rates = [report["instances"][at]["predicted_gflops"] for at in measured]
        comparisons.keep(
            session,
            library.id,
            [
                compared(at, rate, "other processes kept 2.0 of its cores busy" if at in disturbed else None)
                for at, rate in zip(measured, rates, strict=True)
            ],
        )
        return row.id
