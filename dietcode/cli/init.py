"""``dietcode init``: a spec to begin with, every field of which is explained."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Annotated

import typer

from dietcode.errors import DietCodeError, RequestError

_DEFAULT = Path("workload.yaml")
_NO_TEXT = {"true", "false", "null", "yes", "no", "on", "off"}  # in YAML

_HEAD = """\
# A workload for DietCode. docs/spec.md explains every field; those at the end may be left out.
#   dietcode check {file}
#   dietcode tune {file} -o build/{name}
name: {name}
"""

_EINSUM = """
# A dense layer, Y[m, n] = X[m, k] · W[n, k]ᵀ: an einsum of two operands, as NumPy's.
# The epilogue is fused: bias, relu, silu, tanh, sigmoid, hardswish, hardsigmoid, {clip: [0, 6]}, {gelu: erf},
# {gelu: tanh}, {scale: 0.125}, {residual: R}.
op: {einsum: "mk,nk->mn", epilogue: []}

# The operands, in the order of the einsum. What is constant, as a weight is, is packed once.
tensors:
  X: {dims: mk, dtype: float32}
  W: {dims: nk, dtype: float32, constant: true}

# What differs from call to call: one library serves the whole range.
shape_vars:
  T: {min: 1, max: 128}    # or {values: [1, 8, 64]}; with weights: {1: 0.7, 8: 0.3} where some matter more

# The extent of each index: a number, or sums and products of numbers and shape variables.
dims: {m: 16*T, n: 2304, k: 768}
"""

_CONV2D = """
# A convolution. strides, padding and dilation are one number, or one for height and one for width.
# The epilogue is fused: bias, relu, silu, tanh, sigmoid, hardswish, hardsigmoid, {clip: [0, 6]}, {gelu: erf},
# {gelu: tanh}, {scale: 0.125}, {residual: R}.
op: {conv2d: {strides: 1, padding: 1, data_layout: NHWC, kernel_layout: OIHW}, epilogue: []}

# The data, then the kernel: a letter for each axis of its layout. What is constant is packed once.
tensors:
  X: {dims: nhwc, dtype: float32}
  W: {dims: ocrs, dtype: float32, constant: true}

# What differs from call to call: one library serves the whole range.
shape_vars:
  B: {min: 1, max: 32}     # or {values: [1, 8, 32]}; with weights: {1: 0.7, 8: 0.3} where some matter more

# The extent of each index: a number, or sums and products of numbers and shape variables.
dims: {n: B, h: 56, w: 56, c: 64, o: 64, r: 3, s: 3}
"""

_TAIL = """
# What the result is called; its dtype may be float16 or bfloat16, which it is rounded to at the end.
# output: {name: Y, dtype: float32}
# accumulate: float32

# Whole shapes to tune for, where not all of the range matters.
# instances: [{VARIABLE: 1, weight: 2}, {VARIABLE: 8}]

# What to build for: left out, this machine's CPU.
# target: {kind: llvm}

# Tuning stops at the first that is reached.
# budget: {trials: 128, seconds: 300}

# Performance to give up for a smaller library; also max_loss, max_kernels, max_bytes.
# objective: {binary_size: 0.02}
"""


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="To write; - for standard output.")] = _DEFAULT,
    conv2d: Annotated[
        bool, typer.Option("--conv2d", help="A convolution, in place of a dense layer.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")] = False,
) -> None:
    """Write a spec to begin with, with a comment for each field."""
    if str(file) == "-":
        typer.echo(spec_text("workload.yaml", conv2d), nl=False)
        return
    try:
        with file.open("w" if force else "x", encoding="utf-8") as out:
            out.write(spec_text(str(file), conv2d))
    except FileExistsError:
        raise RequestError(f"{file}: is there already; --force overwrites it") from None
    except OSError as error:
        raise DietCodeError(f"{file}: cannot be written: {error.strerror}") from error
    typer.echo(f"{file}: written; next: dietcode check {file}")


def spec_text(file: str, conv2d: bool) -> str:
    """Return the text of a spec.

    Parameters
    ----------
    file : str
        What it will be called; its name without the ending is the workload's, where that is allowed.
    conv2d : bool
        A convolution, else a dense layer.
    """
    stem = Path(file).stem.lower()
    is_name = re.fullmatch(r"[a-z][a-z0-9._-]{0,63}", stem) and ".." not in stem and stem not in _NO_TEXT
    shown = shlex.quote(file) if file.isprintable() else "FILE"
    head = _HEAD.format(file=shown, name=stem if is_name else "workload")
    return head + (_CONV2D if conv2d else _EINSUM) + _TAIL.replace("VARIABLE", "B" if conv2d else "T")
