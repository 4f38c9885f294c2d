"""What comes out: the machine's words as Python's objects, and what went wrong as exceptions."""

from __future__ import annotations

import ctypes
import dataclasses
import sys
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dietcode.runtime.compiled import CompiledCall
from dietcode.runtime.programs.instances import OWN_TEXTS, Integers
from dietcode.runtime.programs.machine import BOOL, FLOAT, INT, LIST, NONE, RECORD, TENSOR, TEXT, TUPLE
from dietcode.runtime.programs.plan import ProgramPlan
from dietcode.runtime.tensors import aligned_empty

if TYPE_CHECKING or CompiledCall is not None:
    from dietcode.runtime import compiled_call

DICT_RECORD = ("dict", ("dict_keys", "dict_values"))  # name and fields of the record that is a dict
TYPE_SHIFT = 8  # of a tensor's type beside its kind


def words_at(address: int, count: int) -> array[int]:
    """Return a copy of integers of 64 bits."""
    found = array("q")
    found.frombytes(ctypes.string_at(address, 8 * count))
    return found


def read_texts(address: int, count: int) -> list[str]:
    """Return the texts that a call made: those that it returns, and empty ones in the place of others.

    Of each, the machine has an address, a length, a hash, a buffer and whether it is returned.
    """
    words = words_at(address, 5 * count)
    return [
        ctypes.string_at(words[at], words[at + 1]).decode("utf-8", "surrogatepass") if words[at + 4] else ""
        for at in range(0, 5 * count, 5)
    ]


class ResultDecoder:
    """What is known of the results of a program.

    Parameters
    ----------
    plan : ProgramPlan
    in_c : bool
        Whether the way in C is taken, where this installation has it.
    """

    def __init__(self, plan: ProgramPlan, in_c: bool = True) -> None:
        self._plan = plan
        self._in_c = in_c and CompiledCall is not None
        self._classes = [
            dict
            if (name, tuple(fields)) == DICT_RECORD
            else dataclasses.make_dataclass(name if name.isidentifier() else "Record", fields, eq=False)
            for name, fields in plan.records
        ]
        fields = (tuple(map(sys.intern, names)) for _, names in plan.records)
        self._records = tuple(zip(self._classes, fields, strict=True))
        self._shapes = [tuple(extent.constant for extent in type_.shape) for type_ in plan.types]

    def decode(
        self,
        given: Integers,
        num_instances: int,
        texts: Sequence[str],
        tensors: Sequence[list[Any]],
    ) -> list[Any]:
        """Return the results of a call, one an instance.

        Parameters
        ----------
        given : Integers
            Values of the results, then the objects in them.
        num_instances : int
        texts : sequence of str
            Those of the call that are no constants.
        tensors : sequence of list
            Those that are returned, by type.
        """
        if self._in_c:
            known = self._plan.constants, tuple(texts), tuple(tensors), self._records
            return compiled_call.decode(given.address, given.length, num_instances, *known)
        words = words_at(*given)
        kinds, numbers = words[: 2 * num_instances : 2], words[1 : 2 * num_instances : 2]
        if len(words) == 2 * num_instances and len(set(kinds)) == 1 and kinds[0] & 255 == TENSOR:
            return list(tensors[kinds[0] >> TYPE_SHIFT])  # in their order
        objects = self._objects(words, 2 * num_instances)

        def value(kind: int, number: int) -> Any:
            if kind == NONE:
                return None
            if kind & 255 == TENSOR:
                return tensors[kind >> TYPE_SHIFT][number]
            if kind == FLOAT:
                return ctypes.c_double.from_buffer_copy(ctypes.c_int64(number)).value
            if kind == TEXT:
                return texts[number - OWN_TEXTS] if number >= OWN_TEXTS else self._plan.constants[number]
            if kind in (INT, BOOL):
                return number if kind == INT else bool(number)
            return objects[kind, number] if (kind, number) in objects else made(kind, number)

        dicts: list[tuple[dict[Any, Any], list[Any]]] = []  # filled when all that is in them is there
        made = self._maker(words, objects, value, dicts)
        found = [value(kind, number) for kind, number in zip(kinds, numbers, strict=True)]
        for own, (keys, values) in dicts:
            own.update(zip(keys, values, strict=True))
        return found

    def _objects(self, words: array[int], at: int) -> dict[Any, Any]:
        """Return where each object's words begin, by its number; made objects join by kind and number."""
        found: dict[Any, Any] = {}
        while at < len(words):
            found[len(found)] = at
            at += 2 + 2 * words[at + 1]
        return found

    def _maker(
        self,
        words: array[int],
        objects: dict[Any, Any],
        value: Callable[[int, int], Any],
        dicts: list[tuple[dict[Any, Any], list[Any]]],
    ) -> Callable[[int, int], Any]:
        def items_of(number: int) -> list[tuple[int, int]]:
            at = objects[number]
            count = words[at + 1]
            return list(zip(words[at + 2 : at + 2 + 2 * count : 2], words[at + 3 : at + 2 + 2 * count : 2],
                            strict=True))  # fmt: skip

        def made(kind: int, number: int) -> Any:
            # Objects in objects are made first; a list or record is there before its items, a tuple behind.
            stack = [(kind, number)]
            while stack:
                key = stack[-1]
                items = items_of(key[1])
                inner = [one for one in items if one[0] in (TUPLE, LIST, RECORD) and one not in objects]
                if key not in objects and key[0] == LIST:
                    objects[key] = []
                elif key not in objects and key[0] == RECORD:
                    cls = self._classes[words[objects[key[1]]]]
                    objects[key] = {} if cls is dict else object.__new__(cls)
                if inner:
                    stack += inner
                    continue
                stack.pop()
                filled = [value(*one) for one in items]
                if key[0] == TUPLE:
                    objects.setdefault(key, tuple(filled))
                elif key[0] == LIST:
                    objects[key][:] = filled
                elif isinstance(objects[key], dict):
                    dicts.append((objects[key], filled))
                else:
                    names = self._plan.records[words[objects[key[1]]]][1]
                    objects[key].__dict__.update(zip(names, filled, strict=True))
            return objects[kind, number]

        return made

    def tensors(self, counts: Sequence[int], take: Callable[[int, int], Any], is_torch: bool) -> list[Any]:
        """Return the tensors of a call's results, by type.

        Parameters
        ----------
        counts : sequence of int
            Of each type.
        take : callable
            Copies those of a type to an address.
        is_torch : bool
            Whether they are PyTorch's.
        """
        found: list[Any] = []
        for number, count in enumerate(counts):
            if not count:
                found.append([])
                continue
            own = self._plan.types[number].dtype
            rows = aligned_empty((count, *self._shapes[number]), dtype=own)
            take(number, rows.__array_interface__["data"][0])
            if is_torch:
                found.append(list(sys.modules["torch"].from_numpy(rows).unbind(0)))
            else:
                found.append(list(rows) if rows.ndim > 1 else [rows[at, ...] for at in range(count)])
        return found
