"""Variants of regions as graphs of one instance, each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dietcode.errors import ModelError
from dietcode.frontends.python.discovery import Found, SampledCall
from dietcode.frontends.python.planning import check_block
from dietcode.frontends.python.region_modules import FILE, module_of, numbers_as_tensors, rebuilt
from dietcode.graph.graph import Graph
from dietcode.graph.program_model import MAX_OPERANDS
from dietcode.models.exporting import export
from dietcode.models.importing.exported import import_exported
from dietcode.models.nested import renamed
from dietcode.programs.exporting import Type, WeightNames, signature_of
from dietcode.runtime.recorded.describing import Names, describe, tensors_of

_MOST_VARIANTS, _MOST_NUMBERS = 64, 8  # of a region; of them by numbers that stand for themselves
_NUMBERS = (int, float)
_AT_POSITIONS = ("take", "gather", "embedding", "scatter_along", "take_along")


@dataclass
class RegionBlock:
    """A block of one instance.

    Attributes
    ----------
    graph : Graph
        Its inputs are ``a0``, ``a1``, … as the operands.
    operands, results : tuple of Type
    module : torch.nn.Module
        Computes it by PyTorch.
    where : str
    """

    graph: Graph
    operands: tuple[Type, ...]
    results: tuple[Type, ...]
    module: Any
    where: str


@dataclass
class FoundVariant:
    """What a region is for some arguments.

    Attributes
    ----------
    specs : list of Spec
    result : Spec
    block : int or None
        None where nothing depends on the arguments.
    constants : list of str
        Names of the results then.
    weights : dict of str to (int, str)
        Of each weight that a root has: which root, -1 for the region's own file, and the way to it.
    limits : list of int or None
        Of each operand that is a whole number, below what it has to be.
    """

    specs: list[Any]
    result: Any
    block: int | None
    constants: list[str]
    weights: dict[str, tuple[int, str]]
    limits: list[int | None] = field(default_factory=list)


class Blocks:
    """Blocks of the regions of a program.

    Attributes
    ----------
    blocks : list of RegionBlock
    variants : dict of int to list of FoundVariant
        By the position of the region.
    weights : WeightNames
    """

    def __init__(self, assigned: Collection[str]) -> None:
        self.blocks: list[RegionBlock] = []
        self.variants: dict[int, list[FoundVariant]] = {}
        self.weights = WeightNames()
        self._known: dict[str, int] = {}
        self._tried: dict[Any, tuple[list[FoundVariant], str | None]] = {}
        self._names = Names(assigned)

    def begin(self) -> None:
        """Clear the variants before the regions are formed again; exported blocks are kept."""
        self.variants.clear()

    def finish(self) -> None:
        """Leave out blocks that no region has."""
        used = sorted({one.block for own in self.variants.values() for one in own if one.block is not None})
        places = {block: at for at, block in enumerate(used)}
        self.variants = {
            number: [one if one.block is None else replace(one, block=places[one.block]) for one in own]
            for number, own in self.variants.items()
        }
        self.blocks = [self.blocks[block] for block in used]

    def add(self, number: int, found: Found) -> str | None:
        """Export a region as samples call it; return the reason if it cannot be a block, else None."""
        key = found.unit.file, found.unit.qualname, found.region, tuple(sorted(found.examples))
        if key not in self._tried:
            reason = self._add(number, found)
            self._tried[key] = self.variants[number], reason
        self.variants[number], reason = self._tried[key]
        return reason

    def _add(self, number: int, found: Found) -> str | None:
        reason: str | None = None
        own: list[FoundVariant] = []
        examples = sorted(found.examples.values(), key=lambda one: -sum(one.numbers.values()))
        for example in examples[:_MOST_VARIANTS]:
            try:
                own += self._variants(found, example)
            except ModelError as error:
                reason = str(error)
                found.reasons[reason] += sum(example.numbers.values())
        self.variants[number] = own[:_MOST_VARIANTS]
        return None if own else (reason or "no sample came there")

    def _variants(self, found: Found, example: SampledCall) -> list[FoundVariant]:
        numbers = _numbers_of(example)
        single = {k for at, k in enumerate(numbers) if len({one[at] for one in example.numbers}) == 1}
        error: ModelError | None = None
        for fixed in _distinct([set(), single, set(numbers)]):
            combinations: Counter[tuple[Any, ...]] = Counter()
            for given, count in example.numbers.items():
                combinations[tuple(one for k, one in zip(numbers, given, strict=True) if k in fixed)] += count
            try:
                return [
                    self._variant(found, example, fixed, numbers, values)
                    for values, _ in combinations.most_common(_MOST_NUMBERS)
                ]
            except ModelError as one:
                error = error or one
        raise error or ModelError("no numbers")

    def _variant(
        self,
        found: Found,
        example: SampledCall,
        fixed: set[int],
        numbers: Sequence[int],
        values: Sequence[Any],
    ) -> FoundVariant:
        import torch

        of_fixed = dict(zip((k for k in numbers if k in fixed), values, strict=True))
        leaves = [of_fixed.get(k, one) for k, one in enumerate(example.described.leaves)]
        args = list(rebuilt(example.described.specs, iter(leaves), iter(example.described.roots)))
        described = describe(args, lambda k: False, self._names, found.function)
        specs = _with_fixed(described.specs, leaves, fixed)
        operands = [k for k in range(len(leaves)) if k not in fixed]
        if len(operands) > MAX_OPERANDS:
            raise ModelError(f"{len(operands)} operands; a block takes {MAX_OPERANDS}")
        module = module_of(found.function, example.described, leaves, operands, self._roots(found, example))
        result = _without_leaves(example.result, {k: at for at, k in enumerate(operands)})
        if not operands:
            with torch.no_grad():
                made = module()
            names = [
                self.weights.name_of(
                    np.array(one.detach().numpy(), np.float32), f"{found.unit.qualname}.constant"
                )
                for one in made
            ]
            return FoundVariant(specs, result, None, names, {})
        types = tuple(_type_of(leaves[k]) for k in operands)
        graph, weights = self._exported(module, types, found, example)
        with torch.no_grad(), numbers_as_tensors():
            made = module(*(torch.as_tensor(leaves[k]) for k in operands))
        results = tuple(("float32", tuple(one.shape)) for one in made)  # numbers may decide shapes
        if len(results) != len(list(_results(result))):
            raise ModelError("as many results as a number says; allowed: always as many")
        key = signature_of(graph, types)
        if key not in self._known:
            check_block(graph, types, results)
            self._known[key] = len(self.blocks)
            self.blocks.append(RegionBlock(graph, types, results, module, found.where))
        return FoundVariant(specs, result, self._known[key], [], weights, _limits(graph, types))

    def _roots(self, found: Found, example: SampledCall) -> list[tuple[int, str, Any]]:
        """Return the tensors that a region's roots have: which root, the way to it, and the tensor."""
        of_roots = [
            (at, path, one)
            for at, root in enumerate(example.described.roots)
            for path, one in tensors_of(root)
        ]
        return of_roots + [(-1, path, one) for path, one in tensors_of(found.function)]

    def _exported(
        self, module: Any, types: Sequence[Type], found: Found, example: SampledCall
    ) -> tuple[Graph, dict[str, tuple[int, str]]]:
        import torch

        examples = [
            torch.zeros((), dtype=torch.int64) if dtype == "int32" else torch.zeros(shape)
            for dtype, shape in types
        ]
        with numbers_as_tensors():
            program = export(module, tuple(examples))
        with torch.no_grad():
            graph, arrays = import_exported(program, "block", {})
        if not all(extent.is_constant for type_ in graph.types.values() for extent in type_.shape):
            raise ModelError("a shape that depends on values")
        ways = {_memory(one): (root, path) for root, path, one in self._roots(found, example)}
        names = {one: f"v/{one}" for one in graph.types}
        names |= dict(zip(graph.inputs, (f"a{at}" for at in range(len(examples))), strict=True))
        weights: dict[str, tuple[int, str]] = {}
        for name, array in arrays.items():
            way = ways.get((array.__array_interface__["data"][0], array.shape))
            wanted = _as_name(f"{_label(found, example, way[0])}.{way[1]}" if way else "constant")
            names[name] = self.weights.name_of(array, wanted)
            if way is not None and name in graph.weights:
                weights[names[name]] = way
        made = renamed(graph, names)
        leaves = "*" if len(made.outputs) == 1 else {"tuple": ["*"] * len(made.outputs)}
        made.signature = {"positional": list(made.inputs), "keyword": {}, "output": leaves}
        made.nodes = [
            replace(node, source=found.where) if not node.source or node.source.startswith(FILE) else node
            for node in made.nodes
        ]
        return made, weights


