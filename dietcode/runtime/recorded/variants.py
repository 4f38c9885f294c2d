"""Variants of regions in the words of the recorder, and sites that are shared by programs."""

from __future__ import annotations

import json
import threading
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dietcode.runtime import recorder
from dietcode.runtime.recorded.describing import (
    DTYPES,
    Names,
    UndescribedError,
    describe,
    tensors_of,
)
from dietcode.runtime.recorded.regions import SourceRegion
from dietcode.runtime.recorded.units import SourceUnit

Type = tuple[str, tuple[int, ...]]
NUMBER: Type = ("int32", ())
# Kinds as ``recorder.h`` numbers them, of arguments and of results.
_ROOT, _EQUAL, _TENSOR, _INT, _FLOAT, _TUPLE, _LIST, _RECORD, _MADE = range(9)
_SLICE, _ARGUMENT, _CONSTANT = 10, 11, 12
_OBJECT, _RESULT = 0, 1
_SEQUENCES = {"tuple": _TUPLE, "list": _LIST}


@dataclass(frozen=True)
class Variant:
    """What a region is for some arguments.

    Attributes
    ----------
    specs : list of Spec
        As `dietcode.runtime.recorded.describing.describe` gives them.
    notes : list of (int, list of int)
        Blocks, and where their operands come from: a leaf of the arguments, or -(k + 1) for the k-th result
        of the notes before.
    result : Spec
        A tree: ``["result", dtype, shape]``, in order; ``["made", k, dtype]`` of the k-th constant;
        ``["leaf", k]``, ``["constant", value]``, and of these ``["tuple" or "list", […]]`` and
        ``["record", class, […]]``.
    weights : dict of str to (int, str)
        Of each weight that a root has: which root, -1 for what the region's own text names, and the way to
        it.
    limits : list of int or None
        Of each leaf that is a whole number, below what it has to be.
    first_result : int
        Results of notes that are none of the region's.
    """

    specs: list[Any]
    notes: list[tuple[int, list[int]]]
    result: Any
    weights: dict[str, tuple[int, str]] = field(default_factory=dict)
    limits: list[int | None] = field(default_factory=list)
    first_result: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "specs": self.specs,
            "notes": [[block, list(operands)] for block, operands in self.notes],
            "result": self.result,
            "weights": {name: list(way) for name, way in self.weights.items()},
            "limits": self.limits,
            "first_result": self.first_result,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Variant:
        """Return what `to_json` wrote."""
        return cls(
            list(data["specs"]),
            [(int(block), [int(one) for one in operands]) for block, operands in data["notes"]],
            data["result"],
            {str(name): (int(root), str(path)) for name, (root, path) in data["weights"].items()},
            list(data["limits"]),
            int(data["first_result"]),
        )


def words_of(
    variant: Variant, types: Sequence[Type], roots: Sequence[Any], classes: Callable[[str], Any]
) -> tuple[array[int], tuple[Any, ...]]:
    """Return a variant in the words of ``recorder/variants.c``, and the objects that they name.

    Parameters
    ----------
    variant : Variant
    types : sequence of Type
        Of the machine.
    roots : sequence of object
        Of the arguments, in the order of their specs.
    classes : callable
        ``(name) -> class`` of named tuples that are returned.
    """
    coding = _Coding(variant, types, roots, classes)
    specs = [one for one in variant.specs if one[0] != "own"]
    words = [len(specs), *coding.arguments(specs)]
    words.append(len(variant.notes))
    for block, operands in variant.notes:
        words += [block, len(operands), *operands]
    words += coding.result(variant.result)
    return array("q", words), tuple(coding.objects)


