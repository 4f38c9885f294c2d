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
_ANY_VALUE = 15  # kTVMFFIAnyUnionValue of tirx.builtin.TVMStructFieldKind
_SCOPE = contextvars.ContextVar("_SCOPE", default="global")

warnings.filterwarnings("ignore", message=r"T\.var is deprecated", category=DeprecationWarning)


def i64(value: int) -> Any:
    """Return an int64 constant; int32 mixed with a symbolic int64 extent fails at build time."""
    return tirx.IntImm("int64", int(value))


def as_int64(value: Any) -> Any:
    """Return a number as an int64 constant, and an expression as it is."""
    return i64(value) if isinstance(value, int) else value


def small_buffer(size: int, dtype: str = DTYPE) -> Any:
    """Allocate a buffer of `size` elements, below 1024 bytes on the stack, and in registers where LLVM can.

    TVM allocates every buffer of scope ``local`` on the heap in each task, fifty of them for a tile of 14x32,
    but leaves small ones of scope ``global`` on the stack, which makes calls of a few microseconds 1.3 to 1.4
    times faster. A layout that is left to TVM is none, too, in a function of ``s_tir``, as all are here; to
    find that out TVM copies its list of frames for each of thousands of buffers.
    """
    return T.alloc_buffer((i64(size),), dtype, scope=_SCOPE.get(), layout=None)


def address_of(buffer: Any) -> Any:
    """Return the address of a buffer's first element, an int64 expression.

    TIR has no cast of a pointer to an integer: it is written to a slot of tvm-ffi's and read back, which LLVM
    makes nothing of.
    """
    slot = T.Bind(T.tvm_stack_alloca("tvm_ffi_any", 1))
    T.evaluate(T.tvm_struct_set(slot, 0, _ANY_VALUE, buffer.data))
    return T.tvm_struct_get(slot, 0, _ANY_VALUE, "int64")


@contextmanager
def small_buffers_in(scope: str) -> Iterator[None]:
    """Allocate small buffers in another scope meanwhile: ``local`` is that of a GPU thread."""
    token = _SCOPE.set(scope)
    try:
        yield
    finally:
        _SCOPE.reset(token)


@contextmanager
def workspace(size: Any) -> Iterator[Any]:
    """Yield a buffer of `size` float32 elements from TVM's workspace pool.

    This is what ``T.alloc_buffer`` becomes, but StorageRewrite would move a large allocation to the begin of
    the function, out of the scope that declares its device, which does not compile.
    """
    num_bytes = (size * _FLOAT_BYTES).astype("uint64")
    call = T.TVMBackendAllocWorkspace(CPU, 0, num_bytes, _DLPACK_FLOAT, 8 * _FLOAT_BYTES)
    pointer = T.Bind(ir.Call(call.op, call.args, ret_ty=ir.PointerType(ir.PrimType(DTYPE))))
    with T.If(T.isnullptr(pointer)), T.Then():
        T.evaluate(T.tvm_throw_last_error())
    # The declared extent is no bound; an expression in it would have to be known before it is computed.
    yield T.decl_buffer((i64(_MAX_ELEMENTS),), DTYPE, data=pointer)
    T.evaluate(T.TVMBackendFreeWorkspace(CPU, 0, pointer))


class TirOps:
    """`dietcode.search_space.partition.Ops` over TIR expressions."""

    def floordiv(self, a: Any, b: Any) -> Any:
        """Divide non-negative integers; with truncation the compiler need not prove the sign."""
        return tirx.truncdiv(as_int64(a), as_int64(b))

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        """Return a select without branches."""
        return tirx.Select(condition, as_int64(a), as_int64(b))

    def maximum(self, a: Any, b: Any) -> Any:
        """Return the larger of the two."""
        return tirx.max(as_int64(a), as_int64(b))

    def bind(self, value: Any) -> Any:
        """Return the value by way of a one-element buffer, which the simplifier does not substitute.

        Several passes substitute let-bound variables, and nested selects then grow without bound: one kernel
        took minutes in ``LowerIntrin``. LLVM turns the buffer back into a register.
        """
        slot = small_buffer(1, "int64")
        T.buffer_store(slot, as_int64(value), [i64(0)])
        return slot[i64(0)]


