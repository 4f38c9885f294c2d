"""Variants of regions: the arguments that samples pass to each, and the structure of its results."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from dietcode.frontends.python.observing import Observation, codes_run, same_random_numbers
from dietcode.runtime.recorded.describing import (
    DescribedArguments,
    Names,
    UndescribedError,
    describe,
    tensors_of,
)
from dietcode.runtime.recorded.regions import SourceRegion, UnitParts, region_function, rewritten
from dietcode.runtime.recorded.units import Replacement, SourceUnit, unit_of

_MOST_NUMBERS = 32


class RefusedRegionError(Exception):
    """A region that would not give what its function gives; says why."""


@dataclass
class SampledCall:
    """What a region is given in some samples.

    Attributes
    ----------
    described : DescribedArguments
        All whole numbers and floats are leaves.
    args : tuple
        As they were given.
    numbers : Counter of tuple
        What numbers were given, and how often.
    result : Spec
        What came out: a tree of ``["result", dtype, shape]``, ``["leaf", k]``, ``["constant", value]``, and
        of these ``["tuple" or "list", …]`` and ``["record", class, …]``.
    """

    described: DescribedArguments
    args: tuple[Any, ...]
    numbers: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    result: Any = None


@dataclass
class Found:
    """A region, and what samples show of it.

    Attributes
    ----------
    unit : SourceUnit
    region : SourceRegion
    function : callable
        Of its leaves.
    examples : dict of str to SampledCall
    reasons : Counter of str
        Why it would not be a block, for arguments that it is not for.
    reads : set of (str, str, str)
        The functions that it calls: file, qualified name, and digest of the source.
    """

    unit: SourceUnit
    region: SourceRegion
    function: Callable[..., Any]
    examples: dict[str, SampledCall] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    reads: set[tuple[str, str, str]] = field(default_factory=set)

    @property
    def where(self) -> str:
        """File and line."""
        return f"{self.unit.file.rpartition('/')[2]}:{self.region.first_line(self.unit)}"


class Discovery:
    """Runs samples with regions that only look at what they are given.

    Parameters
    ----------
    observation : Observation
    units : dict of SourceUnit to UnitParts
    may_change : bool
        Whether tensors are changed in place somewhere: then nothing that shares memory is a region's result.
    assigned : collection of str
        Attributes that functions set.
    """

    def __init__(
        self,
        observation: Observation,
        units: dict[SourceUnit, UnitParts],
        may_change: bool,
        assigned: Collection[str],
    ) -> None:
        self._may_change = may_change
        self._within = 0
        self._names = Names(assigned)
        self.found: list[Found] = []
        self.refused: list[tuple[Found, str]] = []
        changed = []
        for unit, parts in units.items():
            calls: list[Any] = []
            for region in parts.regions:
                function = region_function(
                    unit, region, observation.flags[unit.file], observation.globals[unit.file]
                )
                self.found.append(Found(unit, region, function))
                calls.append(self._caller(self.found[-1]))
            changed.append((unit, rewritten(unit, parts), [*calls, _in_order, _unnoted, isinstance]))
        self._replacement = Replacement(changed, observation.flags, observation.globals)

    def run(self, run: Callable[[], Any]) -> list[Found]:
        """Run samples, and return the regions that may be blocks."""
        self._replacement.install()
        try:
            with same_random_numbers():
                run()
        finally:
            self._replacement.uninstall()
            self._within += 1  # functions that samples made keep the code; exports call them
        return self.found

    def _caller(self, found: Found) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if self._within:
                return found.function(*args)
            return self._call(found, args)

        return call

    def _call(self, found: Found, args: tuple[Any, ...]) -> Any:
        import torch

        self._within += 1
        try:
            result = found.function(*args)
        finally:
            self._within -= 1
        try:
            if torch.is_grad_enabled():
                raise RefusedRegionError("a region where gradients are enabled")
            described = describe(args, lambda leaf: False, self._names, found.function)
            key = json.dumps([described.specs, [_weights_key(one) for one in described.roots]])
            example = found.examples.get(key)
            if example is None:
                tree = self._result(result, described)
                example = found.examples[key] = SampledCall(described, args, result=tree)
                self._note_reads(found, args)
            numbers = tuple(one for one in described.leaves if isinstance(one, int | float))
            if len(example.numbers) < _MOST_NUMBERS or numbers in example.numbers:
                example.numbers[numbers] += 1
        except UndescribedError as error:
            found.reasons[str(error)] += 1
        except RefusedRegionError as error:
            self.refused.append((found, str(error)))
        return result

    def _note_reads(self, found: Found, args: tuple[Any, ...]) -> None:
        """Note the functions that a region calls; it is tensor code alone, and may run again."""
        self._within += 1
        try:
            codes = codes_run(lambda: found.function(*args))
        finally:
            self._within -= 1
        for unit in filter(None, map(unit_of, codes)):
            found.reads.add((unit.file.rpartition("/")[2], unit.qualname, unit.digest))

    def _result(self, value: Any, described: DescribedArguments) -> Any:
        import torch

        if not described.leaves and any(next(tensors_of(one), None) for one in described.roots):
            raise RefusedRegionError("it depends on weights alone")
        given = {id(one): at for at, one in enumerate(described.leaves) if isinstance(one, torch.Tensor)}
        memory = {_storage(one) for one in described.leaves if isinstance(one, torch.Tensor)}
        has_numbers = any(isinstance(one, int | float) for one in described.leaves)

        def spec(one: Any) -> Any:
            if isinstance(one, torch.Tensor):
                return ["leaf", given[id(one)]] if id(one) in given else self._tensor_result(one, memory)
            if isinstance(one, tuple) and hasattr(one, "_fields"):
                return ["record", [type(one)], [spec(item) for item in one]]
            if type(one) in (tuple, list):
                return [type(one).__name__, [spec(item) for item in one]]
            if one is None or (type(one) in (bool, int, float, str) and not has_numbers):
                return ["constant", one]
            raise RefusedRegionError(f"a result {type(one).__name__}")  # such as the tuples of torch.max

        return spec(value)

    def _tensor_result(self, tensor: Any, memory: set[int]) -> Any:
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype not in ("float32", "bool", "int64"):
            raise RefusedRegionError(f"a result {dtype}")
        if self._may_change:
            if _storage(tensor) in memory:
                raise RefusedRegionError(
                    "a result that shares memory with another tensor, and tensors are changed in place"
                )
            memory.add(_storage(tensor))
        return ["result", dtype, list(tensor.shape)]


def _weights_key(root: Any) -> int:
    """Return what tells apart roots that may have other weights."""
    return id(getattr(root, "__self__", root)) if next(tensors_of(root), None) is not None else 0


def _storage(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _unnoted(value: Any, name: str) -> Any:
    return value


def _in_order(*pairs: Any) -> tuple[Any, ...]:
    return tuple(function(*args) for function, args in pairs)
