"""What goes in: Python's objects as words that the machine reads.

A value is two words: its kind, and a number: an int, the bits of a float, the number of a text, of an object
or of a tensor. First come the values of the entry's parameters, of each instance; then the objects, each its
record, its length, its number, a 0, and its items. An object that is met again is the same one.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dietcode.errors import DietCodeError, TensorError
from dietcode.graph.extent import Extent
from dietcode.graph.tensor_type import TensorType
from dietcode.runtime.compiled import CompiledCall
from dietcode.runtime.models.model import input_array
from dietcode.runtime.native_loops import address_of
from dietcode.runtime.programs.machine import (
    BOOL,
    FLOAT,
    INT,
    LIST,
    NONE,
    RECORD,
    TENSOR,
    TEXT,
    TUPLE,
    float_bits,
)
from dietcode.runtime.programs.plan import ProgramPlan

if TYPE_CHECKING or CompiledCall is not None:
    from dietcode.runtime import compiled_call

OWN_TEXTS = 1 << 32  # the numbers of texts that are no constants of the program
_INT64 = range(-(2**63), 2**63)
_TYPE_SHIFT = 8  # of a tensor's type beside its kind
_CODES = {"i": (0, b"i"), "f": (2, b"f")}  # DLPack's, and the buffer protocol's
Said = tuple[int, int, Any, bool]  # kind, number, what has to be kept, and whether it is PyTorch's


class Integers(NamedTuple):
    """Integers of 64 bits, which somebody else keeps."""

    address: int
    length: int


@dataclass
class EncodedInstances:
    """The instances of a call as the machine takes them.

    Attributes
    ----------
    owner : object
        What has the memory of words and tensors.
    words : Integers
    num_objects : int
    tensors : Integers
        Type and address of each.
    texts : tuple of str
        Those that are no constants, the first of number `OWN_TEXTS`.
    beside_torch : bool
        Whether a tensor is PyTorch's.
    kept : list
        What has the tensors' memory.
    """

    owner: Any
    words: Integers
    num_objects: int
    tensors: Integers
    texts: tuple[str, ...]
    beside_torch: bool
    kept: list[Any]


class InstanceEncoder:
    """What is known of a program's values and of the classes of objects that it was called with.

    Parameters
    ----------
    plan : ProgramPlan
    in_c : bool
        Whether the way in C is taken, where this installation has it.
    """

    def __init__(self, plan: ProgramPlan, in_c: bool = True) -> None:
        self._plan = plan
        self._num_parameters = plan.functions[plan.entry].parameters
        numbered = reversed(list(enumerate(plan.constants)))
        self.texts = {one: number for number, one in numbered if isinstance(one, str)}
        shapes = [tuple(extent.constant for extent in type_.shape) for type_ in plan.types]
        dtypes = [np.dtype(type_.dtype) for type_ in plan.types]
        self._types = {key: number for number, key in enumerate(zip(dtypes, shapes, strict=True))}
        self._in_c = in_c and CompiledCall is not None
        self._facts = tuple((*_CODES[dtype.kind], shape) for dtype, shape in zip(dtypes, shapes, strict=True))
        # Of each class that came, with its fields, and whether only an object's own attributes are read.
        self.records: dict[type, tuple[int, tuple[str, ...], bool]] = {}

    def encode(self, instances: list[Any]) -> EncodedInstances:
        """Return instances as words.

        Raises
        ------
        TensorError
            An instance has something that programs have not, or a tensor of another type.
        """
        count = self._num_parameters
        for number, one in enumerate(instances if count > 1 else ()):
            if not isinstance(one, tuple) or len(one) != count:
                given = f"{len(one)} values" if isinstance(one, tuple) else type(one).__name__
                raise TensorError(
                    f"instance {number}: {given}; allowed: a tuple of {count}, one for each parameter"
                )
        if not self._in_c:
            return _InstanceWriter(self).written(instances, count, self._plan.changes)
        asked = self.other, in_instance
        owner, words, num_objects, tensors, texts, beside_torch, kept = compiled_call.encode(
            instances, count, self._plan.changes, self.texts, self.records, self._facts, np.ndarray, asked
        )
        own = Integers(*words), num_objects, Integers(*tensors), tuple(texts), beside_torch, kept
        return EncodedInstances(owner, *own)

    def other(self, value: Any) -> Said:
        """Return what a value is that is no plain number, text, list or tuple, nor of a known class.

        Of a tensor, the number is its address; of a text, it is what is kept.

        Raises
        ------
        TensorError
            Programs have none of this kind, or this program none of this dtype and shape.
        """
        cls = type(value)
        if cls is int:
            raise TensorError(f"the number {value}; allowed: 64 bits")
        is_sequence = isinstance(value, list | tuple)
        plain = None if is_sequence else plain_value(value)
        if isinstance(plain, str):
            return TEXT, 0, plain, False
        if plain is not None:
            return _number(plain)
        found = None if is_sequence else self._tensor(value)
        if found is not None:
            return found
        record = self._record_of(value)
        if record is not None:
            self.records[cls] = (*record, has_own_attributes(cls, record[1]))
            return RECORD, 0, None, False
        if is_sequence:
            return LIST if isinstance(value, list) else TUPLE, 0, None, False
        own = [one for one in self._plan.records if one[0] != "dict"]  # which no instance has
        records = [f"objects as {name}({', '.join(fields)})" for name, fields in own]
        allowed = ", ".join(["numbers", "texts", "lists", "tuples", "tensors", *records])
        raise TensorError(f"a {cls.__name__}; allowed: {allowed}")

    def _record_of(self, value: Any) -> tuple[int, tuple[str, ...]] | None:
        """Return the record that an object is, the one of its class's name first; None for none."""
        name = type(value).__name__
        fits = [
            (one[0] != name, number, one[1])
            for number, one in enumerate(self._plan.records)
            if all(hasattr(value, field) for field in one[1])
        ]
        if isinstance(value, list | tuple):  # a class of its own, as namedtuple makes them
            fits = [one for one in fits if not one[0]]
        return min(fits)[1:] if fits else None

    def _tensor(self, value: Any) -> Said | None:
        if type(value) is np.ndarray and value.flags.c_contiguous and value.shape:
            type_ = self._types.get((value.dtype, value.shape))
            if type_ is not None:
                return TENSOR | type_ << _TYPE_SHIFT, address_of(value), value, False
        torch = sys.modules.get("torch")
        is_torch = torch is not None and isinstance(value, torch.Tensor)
        if not is_torch and not isinstance(value, np.ndarray) and not hasattr(value, "__dlpack__"):
            return None
        dtype, shape = str(value.dtype).rpartition(".")[2], tuple(value.shape)
        is_list = bool(shape) and dtype in ("int32", "int64")  # programs have whole numbers one by one
        type_ = self._types.get((np.dtype(dtype), shape)) if dtype == "float32" else None
        if type_ is None and not is_list and (shape or not dtype.startswith("int")):
            allowed = ", ".join(map(str, self._plan.types))
            raise TensorError(f"a tensor {dtype}[{', '.join(map(str, shape))}]; allowed: {allowed}")
        own, _ = input_array("a tensor", value, TensorType(dtype, tuple(map(Extent.of, shape))))
        if is_list:
            return LIST, 0, own.tolist(), is_torch
        if not shape and own.dtype.kind == "i":
            return INT, int(own), None, is_torch
        return TENSOR | (type_ or 0) << _TYPE_SHIFT, address_of(own), own, is_torch