def _distinct(sets: Sequence[set[int]]) -> list[set[int]]:
    return [one for at, one in enumerate(sets) if one not in sets[:at]]


def _numbers_of(example: SampledCall) -> list[int]:
    return [k for k, one in enumerate(example.described.leaves) if isinstance(one, _NUMBERS)]


def _memory(tensor: Any) -> tuple[int, tuple[int, ...]]:
    return tensor.data_ptr(), tuple(tensor.shape)


def _type_of(leaf: Any) -> Type:
    if isinstance(leaf, int):
        return "int32", ()
    if isinstance(leaf, float):
        return "float32", ()
    dtype = str(leaf.dtype).removeprefix("torch.")
    if dtype in ("int64", "int32") and not leaf.shape:
        return "int32", ()
    if dtype in ("int64", "int32"):
        raise ModelError("whole numbers with axes; allowed: float32, bool, and numbers")
    return "float32", tuple(leaf.shape)


def _label(found: Found, example: SampledCall, root: int) -> str:
    if root < 0:
        return found.unit.qualname
    own = example.described.roots[root]
    return str(getattr(own, "__name__", type(own).__name__))


def _as_name(text: str) -> str:
    plain = "".join(one if one.isalnum() or one in "._" else "_" for one in text)
    return plain.strip("._")[:80] or "constant"