def ramp(base: Any, lanes: int) -> Any:
    """Return ``base + 0…lanes-1`` as a vector index."""
    return tirx.Ramp(as_int64(base), i64(1), lanes)


def splat(value: Any, lanes: int) -> Any:
    """Return a vector with the scalar in every lane; the scalar itself for one lane."""
    return tirx.Broadcast(value, lanes) if lanes > 1 else value


def load(buffer: Any, index: Sequence[Any], lanes: int) -> Any:
    """Return `lanes` consecutive elements along the last axis of `buffer`."""
    if lanes == 1:
        return buffer[tuple(as_int64(i) for i in index)]
    return buffer.vload([as_int64(i) for i in index], f"{buffer.dtype}x{lanes}")


def store(buffer: Any, value: Any, index: Sequence[Any], lanes: int) -> None:
    """Write `lanes` consecutive elements along the last axis of `buffer`.

    Parameters
    ----------
    value : expression [lanes]
    index : sequence of int or expression
        Of the first element, one for each axis.
    """
    *outer, last = [as_int64(i) for i in index]
    T.buffer_store(buffer, value, [*outer, ramp(last, lanes) if lanes > 1 else last])


def first_lanes(count: Any, lanes: int) -> Any:
    """Return a mask of the first `count` lanes: no lane below 1, all from `lanes` on."""
    bounded = tirx.max(tirx.min(as_int64(count), i64(lanes)), i64(0)).astype("int32")
    zero, one = (tirx.IntImm("int32", n) for n in (0, 1))
    return tirx.Ramp(zero, one, lanes) < tirx.Broadcast(bounded, lanes)


def load_masked(buffer: Any, index: Any, lanes: int, mask: Any) -> Any:
    """Return what `load` does, zero in lanes outside the mask, where nothing is read.

    Parameters
    ----------
    index : expression
        Of the first lane in a buffer of one axis.
    mask : boolean vector [lanes]
    """
    zero = splat(tirx.const(0, buffer.dtype), lanes)
    address = tirx.address_of(buffer[as_int64(index)])
    return tirx.call_llvm_intrin(f"{buffer.dtype}x{lanes}", "llvm.masked.load", address, mask, zero)


def store_masked(buffer: Any, value: Any, index: Any, mask: Any) -> None:
    """Write the lanes of the mask.

    Parameters
    ----------
    index : expression
        Of the first lane in a buffer of one axis.
    mask : boolean vector [lanes]
    """
    address = tirx.address_of(buffer[as_int64(index)])
    T.evaluate(tirx.call_llvm_intrin("void", "llvm.masked.store", value, address, mask))


def prefetch(buffer: Any, index: Any, level: int = 0, for_writing: bool = False) -> None:
    """Prefetch a cache line; an address past the buffer's end does no harm.

    `level` is 0 for all caches, or `FROM_L2` for all but L1. A line that is fetched for writing is this
    core's alone.
    """
    address = tirx.address_of(buffer[as_int64(index)])
    writes, near, data = (tirx.IntImm("int32", n) for n in (int(for_writing), _NEAREST - level, 1))
    T.evaluate(tirx.call_llvm_intrin("void", "llvm.prefetch", address, writes, near, data))


def call(function: ir.GlobalVar, arguments: Sequence[Any]) -> None:
    """Call a private function of the same module that returns an int32 status."""
    T.evaluate(ir.Call(function, list(arguments), ret_ty=INT32))


def script_of(program: Any) -> str:
    """TVMScript of a function or module, alike under every Python: TVM itself takes the newest syntax.

    A function outside of a module is called main.
    """
    return str(program.script(show_meta=False, extra_config={"script.use_pep695": False}))
