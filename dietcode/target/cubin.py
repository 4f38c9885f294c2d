"""Reading machine code for a GPU: what a cubin holds, by its ELF sections. Needs no CUDA.

Of each kernel ``.text.NAME`` holds the code, ``.nv.shared.NAME`` says how much shared memory it declares, and
``.nv.info`` how many registers a thread takes and how large its stack is: what does not fit in registers is
spilled there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from dietcode.errors import TuningError

EM_CUDA = 190
_MAGIC = b"\x7fELF"
_SECTION = struct.Struct("<IIQQQQIIQQ")  # Elf64_Shdr
_SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym
_SYMTAB = 2
_SIZED_ATTRIBUTE = 0x04  # of .nv.info: a size, and so many bytes; others carry a value of two bytes
_REGCOUNT, _FRAME_SIZE = 0x2F, 0x11
_RESERVED = ".nv.shared.reserved.0"  # from sm_90 on what the system takes is counted in with the kernel's
_RESERVED_BYTES = 1024


@dataclass(frozen=True)
class KernelFacts:
    """Resources of one kernel.

    Attributes
    ----------
    registers : int
        Of a thread.
    shared_bytes : int
        Of a block: what the code declares and what launches request, without what the system takes.
    stack_bytes : int
        Local memory of a thread: spilled registers, and arrays that are indexed at run time.
    code_bytes : int
    classes : int
        Alignment classes that the code has block functions for, where it is a micro-kernel's.
    """

    registers: int
    shared_bytes: int
    stack_bytes: int
    code_bytes: int
    classes: int = 1

    def to_json(self) -> dict[str, int]:
        """Return plain data for a report and for records; without `classes` where there is one."""
        return {name: value for name, value in asdict(self).items() if name != "classes" or value > 1}


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    link: int
    info: int
    size: int
    data: bytes


def check_machine_code(cubin: bytes, what: str) -> None:
    """Refuse anything but machine code for a GPU, such as text that a driver would compile.

    Raises
    ------
    TuningError
        It is something else.
    """
    if len(cubin) < 64 or cubin[:4] != _MAGIC or struct.unpack_from("<H", cubin, 18)[0] != EM_CUDA:
        raise TuningError(f"{what}: no machine code for a GPU but {cubin[:16]!r}; nothing is packed")


def read_kernels(
    cubin: bytes, what: str = "cubin", asked_bytes: Mapping[str, int] | None = None
) -> dict[str, KernelFacts]:
    """Return the facts of all kernels by name.

    Parameters
    ----------
    asked_bytes : mapping of str to int, optional
        Shared memory that the launches of each kernel request, which its code does not declare.

    Raises
    ------
    TuningError
        It is not machine code, or holds no kernel.
    """
    check_machine_code(cubin, what)
    try:
        sections = list(_sections(cubin))
        names = _symbol_names(sections)
        attributes = _attributes(sections, names)
    except (struct.error, IndexError, ValueError) as error:
        raise TuningError(f"{what}: its sections cannot be read: {error}") from error
    counted = _RESERVED_BYTES if any(s.name == _RESERVED for s in sections) else 0
    shared = {
        s.name[len(".nv.shared.") :]: max(0, s.size - counted)
        for s in sections
        if s.name.startswith(".nv.shared.") and s.name != _RESERVED
    }
    found = {}
    for section in sections:
        if section.name.startswith(".text."):
            name = section.name[len(".text.") :]
            # Toolkits before 13 keep the count of registers in the section's header as well.
            registers = attributes.get((_REGCOUNT, name), section.info >> 24)
            stack = attributes.get((_FRAME_SIZE, name), 0)
            asked = (asked_bytes or {}).get(name, 0)
            found[name] = KernelFacts(registers, shared.get(name, 0) + asked, stack, section.size)
    if not found:
        raise TuningError(f"{what}: holds no kernel")
    return found


def _sections(cubin: bytes) -> Iterator[_Section]:
    offset = struct.unpack_from("<Q", cubin, 40)[0]
    size, count, names_index = struct.unpack_from("<HHH", cubin, 58)
    if size != _SECTION.size:
        raise ValueError(f"section headers of {size} bytes")
    headers = [_SECTION.unpack_from(cubin, offset + i * size) for i in range(count)]
    names = headers[names_index]
    for name, kind, _flags, _address, start, length, link, info, _align, _entry in headers:
        end = cubin.index(b"\0", names[4] + name)
        data = b"" if kind == 8 else cubin[start : start + length]  # SHT_NOBITS has no bytes
        yield _Section(cubin[names[4] + name : end].decode(), kind, link, info, length, data)


def _symbol_names(sections: list[_Section]) -> list[str]:
    """Return the names of symbols by index."""
    for section in sections:
        if section.kind == _SYMTAB:
            strings = sections[section.link].data
            offsets = [entry[0] for entry in _SYMBOL.iter_unpack(section.data)]
            return [strings[offset : strings.index(b"\0", offset)].decode() for offset in offsets]
    return []


def _attributes(sections: list[_Section], names: list[str]) -> dict[tuple[int, str], int]:
    """Return the values of ``.nv.info`` by attribute and kernel; each is a symbol's index and a number."""
    found: dict[tuple[int, str], int] = {}
    for section in sections:
        at = 0
        while section.name == ".nv.info" and at + 4 <= len(section.data):
            form, attribute, value = struct.unpack_from("<BBH", section.data, at)
            at += 4
            if form != _SIZED_ATTRIBUTE:
                continue
            if value == 8:
                symbol, number = struct.unpack_from("<II", section.data, at)
                found[attribute, names[symbol]] = number
            at += value
    return found