def _with_fixed(specs: Sequence[Any], leaves: Sequence[Any], fixed: set[int]) -> list[Any]:
    """Return specs in which some numbers stand for themselves."""
    at = iter(range(len(leaves)))

    def changed(spec: Any) -> Any:
        word = spec[0]
        if word in ("tensor", "int", "float"):
            number = next(at)
            if number not in fixed:
                return spec
            value = leaves[number]
            return (
                ["equal", "float", value.hex()] if isinstance(value, float) else ["equal", "int", str(value)]
            )
        if word in ("tuple", "list", "slice"):
            return [word, [changed(one) for one in spec[1]]]
        return ["record", spec[1], [changed(one) for one in spec[2]]] if word == "record" else spec

    return [changed(one) for one in specs]


def _without_leaves(result: Any, places: dict[int, int]) -> Any:
    """Return a result's tree in which leaves are named by their places among operands."""
    word = result[0]
    if word == "leaf":
        return ["leaf", places[result[1]]]
    if word in ("tuple", "list"):
        return [word, [_without_leaves(one, places) for one in result[1]]]
    if word == "record":
        return [word, result[1], [_without_leaves(one, places) for one in result[2]]]
    return result


def _results(result: Any) -> Iterator[tuple[str, list[int]]]:
    if result[0] == "result":
        yield result[1], result[2]
    elif result[0] in ("tuple", "list", "record"):
        for one in result[-1]:
            yield from _results(one)


def _limits(graph: Graph, types: Sequence[Type]) -> list[int | None]:
    """Return below what whole numbers have to be, to be positions of what they are used for."""
    found: list[int | None] = [None] * len(types)
    aliases = {f"a{at}": at for at, (dtype, _) in enumerate(types) if dtype == "int32"}
    for node in graph.nodes:
        tensors = [one for one in node.operands if isinstance(one, str)]
        if (
            node.operator in ("reshape", "cast", "expand_dims", "squeeze", "unsqueeze", "to", "broadcast")
            and tensors
        ):
            if tensors[0] in aliases:
                aliases |= dict.fromkeys(node.results, aliases[tensors[0]])
        elif node.operator in _AT_POSITIONS and len(tensors) > 1 and tensors[1] in aliases:
            at, axis = aliases[tensors[1]], int(node.attributes.get("axis", 0))
            extent = graph.types[tensors[0]].shape[axis].constant
            found[at] = min(extent, found[at] or extent)
    return found
