"""The bench compares the library with the vendor's kernels for the very same operator."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from needs import of_extra
from small_libraries import SAFE_ERROR, SPECS, built, draw, error, expected, make_parts

import dietcode
from dietcode.bench.compare import bench, spread
from dietcode.bench.operator import Operator, matmul_plan
from dietcode.bench.vendor import vendor_paths
from dietcode.errors import DietCodeError, RequestError
from dietcode.library.build import library_files
from dietcode.measure.turns import interleave, take_turns
from dietcode.runtime.manifest import write_folder
from dietcode.search_space.reference import reference
from dietcode.workload.dtypes import UNIT_ROUNDOFF

CONTRACT = {
    "shape_vars",
    "category",
    "padding_ratio",
    "predicted_gflops",
    "measured_gflops",
    "vendor",
    "vendor_gflops",
    "max_rel_error",
}
SIZES: dict[str, dict[str, int]] = {
    "dense": {"T": 3},
    "rows": {"M": 19},
    "varying": {"M": 7},
    "bmm": {"T": 13},
    "epilogue": {"T": 4},
    "keyword": {"A": 3, "B": 2},
    "order": {"Q": 3, "B": 5},
    "values": {"T": 4},
}


def operator_of(name: str) -> Operator:
    return Operator.of(dietcode.load(built(name)).manifest)


def test_every_library_of_these_tests_has_a_size() -> None:
    assert set(SIZES) == set(SPECS)


@pytest.mark.parametrize("name", SPECS)
def test_the_reference_is_the_operator(name: str) -> None:
    arrays = draw(name, **SIZES[name])
    np.testing.assert_allclose(
        reference(operator_of(name).problem, arrays), expected(name, arrays), rtol=1e-12, atol=1e-9
    )


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("vendor", ["numpy", "torch-eager"])
def test_a_vendor_computes_the_same_operator(name: str, vendor: str) -> None:
    if vendor != "numpy":
        pytest.importorskip("torch", reason=of_extra("bench"))
    arrays = draw(name, **SIZES[name])
    paths = vendor_paths(vendor.partition("-")[0], operator_of(name), 2)
    result = paths[vendor](arrays)()
    assert error(result, expected(name, arrays)) <= SAFE_ERROR


@pytest.mark.parametrize(
    ("name", "plan"), [("dense", True), ("rows", True), ("varying", True), ("epilogue", True), ("bmm", False)]
)
def test_plain_products_go_to_the_vendors_matmul(name: str, plan: bool) -> None:
    """Through einsum the vendor would look slower than it is."""
    assert matmul_plan(operator_of(name)) is plan


def test_operands_come_in_the_order_of_the_call() -> None:
    """Keys of JSON are sorted; the order of operands is not."""
    operator = operator_of("epilogue")
    assert operator.operands == ("X", "W") and list(operator.inputs) == ["X", "W", "bias", "R"]
    assert operator.equation == "mk,nk->mn" and operator.constants == ("W",)


def test_records_of_the_contract() -> None:
    records = list(bench(built("rows"), ["numpy"], num_instances=3, rounds=1))
    assert [r["shape_vars"]["M"] for r in records] == [1, 36, 70] or len(records) == 3
    for record in records:
        assert set(record) >= CONTRACT
        assert record["vendor"] == "numpy" and set(record["vendors"]) == {"numpy"}
        assert record["vendor_gflops"] > 0 and record["measured_gflops"] > 0
        assert 0 <= record["max_rel_error"] <= SAFE_ERROR
        assert math.isfinite(record["measured_gflops"])
        assert all(0 < rate < math.inf for rate in record["in_company"].values())
    assert records[0]["category"] == 0 and records[-1]["category"] == 1


@pytest.mark.parametrize("name", ["epilogue", "keyword", "order", "bmm"])
def test_other_workloads_are_right_in_the_bench_too(name: str) -> None:
    (record,) = bench(built(name), ["numpy"], num_instances=1, rounds=1)
    assert record["max_rel_error"] <= SAFE_ERROR


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_outputs_of_half_the_size(dtype: str, tmp_path: Any) -> None:
    parts = make_parts(SPECS["epilogue"] | {"output": {"name": "Y", "dtype": dtype}})
    write_folder(tmp_path, library_files(parts))
    (record,) = bench(tmp_path, ["numpy"], num_instances=1, rounds=1)
    assert 0 < record["max_rel_error"] <= UNIT_ROUNDOFF[dtype]


def test_without_a_vendor_the_library_is_measured_alone() -> None:
    (record,) = bench(built("dense"), [], num_instances=1, rounds=1)
    assert record["vendor"] is None and record["vendor_gflops"] is None and record["measured_gflops"] > 0
    assert record["in_company"] is None


def test_what_alternates_is_timed_by_the_call() -> None:
    """A path that is slow every fourth time only is charged its mean, and the other one nothing of it."""
    turns = iter(range(10**6))

    def mostly_fast() -> None:
        time.sleep(8e-3 if next(turns) % 4 == 0 else 0.0)

    one, other = take_turns(mostly_fast, lambda: None, rounds=3)
    assert one > 1e-3 > other


def test_an_unknown_vendor() -> None:
    with pytest.raises(RequestError, match=r"--vs: 'cublas'; allowed: numpy, torch"):
        list(bench(built("dense"), ["cublas"], num_instances=1, rounds=1))


def test_torch_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(RequestError, match=r"--vs torch needs torch: pip install "):
        list(bench(built("dense"), ["torch"], num_instances=1, rounds=1))


def test_a_folder_that_is_no_library(tmp_path: Any) -> None:
    with pytest.raises(DietCodeError, match="is this a library folder"):
        list(bench(tmp_path, ["numpy"], num_instances=1, rounds=1))


def loaded_with(call: Callable[..., Any]) -> Callable[..., Any]:
    """What loads libraries that are called otherwise.

    Patching the class, and taking it back, would leave the calls of all libraries in Python.
    """

    def load(folder: Any, **options: Any) -> Any:
        library = dietcode.load(folder, **options)
        library.compiled = None
        library.__class__ = type("Otherwise", (type(library),), {"__call__": call})
        return library

    return load


def test_a_wrong_library_shows_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: Any, *, out: Any = None, **arguments: Any) -> Any:
        self.call_checked(out, arguments)
        out[-1, -1] += 1.0
        return out

    monkeypatch.setattr("dietcode.bench.compare.load", loaded_with(wrong))
    (record,) = bench(built("dense"), ["numpy"], num_instances=1, rounds=1)
    assert record["max_rel_error"] > 1e-3


def test_a_library_that_writes_nothing_shows_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The output is poisoned first, so that an unwritten element cannot look right."""
    monkeypatch.setattr("dietcode.bench.compare.load", loaded_with(lambda self, out=None, **_: out))
    (record,) = bench(built("dense"), ["numpy"], num_instances=1, rounds=1)
    assert not record["max_rel_error"] <= SAFE_ERROR


@pytest.mark.parametrize("total", [1, 2, 3, 10, 128, 4096])
@pytest.mark.parametrize("wanted", [1, 2, 3, 7, 16, 200])
def test_instances_are_spread_over_the_range(total: int, wanted: int) -> None:
    picked = spread(total, wanted)
    assert len(picked) <= wanted and picked == sorted(set(picked))
    assert picked[0] == 0 and picked[-1] < total
    if wanted > 1:
        assert picked[-1] == total - 1


def test_paths_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dietcode.measure.disturbance._PAUSE_SECS", 0.0)
    monkeypatch.setattr("dietcode.measure.turns.WARM_SECS", 0.0)
    monkeypatch.setattr("dietcode.measure.turns.BATCH_SECS", 1e-9)
    heard: list[str] = []
    secs = interleave({"a": lambda: heard.append("a"), "b": lambda: heard.append("b")}, rounds=4)
    assert set(secs) == {"a", "b"} and all(value > 0 for value in secs.values())
    turns = "".join(heard)
    compact = "".join(c for i, c in enumerate(turns) if i == 0 or c != turns[i - 1])
    assert compact == "ab" * (len(compact) // 2) and compact.count("ab") >= 5
