"""What goes in: Python's objects as words that the machine reads.

A value is two words: its kind, and a number: an int, the bits of a float, the number of a text, of an object
or of a tensor. First come the values of the entry's parameters, of each instance; then the objects, each its
record, its length, and its items. An object that is met again is the same one.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np

from dietcode.errors import TensorError
from dietcode.graph.tensor_type import TensorType
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

OWN_TEXTS = 1 << 32  # the numbers of texts that are no constants of the program
_INT64 = range(-(2**63), 2**63)
_MAX_TYPES = 1024


@dataclass
class EncodedInstances:
    """The instances of a call as the machine takes them.

    Attributes
    ----------
    words : array of int64
    num_instances, num_objects : int
    tensors : array of int64
        Type and address of each.
    texts : list of str
        Those that are no constants, the first of number `OWN_TEXTS`.
    beside_torch : bool
        Whether a tensor is PyTorch's.
    kept : list
        What has the tensors' memory.
    """

    words: array[int] = field(default_factory=lambda: array("q"))
    num_instances: int = 0
    num_objects: int = 0
    tensors: array[int] = field(default_factory=lambda: array("q"))
    texts: list[str] = field(default_factory=list)
    beside_torch: bool = False
    kept: list[Any] = field(default_factory=list)


class InstanceEncoder:
    """What is known of a program's values and of the classes of objects that it was called with.

    Parameters
    ----------
    plan : ProgramPlan
    """

    def __init__(self, plan: ProgramPlan) -> None:
        self._plan = plan
        self._num_parameters = plan.functions[plan.entry].parameters
        self._texts = {one: number for number, one in reversed(list(enumerate(plan.constants)))
                       if isinstance(one, str)}  # fmt: skip
        shapes = [tuple(extent.constant for extent in type_.shape) for type_ in plan.types]
        self._types = {
            (type_.dtype, shape): number
            for number, (type_, shape) in enumerate(zip(plan.types, shapes, strict=True))
        }
        self._array_types = {(np.dtype(dtype), shape): n for (dtype, shape), n in self._types.items()}
        self._records: dict[type, tuple[int, Callable[[Any], Any], int]] = {}

    def encode(self, instances: Sequence[Any]) -> EncodedInstances:
        """Return instances as words.

        Raises
        ------
        TensorError
            An instance has something that programs have not, or a tensor of another type.
        """
        found = EncodedInstances(num_instances=len(instances))
        writer = _Writer(self, found)
        for number, one in enumerate(instances):
            given = (one,)
            if self._num_parameters > 1:
                if not isinstance(one, tuple) or len(one) != self._num_parameters:
                    raise TensorError(
                        f"instance {number}: {type(one).__name__}; "
                        f"allowed: a tuple of {self._num_parameters}, one for each parameter"
                    )
                given = one
            writer.write(number, given, self._plan.changes)
        roots = array("q", [word for pairs in writer.roots for word in pairs])
        found.words = roots + writer.words
        found.num_objects = writer.num_objects
        found.texts = list(writer.texts)
        return found

    @property
    def allowed(self) -> str:
        """What may be in an instance, in words."""
        records = [f"objects as {name}({', '.join(fields)})" for name, fields in self._plan.records]
        return ", ".join(["numbers", "texts", "lists", "tuples", "tensors", *records])

    def text_number(self, text: str, texts: dict[str, int]) -> int:
        """Return the number of a text, where `texts` has those of the call that are no constants."""
        found = self._texts.get(text)
        return OWN_TEXTS + texts.setdefault(text, len(texts)) if found is None else found

    def record_of(self, value: Any) -> tuple[int, Callable[[Any], Any], int] | None:
        """Return the record that an object is, what reads its fields, and how many; None for no record."""
        cls = type(value)
        found = self._records.get(cls)
        if found is None:
            numbered = list(enumerate(self._plan.records))
            fits = [n for n, (_, names) in numbered if all(hasattr(value, name) for name in names)]
            named = [n for n in fits if self._plan.records[n][0] == cls.__name__]
            if not fits:
                return None
            number = (named or fits)[0]
            names = self._plan.records[number][1]
            get: Callable[[Any], Any] = attrgetter(*names) if names else lambda _: ()
            found = number, get, len(names)
            if len(self._records) < _MAX_TYPES:
                self._records[cls] = found
        return found

    def tensor(self, value: Any) -> tuple[int, Any, bool] | None:
        """Return a tensor's type, an array of it, and whether it is PyTorch's; None for what is no tensor.

        Raises
        ------
        TensorError
            The program has no tensor of this dtype and shape.
        """
        if type(value) is np.ndarray and value.flags.c_contiguous:
            number = self._array_types.get((value.dtype, value.shape))
            if number is not None:
                return number, value, False
        torch = sys.modules.get("torch")
        is_torch = torch is not None and isinstance(value, torch.Tensor)
        if not is_torch and not isinstance(value, np.ndarray) and not hasattr(value, "__dlpack__"):
            return None
        dtype, shape = str(value.dtype).rpartition(".")[2], tuple(value.shape)
        wanted = "int32" if dtype == "int64" else dtype
        number = self._types.get((wanted, shape))
        if number is None:
            allowed = ", ".join(str(one) for one in self._plan.types)
            raise TensorError(f"a tensor {dtype}[{', '.join(map(str, shape))}]; allowed: {allowed}")
        array, _ = input_array("a tensor", value, TensorType(dtype, self._plan.types[number].shape))
        if wanted != dtype:
            narrow = array.astype(np.int32)
            if not np.array_equal(narrow, array):
                raise TensorError("a tensor int64 with a number beyond 32 bits; allowed: int32")
            array = narrow
        return number, array, is_torch


class _Writer:
    """The words of one call: objects are numbered as they are met, and written in that order."""

    def __init__(self, encoder: InstanceEncoder, found: EncodedInstances) -> None:
        self._encoder, self._found = encoder, found
        self.roots: list[list[int]] = []
        self.words = array("q")
        self.num_objects = 0
        self._numbers: dict[int, int] = {}
        self.texts: dict[str, int] = {}
        self._tensors: dict[int, int] = {}
        self._waiting: list[Any] = []

    def write(self, number: int, parameters: Sequence[Any], is_alone: bool) -> None:
        """Write an instance; one alone shares no object with another."""
        if is_alone:
            self._numbers.clear()
        try:
            self.roots.append(self._values(parameters))
            for one in self._waiting:  # which grows meanwhile
                self._object(one)
        except TensorError as error:
            raise TensorError(f"instance {number}: {error}") from error
        self._found.kept.append(self._waiting)
        self._waiting = []

    def _object(self, value: Any) -> None:
        if isinstance(value, list | tuple):
            record = self._encoder.record_of(value) if type(value) not in (list, tuple) else None
            items: Sequence[Any] = value
        else:
            record, items = self._encoder.record_of(value), ()
            if record is None:
                raise TensorError(f"a {type(value).__name__}; allowed: {self._encoder.allowed}")
        number = 0
        if record is not None:
            number, get, count = record
            items = (get(value),) if count == 1 else get(value)
        self.words.extend([number, len(items), *self._values(items)])

    def _values(self, values: Sequence[Any]) -> list[int]:
        words: list[int] = []
        for one in values:
            words += self._value(one)
        return words

    def _value(self, value: Any) -> tuple[int, int]:
        if value is None:
            return NONE, 0
        cls = type(value)
        if cls is int:
            if value not in _INT64:
                raise TensorError(f"the number {value}; allowed: 64 bits")
            return INT, value
        if cls is float:
            return FLOAT, float_bits(value)
        if cls is bool:
            return BOOL, int(value)
        if cls is str:
            return TEXT, self._encoder.text_number(value, self.texts)
        return self._other(value)

    def _other(self, value: Any) -> tuple[int, int]:
        """Return the words of what is no plain number, nor a text."""
        known = self._numbers.get(id(value))
        if isinstance(value, list | tuple):
            record = self._encoder.record_of(value) if type(value) not in (list, tuple) else None
            kind = RECORD if record else LIST if isinstance(value, list) else TUPLE
            return kind, self._number(value) if known is None else known
        if known is not None:
            return RECORD, known
        plain = plain_value(value)
        if plain is not None:
            return self._value(plain)
        number = self._tensors.get(id(value))
        if number is not None:
            return TENSOR, number
        tensor = self._encoder.tensor(value)
        return (RECORD, self._number(value)) if tensor is None else self._tensor(value, *tensor)

    def _number(self, value: Any) -> int:
        number = self._numbers[id(value)] = self.num_objects
        self.num_objects += 1
        self._waiting.append(value)
        return number

    def _tensor(self, value: Any, type_: int, array: Any, is_torch: bool) -> tuple[int, int]:
        self._found.beside_torch |= is_torch
        if array.dtype == np.int32 and not array.shape:
            return INT, int(array)
        number = self._tensors[id(value)] = len(self._found.tensors) // 2
        self._found.kept += (value, array)
        self._found.tensors.extend((type_, address_of(array)))
        return TENSOR, number


def plain_value(value: Any) -> bool | int | float | str | None:
    """Return what a scalar of NumPy's, or a number or text of a class of its own, is; None for all else."""
    if isinstance(value, np.generic):
        plain = value.item()
        return plain if isinstance(plain, bool | int | float | str) else None
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return None
