"""A depthwise convolution tuned for real, in a minute at most; then again from its records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_runs import contents, records_file

import dietcode
from dietcode.cli.show import show_library
from dietcode.runtime.manifest import DISPATCH, REPORT, read_json, read_manifest
from dietcode.tuner.tune import tune
from dietcode.workload.parse import spec_from_data

CHANNELS = 21
DATA = {
    "name": "causal",
    "op": {"conv1d": {"padding": [2, 0], "groups": CHANNELS}, "epilogue": ["bias"]},
    "tensors": {
        "X": {"dims": "nwc", "dtype": "float32"},
        "F": {"dims": "ois", "dtype": "float32", "constant": True},
    },
    "shape_vars": {"L": {"min": 1, "max": 64}},
    "dims": {"n": 2, "w": "L", "c": CHANNELS, "o": CHANNELS, "i": 1, "s": 3},
    "target": {"kind": "llvm", "num_cores": 2},
    "budget": {"trials": 3, "seconds": 60.0},
}


@pytest.mark.long
def test_a_depthwise_convolution_is_tuned(
    tmp_path: Path, own_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = spec_from_data(DATA)
    result = tune(spec, tmp_path / "lib")
    assert 1 <= result.measured <= 3
    library = dietcode.load(tmp_path / "lib")
    rng = np.random.default_rng(0)
    f = rng.standard_normal((CHANNELS, 1, 3), dtype=np.float32)
    bias = rng.standard_normal(CHANNELS, dtype=np.float32)
    packed = library.pack(F=f)
    for length in (1, 2, 7, 64):
        x = rng.standard_normal((2, length, CHANNELS), dtype=np.float32)
        padded = np.pad(x.astype(np.float64), ((0, 0), (2, 0), (0, 0)))
        right = sum(padded[:, t : t + length] * f[:, 0, t] for t in range(3)) + bias
        assert np.allclose(library(X=x, F=packed, bias=bias), right, rtol=1e-5, atol=1e-5)
    assert result.report["problem"]["form"] == "depthwise"
    manifest = read_manifest(tmp_path / "lib")
    show_library(manifest, read_json(tmp_path / "lib" / DISPATCH), read_json(tmp_path / "lib" / REPORT))
    shown = " ".join(capsys.readouterr().out.split())
    assert f"conv1d data_layout NWC, dilation 1, groups {CHANNELS}" in shown
    assert "padding [2, 0]" in shown and "not sought: every tile" in shown
    again = tune(spec, tmp_path / "again", records=records_file(own_cache))
    assert again.measured == 0
    assert contents(tmp_path / "again") == contents(tmp_path / "lib")