class _Coding:
    """Writes the arguments and the result of a variant in words.

    Attributes
    ----------
    objects : list
        What words name, by position.
    """

    def __init__(
        self, variant: Variant, types: Sequence[Type], roots: Sequence[Any], classes: Callable[[str], Any]
    ) -> None:
        self._limits, self._types, self._classes = variant.limits, types, classes
        self._roots, self._leaves = iter(roots), iter(range(1 << 16))
        self._results = iter(range(variant.first_result, 1 << 16))
        self.objects: list[Any] = []

    def _named(self, value: Any) -> int:
        self.objects.append(value)
        return len(self.objects) - 1

    def arguments(self, specs: Sequence[Any]) -> list[int]:
        """Return the words of arguments that follow each other."""
        return [word for one in specs for word in self._argument(one)]

    def _argument(self, spec: Any) -> list[int]:
        word, *rest = spec
        if word in ("root", "dtype"):
            return [_ROOT, self._named(next(self._roots))]
        if word == "equal":
            value = equal_value(*rest)
            return [_ROOT if value is None or isinstance(value, bool) else _EQUAL, self._named(value)]
        if word in ("tensor", "int", "float"):
            return self._leaf(word, rest, next(self._leaves))
        if word == "slice":
            return [_SLICE, *self.arguments(rest[0])]
        if word == "record":
            cls = self._named(next(self._roots))
            return [_RECORD, cls, len(rest[1]), *self.arguments(rest[1])]
        return [_SEQUENCES[word], len(rest[0]), *self.arguments(rest[0])]

    def _leaf(self, word: str, rest: Sequence[Any], leaf: int) -> list[int]:
        if word == "int":
            limit = self._limits[leaf] if self._limits else None
            return [_INT, self._types.index(NUMBER), -1 if limit is None else limit]
        if word == "float":
            return [_FLOAT, self._types.index(("float32", ()))]
        dtype, shape = rest[0], tuple(rest[1])
        number = self._types.index(("float32", shape))
        if dtype == "float32":
            return [_TENSOR, number, len(shape), *shape]
        return [_MADE, number, DTYPES.index(dtype), len(shape), *shape]

    def result(self, spec: Any) -> list[int]:
        """Return the words of a result's tree."""
        word, *rest = spec
        if word == "result":
            return [_RESULT, next(self._results), DTYPES.index(rest[0])]
        if word == "made":
            return [_CONSTANT, rest[0], DTYPES.index(rest[1])]
        if word == "leaf":
            return [_ARGUMENT, rest[0]]
        if word == "constant":
            return [_OBJECT, self._named(rest[0])]
        items = rest[-1]
        head = [_RECORD, self._named(self._classes(rest[0]))] if word == "record" else [_SEQUENCES[word]]
        return [*head, len(items), *(n for one in items for n in self.result(one))]


def equal_value(kind: str, text: str) -> Any:
    """Return the value of a spec ``["equal", kind, text]``."""
    if kind == "float":
        return float.fromhex(text)
    if kind == "int":
        return int(text)
    return text if kind == "str" else {"True": True, "False": False}.get(text)


def key_of(specs: Sequence[Any]) -> str:
    """Return what tells the variants of a region apart."""
    return json.dumps(list(specs))


class RecordedRegion:
    """A region of a program, and its variants.

    Parameters
    ----------
    unit : SourceUnit
    region : SourceRegion
    variants : sequence of Variant
    reason : str
        Why it has none, if so.
    reads : sequence of (str, str, str)
        The functions whose code is part of its blocks: file, qualified name, and digest of the source.
    """

    def __init__(
        self,
        unit: SourceUnit,
        region: SourceRegion,
        variants: Sequence[Variant],
        reason: str = "",
        reads: Sequence[tuple[str, str, str]] = (),
    ) -> None:
        self.unit, self.region, self.reason, self.reads = unit, region, reason, reads
        self.variants: dict[str, list[Variant]] = {}
        for one in variants:
            self.variants.setdefault(key_of(one.specs), []).append(one)
        self.fixed = sorted({_fixed_in(one.specs) for one in variants}, key=len)
        self.eager: Counter[str] = Counter()

    @property
    def where(self) -> str:
        """File and line."""
        return f"{self.unit.file.rpartition('/')[2]}:{self.region.first_line(self.unit)}"

    def variants_of(self, args: Sequence[Any], names: Names, function: Any) -> tuple[list[Variant], Any]:
        """Return the variants for some arguments, which differ by their weights, and these as data.

        Raises
        ------
        UndescribedError
            There is none; says why.
        """
        for fixed in self.fixed or [frozenset()]:
            described = describe(args, fixed.__contains__, names, function)
            found = self.variants.get(key_of(described.specs))
            if found is not None:
                return found, described
        if not self.variants:
            raise UndescribedError(self.reason or "no kernel")
        raise UndescribedError("arguments that no sample had, by their shapes or kinds")


