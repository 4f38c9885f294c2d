"""How large a workload a server takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from plain_server import NoTargets
from small_libraries import ROOT, spec_data

from dietcode.errors import SpecError
from dietcode.workload.parse import load_spec, spec_from_data
from dietcode.workload.sizes import largest_sizes
from dietcode_server.limits import check_limits
from dietcode_server.settings import Settings

# m = 16 * 8, n = 64, k = 48: 2 * 128 * 64 * 48 FLOPs; 4 bytes each of 128 * 48, 64 * 48 and 128 * 64 elements
FLOPS = 2 * 128 * 64 * 48
TENSOR_BYTES = 4 * (128 * 48 + 64 * 48 + 128 * 64)
LIMITS = [
    ("max_rank", "tensors.X.dims", 2, "2 axes"),
    ("max_extent", "dims.m", 128, "128 as an extent"),
    ("max_flops", "dims", FLOPS, f"{FLOPS} FLOPs at the largest instance"),
    ("max_tensor_bytes", "tensors", TENSOR_BYTES, f"{TENSOR_BYTES} bytes of all tensors"),
    ("max_trials", "budget.trials", 12, "12 trials"),
    ("max_seconds", "budget.seconds", 60, "60 seconds"),
]


@pytest.mark.parametrize(("setting", "field", "value", "given"), LIMITS)
def test_a_limit_is_checked_at_submission(service, problem, setting, field, value, given):
    def limited(limit: int):
        settings = service.settings.model_copy(update={setting: limit})
        server = replace(service, settings=settings, targets=NoTargets())
        return server.client.post("/api/v1/jobs", json={"spec": spec_data()})

    found = problem(limited(value - 1), 422, "spec")
    assert found["field"] == field
    assert given in found["detail"]
    assert str(value - 1) in found["detail"] and f"DIETCODE_SERVE_{setting.upper()}" in found["detail"]
    assert limited(value).status_code in {200, 201}


def test_sizes_are_those_of_the_largest_instance():
    ranges = {"A": {"min": 1, "max": 10}, "B": {"min": 1, "max": 10}}
    given = spec_data(
        op={"einsum": "mk,nk->mn", "epilogue": ["bias", {"residual": "R"}]},
        shape_vars=ranges,
        dims={"m": "A", "n": "B", "k": 4},
        output={"name": "Y", "dtype": "float16"},
    )
    sizes = largest_sizes(spec_from_data(given))
    assert (sizes.flops, sizes.extents) == (800, {"m": 10, "n": 10, "k": 4})
    assert sizes.tensor_bytes == 4 * (40 + 40) + 4 * (10 + 100) + 2 * 100
    joint = [{"A": 10, "B": 1, "weight": 1}, {"A": 1, "B": 10, "weight": 1}]
    sizes = largest_sizes(spec_from_data(given | {"instances": joint}))
    assert (sizes.flops, sizes.extents["m"], sizes.extents["n"]) == (80, 10, 10)
    assert sizes.tensor_bytes == 4 * (40 + 4) + 4 * (10 + 10) + 2 * 10  # not the largest of each together


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_are_within_the_defaults(path: Path, tmp_path: Path):
    check_limits(load_spec(path), Settings(data_dir=tmp_path))


def test_what_the_defaults_refuse(tmp_path: Path):
    huge = spec_data(dims={"m": "16*T", "n": 1 << 16, "k": 1 << 16})
    with pytest.raises(SpecError, match=r"^tensors: given 17\d+ bytes"):
        check_limits(spec_from_data(huge), Settings(data_dir=tmp_path))
