"""Shapes of calls of a convolution's library: a manifest as built, code played by NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_libraries import make_parts, spec_data

from dietcode.errors import ShapeError, TensorError
from dietcode.library.build import own_fields
from dietcode.library.files import manifest_of
from dietcode.runtime.library import Library
from dietcode.search_space.reference import reference

GROUPS = 2


def conv_data(layout: str) -> dict[str, Any]:
    options = {"strides": 2, "padding": 1, "groups": GROUPS, "data_layout": layout}
    return spec_data(
        "conv",
        op={"conv2d": options, "epilogue": ["bias", {"residual": "R"}]},
        tensors={
            "X": {"dims": layout.lower(), "dtype": "float32"},
            "W": {"dims": "oirs", "dtype": "float32", "constant": True},
        },
        shape_vars={"B": {"min": 1, "max": 3}, "H": {"min": 1, "max": 8}},
        dims={"n": "B", "h": "H + 1", "w": 9, "c": 4, "i": 2, "o": 6, "r": 3, "s": 3},
    )


class Played:
    """A library whose code is the reference; notes what it was called with."""

    def __init__(self, layout: str) -> None:
        self.parts = make_parts(conv_data(layout))
        self.manifest = manifest_of(self.parts, {}, {}, own_fields(self.parts))
        self.problem, self.weights, self.values = self.parts.task.problem, None, ()
        module = {"run": self._run, "select": lambda *_: 0, "pack": self._pack}
        self.library = Library(Path(), self.manifest, module)

    def _pack(self, operand: Any, packed: Any) -> None:
        self.weights, self.packed_shape = operand, packed.shape

    def _run(self, *arguments: Any) -> None:
        arrays = dict(zip(self.problem.arguments, arguments, strict=False))
        if self.weights is not None:
            arrays["W"] = self.weights
        self.values = arguments[len(arrays) + 1 :]
        arguments[len(arrays)][...] = reference(self.problem, arrays)

    def arrays(self, batch: int, height: int) -> dict[str, Any]:
        rng = np.random.default_rng(0)
        extents = {
            k: int(d.evaluate({"B": batch, "H": height})) for k, d in self.parts.task.spec.dims_parsed.items()
        }
        return {
            name: rng.standard_normal([extents[k] for k in facts["dims"]], dtype=np.float32)
            for name, facts in self.manifest["inputs"].items()
        }


def test_nhwc_packs_its_kernel() -> None:
    played = Played("NHWC")
    arrays = played.arrays(2, 6)
    assert arrays["X"].shape == (2, 7, 9, 4)
    facts = played.manifest["packed"]["W"]
    assert facts["layout"] == f"(gu)irs -> [g, u/{facts['lanes']}, rsi, u%{facts['lanes']}]"
    packed = played.library.pack(W=arrays["W"])
    assert played.packed_shape == (GROUPS, 1, 3 * 3 * 2, facts["lanes"])
    result = played.library(**arrays | {"W": packed})
    assert result.shape == (2, 4, 5, 6)
    assert played.values == (2, 6)
    np.testing.assert_allclose(result, reference(played.problem, arrays), atol=1e-4)


def test_nchw_takes_its_kernel_as_it_is() -> None:
    played = Played("NCHW")
    arrays = played.arrays(3, 8)
    assert arrays["X"].shape == (3, 4, 9, 9)
    assert arrays["bias"].shape == (6,)
    assert played.manifest["packed"] == {}
    assert played.library(**arrays).shape == (3, 6, 5, 5)
    with pytest.raises(TensorError, match="none: this library has no constant tensors"):
        played.library.pack(W=arrays["W"])


WRONG = [
    ("X", (2, 7, 9), r"X: shape \[2, 7, 9\]; allowed: 4 dimensions, \[B, H \+ 1, 9, 4\]"),
    ("X", (2, 7, 9, 5), "X: extent 5 of axis 3; allowed: 4"),
    ("X", (2, 10, 9, 4), "H: 9; allowed: 1…8"),
    ("X", (4, 7, 9, 4), "B: 4; allowed: 1…3"),
    ("bias", (5,), "bias: extent 5 of axis 0; allowed: 6"),
    ("R", (2, 3, 5, 6), r"R: extent 3 of axis 1; allowed: \(H \+ 2\)//2 = 4 for B=2, H=6"),
]


@pytest.mark.parametrize(("name", "shape", "message"), WRONG)
def test_errors_name_tensor_and_axis(name: str, shape: tuple[int, ...], message: str) -> None:
    played = Played("NHWC")
    arrays = played.arrays(2, 6)
    arrays["W"] = played.library.pack(W=arrays["W"])
    with pytest.raises(ShapeError, match=message):
        played.library(**arrays | {name: np.zeros(shape, np.float32)})


def test_a_kernel_of_the_wrong_shape_is_not_packed() -> None:
    library = Played("NHWC").library
    with pytest.raises(ShapeError, match="W: extent 3 of axis 1; allowed: 2"):
        library.pack(W=np.zeros((6, 3, 3, 3), np.float32))
