"""From the spec of a block to a library on a GPU that is emulated: measured, selected, built, verified."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from needs import needs_nvrtc

from dietcode.backends.cuda import domain as domain_module
from dietcode.backends.listing import listings
from dietcode.cli.show import show_library
from dietcode.measure import gpu_device
from dietcode.runtime.manifest import DISPATCH, MANIFEST, read_json, read_manifest
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.tuner.events import Event
from dietcode.tuner.result import TuneResult, write_library
from dietcode.tuner.tune import make_library
from dietcode.workload.parse import spec_from_data

sys.path.append(str(Path(__file__).parents[1] / "library"))

pytestmark = needs_nvrtc
NODES: dict[str, Any] = {
    "A": {"gather": ["states", "left"]},
    "P": {"einsum": ["A", "W"], "dims": "mgn"},
    "i": {"slice": "P", "axis": "g", "at": 0},
    "f": {"slice": "P", "axis": "g", "at": 1},
    "s": {"sigmoid": "f"},
    "h": {"mul": ["i", "s"]},
}
TENSORS = {"states": "tk", "left": "m", "W": "gnk"}
TILES = [CudaMicroKernel(8, 32, 2, 1, 16), CudaMicroKernel(16, 16, 2, 2, 8)]
# By name: graph, outputs, tensors, micro-kernels to begin with.
BLOCKS: dict[str, tuple[dict[str, Any], list[Any], dict[str, str], list[CudaMicroKernel]]] = {
    "gates": (
        NODES,
        ["h", "i"],
        TENSORS,
        TILES,
    ),
    "norm": (
        {
            "S": {"add": ["X", "R"]},
            "Y": {"layernorm": ["S", "gamma"], "axis": "n"},
        },
        ["S", "Y"],
        {"X": "mn", "R": "mn", "gamma": "n"},
        [CudaMicroKernel(2, 32, 1, 1, 8), CudaMicroKernel(1, 64, 1, 1, 8)],
    ),
    "norm-of-a-product-into-a-table": (
        {
            "P": {"einsum": ["X", "W"], "dims": "mn"},
            "B": {"add": ["P", "b"]},
            "Y": {"softmax": "B", "axis": "n"},
        },
        [{"Y": {"into": "H", "at": "to"}}],
        {"X": "mk", "W": "nk", "b": "n", "H": "tn", "to": "m"},
        TILES,
    ),
    "attention": (
        {
            "S": {"einsum": ["X", "Y"], "dims": "mn"},
            "P": {"softmax": "S", "axis": "n"},
            "O": {"einsum": ["P", "Z"], "dims": "mk"},
        },
        ["O"],
        {"X": "mk", "Y": "nk", "Z": "nk"},
        [CudaMicroKernel(4, 32, 1, 2, 8, splits=2), CudaMicroKernel(16, 32, 2, 4, 8)],
    ),
}
BLOCKS |= {
    "half-gates": (*BLOCKS["gates"][:3], [CudaMicroKernel(16, 32, 16, 16, 32, stages=2, unit="mma"), *TILES]),
    "half-attention": (
        *BLOCKS["attention"][:3],
        [CudaMicroKernel(16, 16, 16, 16, 32, stages=2, splits=2, unit="mma"), *BLOCKS["attention"][3]],
    ),
}


def data_of(name: str) -> dict[str, Any]:
    graph, outputs, tensors, _ = BLOCKS[name]
    dtype = "float16" if name.startswith("half-") else "float32"
    fixed: dict[str, Any] = {"m": "3*T", "n": 37, "k": 21, "g": 2, "t": 5}
    return {
        "name": name,
        "op": {"block": {"version": 1, "graph": graph, "outputs": outputs}},
        "tensors": {
            tensor: {"dims": dims, "dtype": "int32" if tensor in ("left", "to") else dtype}
            for tensor, dims in tensors.items()
        },
        "shape_vars": {"T": {"min": 1, "max": 3}},
        "dims": {index: fixed[index] for index in sorted(set("".join(tensors.values())))},
        "target": {"kind": "cuda", "arch": "sm_90a"},
        "budget": {"trials": 3, "seconds": 100.0},
    }


@pytest.fixture(scope="module")
def patch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pytest.MonkeyPatch]:
    from emulated_gpu import emulated_gpu

    with emulated_gpu() as patch:
        patch.setattr(gpu_device, "_L2_BYTES", 1 << 20)
        patch.setenv("DIETCODE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield patch


@pytest.mark.thorough
@pytest.mark.sampled(keep=3)
@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_is_tuned(
    name: str,
    patch: pytest.MonkeyPatch,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    seeds = [domain_module.CudaSeed(one, "hardware") for one in BLOCKS[name][-1]]
    monkeypatch.setattr(domain_module, "block_seeds", lambda *_: seeds)
    heard: list[Event] = []
    result: TuneResult = make_library(
        spec_from_data(data_of(name)), archs=("sm_90a",), allow_synthetic=True, on_event=heard.append
    )
    assert result.measured == 3
    assert [event.message for event in heard if event.stage == "verify"] == [
        "right on 3 instances against float64"
    ]
    rows = result.report["micro_kernels"]
    assert seeds[0].micro_kernel.name in {row["micro_kernel"] for row in rows}
    language, text = listings(result.report)[rows[0]["micro_kernel"]]
    assert language == "cuda" and "__global__" in text
    write_library(result, tmp_path / "library")
    assert (tmp_path / "library" / "library.so").stat().st_size > 0
    manifest, dispatch = (read_json(tmp_path / "library" / file) for file in (MANIFEST, DISPATCH))
    dtype = "float16" if name.startswith("half-") else "float32"
    assert {own["dtype"] for own in manifest.get("outputs", [manifest["output"]])} == {dtype}
    show_library(read_manifest(tmp_path / "library"), dispatch, result.report)
    shown = capsys.readouterr().out
    assert any(row["micro_kernel"] in shown for row in rows), shown
