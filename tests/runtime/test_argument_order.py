"""Positional arguments are in the order of the spec, also where shapes cannot show another one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from needs import of_extra
from small_libraries import SAFE_ERROR, block_data, built_of, error, rewrite_manifest, spec_data

import dietcode
from dietcode.errors import LibraryError
from dietcode.library.c_header import c_header
from dietcode.runtime.compile_launcher import LAUNCHER
from dietcode.runtime.manifest import read_manifest, write_folder

FLOAT = {"dtype": "float32"}
N = 6  # of every axis


def _dense(name: str, tensors: str, einsum: str, *epilogue: Any, **dims: str) -> dict[str, Any]:
    return spec_data(
        name,
        op={"einsum": einsum, "epilogue": list(epilogue)},
        tensors={one: {"dims": dims[one], **FLOAT} for one in tensors},
        shape_vars={"M": {"min": 1, "max": N}},
        dims={"m": "M", "n": N, "k": N},
    )


def _conv(layout: str, kernel: str) -> dict[str, Any]:
    return spec_data(
        layout.lower(),
        op={"conv2d": {"padding": 1, "data_layout": layout, "kernel_layout": kernel}},
        tensors={
            "X": {"dims": layout.lower(), **FLOAT},
            "W": {"dims": kernel.lower().translate(str.maketrans("oihw", "ocrs")), **FLOAT},
        },
        shape_vars={"B": {"values": [3]}},
        dims={"n": "B", "c": 3, "h": 3, "w": 3, "o": 3, "r": 3, "s": 3},
    )


def _convolved(layout: str, kernel: str) -> Callable[..., Any]:
    def expected(x: Any, w: Any) -> Any:
        x, w = np.einsum(f"{layout}->NCHW", x), np.einsum(f"{kernel}->OIHW", w)
        wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), axis=(2, 3))
        return np.einsum(f"NCHW->{layout}", np.einsum("nchwrs,ocrs->nohw", windows, w))

    return expected


# Spec, and the result in float64 of its tensors by position.
KINDS: dict[str, tuple[dict[str, Any], Callable[..., Any]]] = {
    "weight first": (
        _dense("weight-first", "WX", "nk,mk->mn", W="nk", X="mk"),
        lambda w, x: np.einsum("nk,mk->mn", w, x),
    ),
    "names against the alphabet": (
        _dense("alphabet", "XA", "mk,nk->mn", X="mk", A="nk"),
        lambda x, a: np.einsum("mk,nk->mn", x, a),
    ),
    "output transposed": (
        _dense("transposed", "XW", "mk,nk->nm", X="mk", W="nk"),
        lambda x, w: np.einsum("mk,nk->nm", x, w),
    ),
    "epilogue": (
        _dense("steps", "WX", "nk,mk->mn", {"residual": "R"}, "relu", {"residual": "B"}, W="nk", X="mk"),
        lambda w, x, r, b: np.maximum(np.einsum("nk,mk->mn", w, x) + r, 0) + b,
    ),
    "NCHW": (_conv("NCHW", "OIHW"), _convolved("NCHW", "OIHW")),
    "NHWC": (_conv("NHWC", "HWIO"), _convolved("NHWC", "HWIO")),
    "block": (
        block_data(
            "weight-first-block",
            {"P": {"einsum": ["X", "W"], "dims": "mn"}, "Y": {"sub": ["P", "R"]}},
            ["Y"],
            tensors={one: {"dims": dims, **FLOAT} for one, dims in (("R", "mn"), ("W", "nk"), ("X", "mk"))},
            shape_vars={"M": {"min": 1, "max": N}},
            dims={"m": "M", "n": N, "k": N},
        ),
        lambda r, w, x: np.einsum("mk,nk->mn", x, w) - r,
    ),
}


def _arrays(library: Any) -> list[Any]:
    """Values of each tensor by position; every shape is the same."""
    generator = np.random.default_rng(0)
    sizes = [3] * 4 if "conv2d" in library.manifest["workload"]["op"] else [N] * 2
    return [generator.standard_normal(sizes, dtype=np.float32) for _ in library.manifest["argument_order"]]


@pytest.mark.parametrize("name", KINDS)
def test_positional_arguments_are_those_of_the_spec(name: str) -> None:
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    spec, expected = KINDS[name]
    library = dietcode.load(built_of(json.dumps(spec)))
    given = _arrays(library)
    names = library.manifest["argument_order"]
    assert names[: len(spec["tensors"])] == list(spec["tensors"])
    right = expected(*(one.astype(np.float64) for one in given))
    tensors = [torch.from_numpy(one) for one in given]
    first, *others = names
    op = library.torch_op()
    calls: dict[str, Callable[[], Any]] = {
        "call": lambda: library(*given),
        "one by name": lambda: library(*given[:-1], **{names[-1]: given[-1]}),
        "all by name": lambda: library(**dict(zip(reversed(names), reversed(given), strict=True))),
        "bind": lambda: library.bind()(*given),
        "bind all but the first": lambda: library.bind(**dict(zip(others, given[1:], strict=True)))(given[0]),
        "bind the first": lambda: library.bind(**{first: given[0]})(*given[1:]),
        "torch_op": lambda: op(*tensors),
        "torch_op binds the first": lambda: library.torch_op(**{first: tensors[0]})(*tensors[1:]),
        "registered operator": lambda: getattr(torch.ops.dietcode, op._operator.name.split(":")[-1])(
            *tensors
        ),
    }
    for kind, call in calls.items():
        for _ in range(2):  # the second goes the short way
            assert error(call(), right) <= SAFE_ERROR, kind


def test_a_layer_takes_a_library_whose_spec_lists_the_weight_first() -> None:
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    spec = KINDS["weight first"][0]
    tensors = spec["tensors"] | {"W": spec["tensors"]["W"] | {"constant": True}}
    linear, x = torch.nn.Linear(N, N), torch.randn(N, N)
    for changes in ({}, {"tensors": tensors}):
        library = dietcode.load(built_of(json.dumps(spec | changes)))
        layer = dietcode.nn.Linear.from_torch(linear, library)
        with torch.no_grad():
            assert error(layer(x), linear.double()(x.double()).numpy()) <= SAFE_ERROR
        linear.float()


PROGRAM = """
#include "nchw.h"
int main(int count, char **words) {
  float x[81], w[81], y[81];
  nchw_library library;
  char why[512];
  for (int i = 0; i < 81; i++) x[i] = (float)(i % 7), w[i] = (float)(i % 5);
  if (count < 3 || nchw_load(&library, words[1], words[2], 2) || nchw_run(&library, x, w, y, 3)) {
    fprintf(stderr, "%s\\n", dietcode_error(why, sizeof why));
    return 1;
  }
  for (int i = 0; i < 81; i++) printf("%.9g ", y[i]);
  nchw_free(&library);
  return 0;
}
"""


def test_a_program_in_c_passes_them_in_that_order(tmp_path: Path) -> None:
    """`dietcode::Library` of C++ passes on what it is given, in the order of the manifest."""
    folder = built_of(json.dumps(KINDS["NCHW"][0]))
    (tmp_path / "call.c").write_text(PROGRAM)
    (tmp_path / "nchw.h").write_text(c_header(read_manifest(folder)))
    ffi = Path(tvm_ffi.libinfo.find_libtvm_ffi())
    headers = [word for path in tvm_ffi.libinfo.include_paths() for word in ("-isystem", path)]
    linked = [*headers, "-I.", ffi, f"-Wl,-rpath,{ffi.parent}", "-o", "call"]
    subprocess.run(["cc", "-std=c11", "call.c", *linked], check=True, cwd=tmp_path)
    words = [tmp_path / "call", folder / "library.so", LAUNCHER]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    x, w = (np.arange(81).reshape(3, 3, 3, 3) % n for n in (7.0, 5.0))
    found = np.array(done.stdout.split(), np.float64).reshape(3, 3, 3, 3)
    assert error(found, KINDS["NCHW"][1](x, w)) <= SAFE_ERROR


def test_a_library_with_the_order_of_its_kernels_is_refused(tmp_path: Path) -> None:
    """Earlier versions wrote such."""
    folder = tmp_path / "library"
    source = built_of(json.dumps(KINDS["NCHW"][0]))
    write_folder(folder, {path.name: path.read_bytes() for path in source.iterdir()})
    rewrite_manifest(folder, argument_order=["W", "X"])
    with pytest.raises(
        LibraryError, match=r"in the order \['W', 'X'\], but the spec has \['X', 'W'\]; tune again"
    ):
        dietcode.load(folder)
