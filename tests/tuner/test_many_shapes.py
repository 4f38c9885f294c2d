"""Several shape variables, joint tuples, logs and huge ranges, from the spec to results of the library."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import make_spec

import dietcode
from dietcode.workload.parse import load_spec
from dietcode.workload.spec import Spec

MAX_ERROR = 1e-5  # of the sum of absolute products
BMM = {
    "op": {"einsum": "bmk,bkn->bmn", "epilogue": []},
    "tensors": {"P": {"dims": "bmk", "dtype": "float32"}, "V": {"dims": "bkn", "dtype": "float32"}},
}
FREE = {
    "tensors": {"X": {"dims": "mk", "dtype": "float32"}, "W": {"dims": "nk", "dtype": "float32"}},
    "budget": {"trials": 12, "seconds": 100.0},
}


def check(folder: Path, spec: Spec, *shapes: Mapping[str, int]) -> None:
    """The library in `folder` against float64 for some values of the shape variables."""
    library = dietcode.load(folder, num_threads=2)
    rng = np.random.default_rng(0)
    for shape in shapes:
        extents = {k: int(dim.evaluate(dict(shape))) for k, dim in spec.dims_parsed.items()}
        given = {
            name: rng.standard_normal([extents[k] for k in letters], dtype=np.float32)
            for name, letters in spec.operand_indices.items()
        }
        exact, scale = (
            np.einsum(spec.op.einsum, *(f(array.astype(np.float64)) for array in given.values()))
            for f in (np.asarray, np.abs)
        )
        packed = {n: library.pack(**{n: a}) if n in spec.constants else a for n, a in given.items()}
        assert np.abs(library(**packed) - exact).max() <= MAX_ERROR * scale.max(), shape
        assert 0 <= library.select(**shape) < len(library.dispatch["categories"])


@pytest.mark.long
def test_rows_from_a_range_and_columns_from_a_list(tuned: Any, tmp_path: Path) -> None:
    ranges = {"M": {"min": 1, "max": 300}, "N": {"values": [16, 100, 257]}}
    spec = make_spec(**FREE, shape_vars=ranges, dims={"m": "M", "n": "N", "k": 24})
    _, result = tuned(spec)
    assert result.report["num_instances"] == 900 and result.report["instances_are_exhaustive"]
    assert result.report["rule"]["loss_worst"] < 0.005
    check(tmp_path / "lib", spec, {"M": 1, "N": 257}, {"M": 299, "N": 100}, {"M": 77, "N": 16})


@pytest.mark.long
def test_batch_and_length(tuned: Any, tmp_path: Path) -> None:
    ranges = {"B": {"min": 1, "max": 40}, "T": {"min": 1, "max": 500}}
    spec = make_spec(**{**FREE, **BMM}, shape_vars=ranges, dims={"b": "12*B", "m": "T", "n": 64, "k": "T"})
    _, result = tuned(spec)
    report = result.report
    assert not report["instances_are_exhaustive"] and report["rule"]["unseen"] is None
    assert report["rule"]["loss_mean"] < 0.01, "the rule was fitted on all 20 000 shapes"
    check(tmp_path / "lib", spec, {"B": 1, "T": 1}, {"B": 3, "T": 131}, {"B": 2, "T": 77}, {"B": 1, "T": 500})


@pytest.mark.thorough
def test_a_reduction_that_is_a_dimension_of_the_output_too(tuned: Any, tmp_path: Path) -> None:
    ranges = {"T": {"min": 1, "max": 256}}
    spec = make_spec(**{**FREE, **BMM}, shape_vars=ranges, dims={"b": 3, "m": "T", "n": 40, "k": "T"})
    tuned(spec)
    check(tmp_path / "lib", spec, *({"T": t} for t in (1, 2, 37, 255, 256)))


@pytest.mark.thorough
def test_joint_tuples(tuned: Any, tmp_path: Path) -> None:
    ranges = {"I": {"min": 1, "max": 800}, "H": {"min": 1, "max": 2400}}
    joint = [{"I": 96, "H": 288}, {"I": 768, "H": 96, "weight": 3}, {"H": 33, "I": 17, "weight": 0}]
    spec = make_spec(**FREE, shape_vars=ranges, instances=joint, dims={"m": 16, "n": "H", "k": "I"})
    _, result = tuned(spec)
    assert [row["weight"] for row in result.report["instances"]] == [0.25, 0.75, 0.0]
    listed = [{k: v for k, v in row.items() if k != "weight"} for row in joint]
    check(tmp_path / "lib", spec, *listed, {"I": 800, "H": 2400}, {"I": 1, "H": 1}, {"I": 301, "H": 77})


@pytest.mark.thorough
def test_a_log_of_whole_shapes(tuned: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with (tmp_path / "log.jsonl").open("w") as log:
        for batch, length in zip(rng.integers(1, 33, 30_000), rng.zipf(1.3, 30_000), strict=True):
            log.write(json.dumps({"B": int(batch), "T": int(length) % 2048 + 1, "count": 2}) + "\n")
    ranges = {"B": {"min": 1, "max": 32}, "T": {"min": 1, "max": 2048}}
    plain = make_spec(**{**FREE, **BMM}, shape_vars=ranges, dims={"b": "B", "m": "T", "n": 32, "k": "T"})
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(plain.to_json() | {"instances": "log.jsonl"}))
    spec = load_spec(path)
    _, result = tuned(spec)
    assert 4000 < len(spec.instances) <= 8192 and result.report["num_instances"] == 4096
    assert result.report["rule"]["loss_mean"] < 0.01
    frequent = max(spec.instances, key=lambda instance: instance.weight).bindings
    check(tmp_path / "lib", spec, frequent, {"B": 32, "T": 3}, {"B": 1, "T": 601}, {"B": 5, "T": 100})


@pytest.mark.thorough
@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize(
    ("ranges", "dims", "shapes"),
    [
        ({"T": (1, 10**6)}, {"m": "T", "n": 48, "k": 16}, [{"T": 1}, {"T": 54_321}, {"T": 10**6}]),
        (
            {"M": (1, 1000), "N": (1, 1000)},
            {"m": "M", "n": "N", "k": 32},
            [{"M": 1, "N": 1}, {"M": 613, "N": 401}, {"M": 1000, "N": 7}, {"M": 3, "N": 999}],
        ),
    ],
    ids=["one variable", "two variables"],
)
def test_a_million_shapes(
    ranges: dict[str, tuple[int, int]],
    dims: dict[str, Any],
    shapes: list[dict[str, int]],
    tuned: Any,
    tmp_path: Path,
) -> None:
    shape_vars = {name: {"min": low, "max": high} for name, (low, high) in ranges.items()}
    spec = make_spec(**FREE, shape_vars=shape_vars, dims=dims)
    _, result = tuned(spec)
    unseen = result.report["rule"]["unseen"]
    assert unseen["num_shapes"] > 500 and unseen["loss_mean"] <= 0.03
    assert result.report["rule"]["num_leaves"] <= 1024 and result.report["rule"]["depth"] <= 48
    check(tmp_path / "lib", spec, *shapes)