class _InstanceWriter:
    """The words of one call: objects are numbered as they are met, and written in that order."""

    def __init__(self, encoder: InstanceEncoder) -> None:
        self._encoder = encoder
        self._words, self._tensor_words = array("q"), array("q")
        self._numbers: dict[int, int] = {}
        self._texts: dict[str, int] = {}
        self._tensors: dict[int, int] = {}
        self._waiting: list[Any] = []
        self._kept: list[Any] = []
        self._beside_torch = False

    def written(self, instances: Sequence[Any], num_parameters: int, is_alone: bool) -> EncodedInstances:
        """Return all words; instances that are alone share no object with another."""
        roots, next_one = array("q"), 0
        for number, one in enumerate(instances):
            if is_alone:
                self._numbers.clear()
            try:
                for value in one if num_parameters > 1 else (one,):
                    roots.extend(self._value(value))
                while next_one < len(self._waiting):
                    self._object(self._waiting[next_one])
                    next_one += 1
            except Exception as error:
                raise in_instance(number, error) from error
        words = roots + self._words
        owner = words, self._tensor_words
        addresses = [Integers(*one.buffer_info()) for one in owner]
        texts, kept = tuple(self._texts), self._kept
        return EncodedInstances(
            owner, addresses[0], len(self._waiting), addresses[1], texts, self._beside_torch, kept
        )

    def _object(self, value: Any) -> None:
        number, names, _ = self._encoder.records.get(type(value), (0, None, False))
        items = value if names is None else [getattr(value, name) for name in names]
        words = [number, len(items), self._numbers[id(value)], 0]
        for one in items:
            words += self._value(one)
        self._words.extend(words)

    def _value(self, value: Any) -> tuple[int, int]:
        cls = type(value)
        if value is None:
            return NONE, 0
        if cls is bool or cls is float or (cls is int and value in _INT64):
            return _number(value)[:2]
        if cls is str:
            return TEXT, self._text(value)
        if cls is list or cls is tuple or cls in self._encoder.records:
            return LIST if cls is list else TUPLE if cls is tuple else RECORD, self._numbered(value)
        kind, number, kept, is_torch = self._encoder.other(value)
        self._beside_torch |= is_torch
        if kind in (RECORD, LIST, TUPLE):
            number = self._numbered(value if kept is None else kept)
        elif kind & 255 == TENSOR:
            number = self._tensor(value, kind >> _TYPE_SHIFT, number, kept)
        elif kind == TEXT:
            number = self._text(kept)
        return kind & 255, number

    def _text(self, text: str) -> int:
        known = self._encoder.texts.get(text)
        return OWN_TEXTS + self._texts.setdefault(text, len(self._texts)) if known is None else known

    def _numbered(self, value: Any) -> int:
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._waiting)
            self._waiting.append(value)
        return number

    def _tensor(self, value: Any, type_: int, address: int, kept: Any) -> int:
        number = self._tensors.get(id(value))
        if number is None:
            number = self._tensors[id(value)] = len(self._tensor_words) // 2
            self._tensor_words.extend((type_, address))
            self._kept += (value, kept)
        return number


