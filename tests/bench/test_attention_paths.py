"""What `bench` compares attention with computes the same, and a library runs beside it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from needs import of_extra
from small_libraries import built_of, spec_data

from dietcode import load
from dietcode.bench.compare import bench
from dietcode.bench.operator import Operator
from dietcode.bench.vendor import vendor_paths
from dietcode.search_space.rows.reference import block_reference
from dietcode.workload.parse import spec_from_data

# Indices of Q, K, V, the mask or None, the scores and the result; attributes of the softmax; queries, keys.
CASES: dict[str, tuple[tuple[str, str, str, str | None, str, str], dict[str, Any], tuple[int, int]]] = {
    "plain": (("bhqd", "bhkd", "bhkd", None, "bhqk", "bhqd"), {"scale": 0.3}, (5, 7)),
    "causal": (("bqhd", "bkhd", "bkhd", None, "bhqk", "bqhd"), {"causal": "q"}, (6, 6)),
    "cache": (("bqhd", "bkhd", "bkhd", None, "bhqk", "bqhd"), {"causal": "q"}, (3, 8)),
    "decode": (("bhqd", "bhkd", "bhkd", None, "bhqk", "bhqd"), {"causal": "q"}, (1, 8)),
    "grouped": (("bqgrd", "bkgd", "bgkd", "bk", "bgrqk", "bgrqd"), {"causal": "q"}, (4, 9)),
    "shared": (("bhqd", "bkd", "bkd", "hk", "bhqk", "bqhd"), {}, (4, 9)),
    "one-head": (("qd", "kd", "kd", "q", "qk", "qd"), {}, (4, 9)),
}


def data_of(name: str) -> dict[str, Any]:
    (q, k, v, mask, scores, output), attributes, _ = CASES[name]
    operands = {"Q": q, "K": k, "V": v} | ({} if mask is None else {"M": mask})
    graph = {
        "S": {"einsum": ["Q", "K"], "dims": scores},
        "P": {"softmax": ["S", "M"][: 1 if mask is None else 2], "axis": "k", **attributes},
        "O": {"einsum": ["P", "V"], "dims": output},
    }
    data = spec_data(name, op={"block": {"version": 1, "graph": graph, "outputs": ["O"]}})
    del data["output"]
    data["tensors"] = {tensor: {"dims": dims, "dtype": "float32"} for tensor, dims in operands.items()}
    data["shape_vars"] = {"L": {"min": 1, "max": 9}, "C": {"min": 9, "max": 70}}
    fixed = {"b": 2, "h": 3, "g": 2, "r": 3, "d": 20}
    data["dims"] = {"q": "L", "k": "C"} | {i: n for i, n in fixed.items() if i in q + k}
    return data


@pytest.mark.parametrize("vendor", ["numpy", "torch"])
@pytest.mark.parametrize("name", CASES)
def test_every_kind(vendor: str, name: str) -> None:
    if vendor == "torch":
        pytest.importorskip("torch", reason=of_extra("bench"))
    operator = Operator.of_spec(spec_from_data(data_of(name)))
    rng = np.random.default_rng(0)
    num_queries, num_keys = CASES[name][2]
    shapes = operator.shapes({"L": num_queries, "C": num_keys})
    arrays = {tensor: rng.standard_normal(shapes[tensor], dtype=np.float32) for tensor in operator.inputs}
    right = block_reference(operator.problem, arrays)["O"]
    paths = vendor_paths(vendor, operator, 1)
    eager = next(bind for path, bind in paths.items() if "compile" not in path)
    result = np.asarray(eager(arrays)())
    assert result.dtype == np.float32 and result.shape == right.shape
    assert np.abs(result - right).max() <= 1e-5 * np.abs(right).max()


def test_a_library_beside_numpy() -> None:
    library = built_of(json.dumps(data_of("grouped")))
    (record, *_) = bench(library, ["numpy"], num_instances=2, rounds=1)
    assert record["max_rel_error"] < 1e-5 and record["vendor"] == "numpy"
    assert record["measured_gb_per_sec"] > 0


def test_a_call_at_every_category() -> None:
    library = load(built_of(json.dumps(data_of("grouped"))))
    problem = Operator.of_spec(spec_from_data(data_of("grouped"))).problem
    rng = np.random.default_rng(0)
    categories = set()
    for num_queries, num_keys in ((1, 9), (1, 70), (9, 70), (6, 33)):
        extents = {"b": 2, "g": 2, "r": 3, "d": 20, "q": num_queries, "k": num_keys}
        arrays = {
            name: rng.standard_normal([extents[i] for i in problem.indices[name]], dtype=np.float32)
            for name in problem.inputs
        }
        right = block_reference(problem, arrays)["O"]
        output = np.asarray(library(**arrays))
        assert np.abs(output - right).max() < 1e-5 * np.abs(right).max()
        categories.add(library.select(L=num_queries, C=num_keys))
    assert len(categories) == 2
