"""``max_bytes`` is of the file: what is in it beside the micro-kernels counts too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from made_gpu import gpu_spec, made_records
from needs import needs_nvrtc
from small_runs import make_spec

from benchmarks.fake_children import FakeChildren
from dietcode.dispatcher.select import Objective, select_categories
from dietcode.errors import TuningError
from dietcode.runtime.manifest import CODE
from dietcode.tuner.reselect import reselect
from dietcode.tuner.size_cap import Built, FileSize, build_within
from dietcode.tuner.tune import make_library
from dietcode.workload.parse import spec_from_data

SMALLEST = re.compile(r"max_bytes is (\d+), .* smallest .* has (\d+) bytes.*; allow more")


@settings(deadline=None, max_examples=examples(60))
@given(
    st.lists(st.integers(500, 20_000), min_size=1, max_size=12),
    st.integers(0, 50_000),
    st.floats(1.0, 12.0),
    st.floats(0.0, 1.5),
    st.booleans(),
)
def test_what_is_built_fits_where_anything_does(
    sizes: list[int], fixed: int, scale: float, share: float, knows: bool
) -> None:
    """Files that grow as the machine code in them does; what is fixed may be known, or not."""
    rates = np.random.default_rng(0).uniform(1.0, 3.0, (40, len(sizes)))
    weights, kernel_bytes = np.full(40, 1 / 40), np.asarray(sizes, np.int64)
    cap = max(1, int(share * (fixed + scale * sum(sizes))))

    def build(size: FileSize) -> tuple[int, Built]:
        objective = Objective(binary_size=0.0, max_bytes=cap)
        chosen = select_categories(
            rates, np.ones(40), weights, size.sizes(kernel_bytes), objective, fixed_bytes=size.fixed
        ).chosen
        built = Built(sum(sizes[i] for i in chosen), fixed + round(scale * sum(sizes[i] for i in chosen)))
        return built.file_bytes, built

    try:
        assert build_within(cap, FileSize(fixed if knows else 0), build) <= cap
    except TuningError as error:
        said = SMALLEST.search(str(error))
        assert said is not None and int(said[1]) == cap < int(said[2])
        if knows:  # then nothing was too small for it but what is
            assert fixed + scale * min(sizes) > cap - len(sizes) - 2


@pytest.mark.thorough
def test_a_library_is_not_larger_than_asked(tuned: Any, tmp_path: Path) -> None:
    _, before = tuned(make_spec(objective={"binary_size": 0.0}))
    cap = len(before.files[CODE]) - 1
    assert before.report["selection"]["kernel_bytes"] + before.report["fixed_bytes"] < cap, "as it is known"
    after = reselect(tmp_path / "lib", {"max_bytes": cap}, tmp_path / "less", children=FakeChildren())
    assert len(after.files[CODE]) <= cap
    assert after.report["selection"]["loss_mean"] >= before.report["selection"]["loss_mean"]
    one = reselect(tmp_path / "lib", {"max_kernels": 1}, tmp_path / "one", children=FakeChildren())
    least = len(one.files[CODE]) // 2
    with pytest.raises(TuningError, match=SMALLEST) as caught:
        reselect(tmp_path / "lib", {"max_bytes": least}, tmp_path / "none", children=FakeChildren())
    said = SMALLEST.search(str(caught.value))
    assert said is not None and int(said[1]) == least < int(said[2])


@pytest.mark.long
@needs_nvrtc
def test_a_library_for_gpus_is_not_larger_than_asked() -> None:
    """All architectures, PTX and the host part count."""

    def made(**objective: Any) -> tuple[int, list[str]]:
        spec = spec_from_data(gpu_spec(objective={"binary_size": 0.0} | objective))
        made = make_library(spec, known=made_records(), archs=("sm_90a", "sm_80"))
        files, report = made.files, made.report
        return len(files[CODE]), report["selection"]["micro_kernels"]

    size, chosen = made()
    assert len(chosen) > 1
    less, fewer = made(max_bytes=size - 1)
    assert less < size
    assert len(fewer) < len(chosen)
    with pytest.raises(TuningError, match=SMALLEST):
        made(max_bytes=30_000)
