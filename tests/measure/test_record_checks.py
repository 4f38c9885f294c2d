"""One bad line is named, whatever is wrong with it; nothing bad reaches the search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_records import CALIBRATION, SEED, measurement, records, spoil

from dietcode.errors import RecordsError
from dietcode.measure import checks
from dietcode.measure.calibration import reference_problem
from dietcode.measure.records import read_records, write_records
from dietcode.measure.store import RecordsFile
from dietcode.search_space.cpu.limits import MicroKernel
from dietcode.search_space.forms import problem_of
from dietcode.workload.parse import spec_from_data

ROUND: dict[str, Any] = {
    "number": 1,
    "message": "round 1",
    "stop": None,
    "gain": None,
    "promise": 0.5,
    "measured": ["6x16"],
    "pruned": [],
    "failed": [],
    "dropped": [],
    "model": {"missed": 0.1},
    "expansions": [{"shape": {"m": 5}, "cause": "padding", "served": 0.7, "micro_kernels": ["5x32"]}],
    "added": [{"rows": 5, "columns": 32, "tails": "local", "provenance": "expansion"}],
    "job": "0123456789abcdef",
}
EXPANSION, ADDED = ROUND["expansions"][0], ROUND["added"][0]

NO_NUMBERS = (float("nan"), float("inf"), 10**400, "1", True, None, [1])

CHANGES: dict[str, list[dict[str, Any]]] = {
    "calibration": [
        *({"kappa": value} for value in (*NO_NUMBERS, -0.1, 1.1)),
        *({"reference_secs": value} for value in (*NO_NUMBERS, 0, -1.0)),
        *({"reference_extents": {"m": 8, "n": 8, "k": value}} for value in (0, 1.5, "8", None, 1 << 27)),
        *({"reference_extents": value} for value in ({}, {"m": 8}, [8, 8, 8], None)),
        {"reference_extents": {"m": 8, "n": 8, "k": 8, "z": 8}},
        {"reference_extents": {"m": 1 << 14, "n": 1 << 14, "k": 1}},
        *({"num_tiles": value} for value in ([1, 1], [0, 1], [1.5, 2], [1], [True, 2], "12", None)),
        *({"tile_gflops": [1.0, value]} for value in (*NO_NUMBERS, 0.0)),
        {"tile_gflops": [1.0]},
        {"num_tiles": [1], "tile_gflops": [1.0]},
        *({"fmas_per_cycle": value} for value in (*NO_NUMBERS, 0.0, 1.5, 4.0)),
    ],
    "seed": [
        *({"tile": value} for value in ([6], [6, 16, 1], [0, 16], [6, 65537], [6.0, 16], "ab", None)),
        *({"trials": value} for value in (-1, 1.5, None, "8")),
        *({"best_gflops": value} for value in (float("nan"), "fast", -1.0)),
        {"from_workload": "sha256:0"},
        {"from_workload": "sha256:0", "reason": "two\nlines"},
        {"from_workload": 3, "reason": "one line"},
    ],
    "micro_kernel": [
        *({"secs": [value]} for value in (*NO_NUMBERS, 0.0, -1.0)),
        *({"drift": value} for value in (*NO_NUMBERS, 0.0, -1.0)),
        *({"points": [{"m": value, "n": 1, "k": 1}]} for value in (0, -1, 1.5, "8", 1 << 60, None, True)),
        *({"points": value} for value in ([], [{}], ["mnk"], {"m": 1}, [[1]], None)),
        *({"rows": value} for value in (65537, 1.5, "6", True)),
        *({"provenance": value} for value in ("x" * 65, "a\nb", "a\u2028b", None, 3)),
        {"points": [{"m": 1, "n": 1}, {"m": 1}], "secs": [1.0, 1.0]},
        {"error": "failed, with times"},
        {"error": None, "points": [], "secs": []},
        {"error": 3},
        {"pruned": "yes"},
        {"attempts": 0},
        {"num_readings": "3"},
        {"object_bytes": -1},
        {"build_secs": float("nan")},
    ],
    "round": [
        *({"number": value} for value in (0, 1.0, "1", None, True)),
        *({"message": value} for value in ("x" * 4001, "a\nb", "a\rb", "\n", None, 3)),
        *({"stop": value} for value in ("bored", 3, ["trials"])),
        *({key: value} for key in ("gain", "promise") for value in (float("nan"), float("-inf"), "1")),
        *(
            {key: value}
            for key in ("measured", "pruned", "failed", "dropped")
            for value in ("6x16", [6], None)
        ),
        *({"model": value} for value in ({}, "model", {"missed": -0.1}, {"missed": float("nan")}, [])),
        *({"expansions": value} for value in ({}, ["text"], [EXPANSION | {"shape": [5]}], None)),
        *({"expansions": [EXPANSION | {key: None}]} for key in ("shape", "cause", "served", "micro_kernels")),
        *({"added": value} for value in ({}, ["5x32"], None)),
        *({"added": [ADDED | change]} for change in ({"rows": 0}, {"columns": 10**9}, {"tails": "no"})),
        *({"added": [ADDED | {"provenance": value}]} for value in (None, "x" * 65)),
        *({"job": value} for value in ("0123", "0123456789ABCDEF", "0123456789abcdef\n", 3)),
    ],
    "fixed_bytes": [{"bytes": value} for value in (-1, 1.5, "777", None, True)],
    "problem": [
        *({"rows": ["m", "n"]}, {"extents": {}}, {"subscripts": []}, {"output_dtype": "float64"}),
        *(
            {"windows": [{}]},
            {"windows": [{"axis": "z", "output": "m", "kernel": "k"}]},
            {"splits": {"z": "xy"}},
        ),
    ],
}
GOOD: dict[str, dict[str, Any]] = {
    "calibration": CALIBRATION,
    "seed": SEED,
    "micro_kernel": measurement().to_json(),
    "round": ROUND,
    "fixed_bytes": {"bytes": 777},
    "problem": reference_problem().to_json(),
}


@pytest.mark.parametrize("kind", GOOD)
def test_each_kind_of_line_is_checked(tmp_path: Path, kind: str) -> None:
    good = {"kind": kind} | GOOD[kind]
    read_records(spoil(tmp_path / "r.jsonl", 3, json.dumps(good)))
    lines = [good | change for change in CHANGES[kind]]
    optional = {"kind", "job", "tails", "windows", "splits", "output_dtype", "operand_dtype"}
    lines += [{k: v for k, v in good.items() if k != left_out} for left_out in good.keys() - optional]
    for line in lines:
        path = spoil(tmp_path / "r.jsonl", 3, json.dumps(line))
        with pytest.raises(RecordsError, match=r"r\.jsonl: line 4 is no tuning record: .") as caught:
            read_records(path)
        assert len(str(caught.value).splitlines()) == 1, line
        assert len(str(caught.value)) < 400 + len(str(path)), line


def test_a_line_of_nested_lists_is_named(tmp_path: Path) -> None:
    path = spoil(tmp_path / "r.jsonl", 2, "[" * 100_000)
    with pytest.raises(RecordsError, match="line 3 is no tuning record"):
        read_records(path)


def test_points_have_the_letters_of_the_problem(tmp_path: Path) -> None:
    known = records(measurement())
    known.problem = reference_problem().to_json()
    write_records(tmp_path / "r.jsonl", known)
    assert read_records(tmp_path / "r.jsonl") == known
    known.measurements = {MicroKernel(6, 16): measurement(points=({"m": 16, "n": 32},))}
    write_records(tmp_path / "r.jsonl", known)
    with pytest.raises(RecordsError, match="line 6 is no tuning record: a point"):
        read_records(tmp_path / "r.jsonl")
    known.problem = None
    write_records(tmp_path / "r.jsonl", known)
    file = RecordsFile(tmp_path / "r.jsonl", records())
    with pytest.raises(RecordsError, match="is no tuning record: a point"):
        file.append({"kind": "problem", **reference_problem().to_json()})


def test_what_is_no_record_is_not_appended(tmp_path: Path) -> None:
    file = RecordsFile(tmp_path / "r.jsonl", records())
    before = file.path.read_bytes()
    with pytest.raises(RecordsError, match="is no tuning record: drift nan; allowed: a finite number"):
        file.append(measurement(drift=float("nan")).to_json())
    assert not file.records.measurements
    assert file.path.read_bytes() == before


def test_a_block_that_a_later_version_wrote_is_no_record(tmp_path: Path) -> None:
    """Files of other workloads are left out by it, so that an older version goes on beside a newer one."""
    op = {"block": {"version": 1, "graph": {"P": {"softmax": "X", "axis": "n"}}, "outputs": ["P"]}}
    spec = {"name": "rows", "op": op, "tensors": {"X": {"dims": "mn", "dtype": "float32"}}}
    spec |= {"shape_vars": {"M": {"min": 1, "max": 4}}, "dims": {"m": "M", "n": 8}}
    line: dict[str, Any] = {"kind": "problem", **problem_of(spec_from_data(spec)).to_json()}
    path = tmp_path / "r.jsonl"
    write_records(path, records())
    header = path.read_text()
    path.write_text(f"{header}{json.dumps(line)}\n")
    assert read_records(path).problem is not None
    line["nodes"]["P"]["later"] = 1
    path.write_text(f"{header}{json.dumps(line)}\n")
    with pytest.raises(RecordsError, match=r"is no tuning record: .*P.later: unknown field"):
        read_records(path)


def test_every_reason_to_stop_is_known() -> None:
    from dietcode.tuner.decisions import STOPS

    assert set(checks.STOPS) == set(STOPS)