def in_instance(number: int, error: Exception) -> Exception:
    """Return an error that says of which instance it is; those that are none of ours stay as they are."""
    return TensorError(f"instance {number}: {error}") if isinstance(error, DietCodeError) else error


def _number(value: bool | int | float) -> Said:
    if isinstance(value, float):
        return FLOAT, float_bits(value), None, False
    return BOOL if isinstance(value, bool) else INT, int(value), None, False


def has_own_attributes(cls: type, names: Iterable[str]) -> bool:
    """Whether reading these attributes gives what an object itself has, or a number, a text or None.

    One that is computed, or that a class has, may give the same list or object to several.
    """
    bases = [vars(base) for base in cls.__mro__ if base is not object]
    if any("__getattribute__" in one or "__getattr__" in one for one in bases):
        return False
    shared = (one[name] for name in names for one in bases if name in one)
    plain = MemberDescriptorType | bool | int | float | str | None
    return all(isinstance(one, plain) for one in shared)


def is_same(left: Any, right: Any) -> bool:
    """Return ``left is right`` of values of a program; members of an Enum are texts there."""
    return left is right or (isinstance(left, str) and left == right)


def find(items: Sequence[Any], key: Any) -> int:
    """Return where the first item is that equals a key, or -1."""
    return next((at for at, own in enumerate(items) if own == key), -1)


def concatenated(texts: Sequence[str]) -> str:
    """Return texts, one behind the other."""
    return "".join(texts)


def characters(text: str) -> list[str]:
    """Return the characters of a text."""
    return list(text)


def parsed(text: str) -> float | None:
    """Return the number that a text is; None for one that is none."""
    try:
        return float(text)
    except ValueError:
        return None


def plain_value(value: Any) -> bool | int | float | str | None:
    """Return what a scalar of NumPy's, or a number or text of a class of its own, is; None for all else.

    A member of an Enum that is neither number nor text is the text of its class and name.
    """
    if isinstance(value, Enum):
        own = value.value if isinstance(value, int | float | str) else f"{type(value).__name__}.{value.name}"
        return plain_value(own)
    if isinstance(value, np.generic):
        plain = value.item()
        return plain if isinstance(plain, bool | int | float | str) else None
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return None
