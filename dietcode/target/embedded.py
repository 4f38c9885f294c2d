"""Machine code for GPUs inside of a ``library.so``, found by its ELF headers. Needs no CUDA."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence

from dietcode.errors import LibraryError, TuningError
from dietcode.target.cubin import EM_CUDA, read_kernels
from dietcode.target.cuda import ARCHS, CudaTarget

_MAGIC = b"\x7fELF"
_HEADER_BYTES = 64
_MACHINE, _FLAGS, _ABI = 18, 48, 8  # offsets
_SHIFTED_ABI = 8  # from CUDA 13 on the architecture's number is in the second byte of the flags


def check_embedded(code: bytes, archs: Sequence[str], kernels: Mapping[str, Mapping[str, object]]) -> None:
    """Check that a library holds machine code for each architecture that it names.

    Parameters
    ----------
    code : bytes
        ``library.so``.
    archs : sequence of str
        As the manifest names them.
    kernels : mapping
        Names of the functions by architecture, as the report has them under ``machine_code``.

    Raises
    ------
    LibraryError
        An architecture is unknown or has no machine code, or the code lacks a function.
    """
    if not archs or not set(archs) <= set(ARCHS):
        raise LibraryError(f"it names the architectures {list(archs)}; allowed: {', '.join(ARCHS)}")
    found: dict[int, list[set[str]]] = {}
    for number, names in _images(code):
        found.setdefault(number, []).append(names)
    for arch in archs:
        needed = set(kernels.get(arch, ()))
        images = found.get(CudaTarget(arch).number, [])
        if not images:
            raise LibraryError(f"library.so holds no machine code for {arch}; build it with the extra cuda")
        if not needed or not any(needed <= names for names in images):
            raise LibraryError(f"library.so lacks functions for {arch} that its report names; build it anew")


def _images(code: bytes) -> Iterator[tuple[int, set[str]]]:
    """Yield the number of the architecture and the names of the functions of each ELF file for GPUs."""
    at = code.find(_MAGIC, 1)  # the library itself is an ELF file, too
    while 0 <= at <= len(code) - _HEADER_BYTES:
        if struct.unpack_from("<H", code, at + _MACHINE)[0] == EM_CUDA:
            flags = struct.unpack_from("<I", code, at + _FLAGS)[0]
            number = (flags >> 8 if code[at + _ABI] >= _SHIFTED_ABI else flags) & 0xFF
            try:
                yield number, set(read_kernels(code[at:], "library.so"))
            except TuningError as error:
                raise LibraryError(str(error)) from error
        at = code.find(_MAGIC, at + 1)
