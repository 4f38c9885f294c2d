"""Small helpers over TVM's IR builder: int64 everywhere, vector loads and stores."""

from __future__ import annotations

import contextvars
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script.builder import ir as T

INT32 = ir.PrimType("int32")
DTYPE = "float32"
CPU = 1  # DLPack's kDLCPU
_DLPACK_FLOAT = 2
_FLOAT_BYTES = 4
_MAX_ELEMENTS = 1 << 40
_NEAREST = 3  # LLVM's locality of what goes to every cache
FROM_L2 = 1
_SCOPE = contextvars.ContextVar("_SCOPE", default="global")

warnings.filterwarnings("ignore", message=r"T\.var is deprecated", category=DeprecationWarning)


def i64(value: int) -> Any:
    """An int64 constant; int32 mixed with a symbolic int64 extent fails at build time."""
    return tirx.IntImm("int64", int(value))


def small_buffer(size: int, dtype: str = DTYPE) -> Any:
    """A buffer of `size` elements; below 1024 bytes on the stack, and in registers where LLVM can.

    TVM puts every buffer of scope ``local`` on the heap at each task, fifty of them for a tile of 14x32, but
    leaves small ones of scope ``global`` on the stack. Calls of a few microseconds become 1.3 to 1.4 times
    faster by that.
    """
    return T.alloc_buffer((i64(size),), dtype, scope=_SCOPE.get())


@contextmanager
def small_buffers_in(scope: str) -> Iterator[None]:
    """Keep small buffers of what is built meanwhile elsewhere: ``local`` is a GPU thread's own."""
    token = _SCOPE.set(scope)
    try:
        yield
    finally:
        _SCOPE.reset(token)


@contextmanager
def workspace(size: Any) -> Iterator[Any]:
    """A buffer of `size` float32 elements from TVM's workspace pool, while its user runs.

    What ``T.alloc_buffer`` becomes, written out: StorageRewrite moves a large allocation to the function's
    beginning, out of the scope that says on which device it is, which does not compile.
    """
    num_bytes = (size * _FLOAT_BYTES).astype("uint64")
    call = T.TVMBackendAllocWorkspace(CPU, 0, num_bytes, _DLPACK_FLOAT, 8 * _FLOAT_BYTES)
    pointer = T.Bind(ir.Call(call.op, call.args, ret_ty=ir.PointerType(ir.PrimType(DTYPE))))
    with T.If(T.isnullptr(pointer)), T.Then():
        T.evaluate(T.tvm_throw_last_error())
    # The declared extent is nobody's bound; a bound value in it would have to be known before it is computed.
    yield T.decl_buffer((i64(_MAX_ELEMENTS),), DTYPE, data=pointer)
    T.evaluate(T.TVMBackendFreeWorkspace(CPU, 0, pointer))


class TirOps:
    """`dietcode.search_space.partition.Ops` over TIR expressions."""

    def floordiv(self, a: Any, b: Any) -> Any:
        """Division of non-negative integers; truncation spares the compiler proving the sign."""
        return tirx.truncdiv(_expr(a), _expr(b))

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        """A select without branches."""
        return tirx.Select(condition, _expr(a), _expr(b))

    def maximum(self, a: Any, b: Any) -> Any:
        """The larger of the two."""
        return tirx.max(_expr(a), _expr(b))

    def bind(self, value: Any) -> Any:
        """A named value that the simplifier cannot see through.

        Let-bound variables are substituted back by several passes, and nested selects then grow without
        bound: one kernel took minutes in ``LowerIntrin``. A one-element buffer stops that, and LLVM turns
        it back into a register.
        """
        slot = small_buffer(1, "int64")
        T.buffer_store(slot, _expr(value), [i64(0)])
        return slot[i64(0)]


def _expr(value: Any) -> Any:
    return i64(value) if isinstance(value, int) else value


def ramp(base: Any, lanes: int) -> Any:
    """``base + 0…lanes-1`` as a vector index."""
    return tirx.Ramp(_expr(base), i64(1), lanes)


def splat(value: Any, lanes: int) -> Any:
    """A scalar in every lane; the scalar itself for one lane."""
    return tirx.Broadcast(value, lanes) if lanes > 1 else value


def load(buffer: Any, index: Sequence[Any], lanes: int) -> Any:
    """`lanes` consecutive elements along the last axis of `buffer`."""
    if lanes == 1:
        return buffer[tuple(_expr(i) for i in index)]
    return buffer.vload([_expr(i) for i in index], f"{buffer.dtype}x{lanes}")


def store(buffer: Any, value: Any, index: Sequence[Any], lanes: int) -> None:
    """Write `lanes` consecutive elements along the last axis of `buffer`."""
    *outer, last = [_expr(i) for i in index]
    T.buffer_store(buffer, value, [*outer, ramp(last, lanes) if lanes > 1 else last])


def first_lanes(count: Any, lanes: int) -> Any:
    """A mask of the first `count` lanes; of none, or all, where it is out of their range."""
    return ramp(i64(0), lanes) < tirx.Broadcast(_expr(count), lanes)


def load_masked(buffer: Any, index: Any, lanes: int, mask: Any) -> Any:
    """As `load`, zero in lanes that the mask leaves out; nothing is read there."""
    zero = splat(tirx.const(0, buffer.dtype), lanes)
    address = tirx.address_of(buffer[_expr(index)])
    return tirx.call_llvm_intrin(f"{buffer.dtype}x{lanes}", "llvm.masked.load", address, mask, zero)


def store_masked(buffer: Any, value: Any, index: Any, mask: Any) -> None:
    """As `store`, for the lanes of the mask."""
    address = tirx.address_of(buffer[_expr(index)])
    T.evaluate(tirx.call_llvm_intrin("void", "llvm.masked.store", value, address, mask))


def prefetch(buffer: Any, index: Any, level: int = 0) -> None:
    """Ask for a cache line that is read soon; an address past the buffer's end does no harm.

    `level` is 0 for all caches, or `FROM_L2` for all but L1.
    """
    address = tirx.address_of(buffer[_expr(index)])
    read, near, data = (tirx.IntImm("int32", n) for n in (0, _NEAREST - level, 1))
    T.evaluate(tirx.call_llvm_intrin("void", "llvm.prefetch", address, read, near, data))


def call(function: ir.GlobalVar, arguments: Sequence[Any]) -> None:
    """Call a private function of the same module that returns an int32 status."""
    T.evaluate(ir.Call(function, list(arguments), ret_ty=INT32))
