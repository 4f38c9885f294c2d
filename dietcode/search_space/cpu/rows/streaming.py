"""Stores past the caches, for outputs that do not stay in them: memory is then not read before it is written.

TIR has no such store, so it is a function in LLVM's own text, which is inlined. An address that is no
multiple of a vector's bytes gets an ordinary store.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.tir import as_int64, i64

_STORE, _FENCE = "dietcode_stream_store", "dietcode_stream_fence"
_FLOAT_BYTES = 4


@contextmanager
def streaming(lanes: int) -> Iterator[None]:
    """Define the functions of this module for what is emitted meanwhile."""
    with T.attr(i64(0), "pragma_import_llvm", _text(lanes)):
        yield


def stream(buffer: Any, value: Any, index: Any) -> None:
    """Write a whole vector.

    Parameters
    ----------
    index : expression
        Of the first lane in a buffer of one axis.
    """
    address = tirx.address_of(buffer[as_int64(index)])
    T.evaluate(tirx.call_extern("int32", _STORE, address, value))


def finish_streams() -> None:
    """Order what this core has written before what it does next, as telling others that it is done."""
    T.evaluate(tirx.call_extern("int32", _FENCE))


def _text(lanes: int) -> str:
    num_bytes = lanes * _FLOAT_BYTES
    return f"""
define linkonce_odr i32 @{_STORE}(ptr %first, <{lanes} x float> %value) alwaysinline {{
  %address = ptrtoint ptr %first to i64
  %rest = and i64 %address, {num_bytes - 1}
  %aligned = icmp eq i64 %rest, 0
  br i1 %aligned, label %past, label %usual
past:
  store <{lanes} x float> %value, ptr %first, align {num_bytes}, !nontemporal !0
  ret i32 0
usual:
  store <{lanes} x float> %value, ptr %first, align {_FLOAT_BYTES}
  ret i32 0
}}
define linkonce_odr i32 @{_FENCE}() alwaysinline {{
  fence seq_cst
  ret i32 0
}}
!0 = !{{i32 1}}
"""