def _fixed_in(specs: Sequence[Any]) -> frozenset[int]:
    """Return which numbers among the arguments stand for themselves, by their places among all leaves."""
    leaves = iter(range(1 << 16))

    def walk(spec: Any) -> Iterator[int]:
        word = spec[0]
        if word in ("tensor", "int", "float"):
            next(leaves)
        elif word == "equal" and spec[1] in ("int", "float"):
            yield next(leaves)
        elif word in ("tuple", "list", "slice", "record"):
            for one in spec[-1]:
                yield from walk(one)

    return frozenset(number for spec in specs for number in walk(spec))


class Sites:
    """The places of the source that call blocks, for all programs of this process."""

    def __init__(self) -> None:
        self._known: dict[Any, tuple[recorder.Site, Callable[..., Any]]] = {}
        self._lock = threading.Lock()

    def of(
        self, unit: SourceUnit, region: SourceRegion, function: Callable[..., Any], on_miss: Any
    ) -> recorder.Site:
        """Return the site of a region; the first of two programs that have it makes it."""
        key = unit.file, unit.qualname, unit.digest, region
        place = (*key, id(function.__globals__))  # a file may be loaded twice
        with self._lock:
            if place not in self._known:

                def missed(site: recorder.Site, args: tuple[Any, ...]) -> Any:
                    return on_miss(key, site, function, args)

                self._known[place] = recorder.Site(missed), function
            return self._known[place][0]


SITES = Sites()


def bound_weights(variant: Variant, roots: Sequence[Any], function: Any) -> dict[str, Any]:
    """Return the tensors that a variant's weights are for some roots, by name."""
    by_root: dict[int, dict[str, Any]] = {}
    found: dict[str, Any] = {}
    for name, (root, path) in variant.weights.items():
        if root not in by_root:
            by_root[root] = dict(tensors_of(function if root < 0 else roots[root]))
        if path in by_root[root]:
            found[name] = by_root[root][path]
    return found


def machine_of_types(
    types: Sequence[Type], constants: Sequence[tuple[int, int]], max_rows: int, blocks: Sequence[int],
    num_blocks: int, num_buffers: int, program: array[int], kept: Any, fixed: Sequence[int] = (),
) -> recorder.Machine:  # fmt: skip
    """Return a machine of blocks.

    Parameters
    ----------
    types : sequence of Type
    constants : sequence of (int, int)
        Type and address of each.
    max_rows : int
        Of a table.
    blocks : sequence of int
        The words of all blocks.
    num_blocks, num_buffers : int
    program : array of int64
        Their steps.
    kept : object
        Owns what addresses name.
    fixed : sequence of int
        Pairs of buffers and addresses.
    """
    import torch

    words = [num_buffers, max_rows, 0, 0, len(types)]
    for dtype, shape in types:
        elements = 1
        for extent in shape:
            elements *= extent
        words += [4 * elements, elements, int(dtype == "int32")]
    words += [0, len(constants), *(n for pair in constants for n in pair), 0, 0]
    words += [num_blocks, *blocks, 0, 0, len(fixed) // 2, *fixed, 0, 0]
    shapes = tuple(torch.Size(shape) for _, shape in types)
    return recorder.Machine(array("q", words), program, shapes, kept)
