"""Small helpers over TVM's IR builder for code of one thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.tir import DTYPE, i64


def local(name: str, size: int, dtype: str = DTYPE) -> Any:
    """Allocate a buffer of one thread, in registers once its loops are unrolled."""
    buffer = T.alloc_buffer((size,), dtype, scope="local")
    IRBuilder.name(name, buffer)
    return buffer


def once(name: str, value: Any) -> Any:
    """Compute a value once: the simplifier would repeat it wherever a variable is used."""
    slot = local(name, 1, str(value.ty))
    T.buffer_store(slot, value, [0])
    return slot[0]


def wide(value: Any) -> Any:
    """Return an integer expression as int64."""
    return value if str(value.ty) == "int64" else tirx.Cast("int64", value)


def narrow(value: Any) -> Any:
    """Return an integer expression that is known to be small as int32."""
    return tirx.Cast("int32", value)


def aligned(offset: Any, width: int) -> Any:
    """Return an offset that is a multiple of `width` in a form that shows this to code generation."""
    if width == 1:
        return offset
    multiple = i64(width) if str(offset.ty) == "int64" else tirx.IntImm("int32", width)
    return tirx.truncdiv(offset, multiple) * multiple


@contextmanager
def only_if(condition: Any | None) -> Iterator[None]:
    """Emit statements under a condition, or without one where it is None."""
    if condition is None:
        yield
        return
    with T.If(condition), T.Then():
        yield


def both(*conditions: Any | None) -> Any | None:
    """Return the conjunction of the conditions that are not None; None where all are."""
    result: Any = None
    for condition in conditions:
        if condition is not None:
            result = condition if result is None else tirx.And(result, condition)
    return result


def sync() -> None:
    """Wait for all threads of the block."""
    T.evaluate(T.tvm_storage_sync("shared"))


def sync_warp() -> None:
    """Wait for the other lanes of the warp."""
    run("__syncwarp")


def run(function: str, *arguments: Any) -> None:
    """Call a device function of the generated text, see `dietcode.search_space.cuda.instructions`."""
    T.evaluate(tirx.call_extern("void", function, *arguments))
