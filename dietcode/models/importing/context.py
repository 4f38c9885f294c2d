"""What a rule of the importer sees: the graph that is built, and the node that is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from dietcode.graph.extent import Extent, smaller
from dietcode.graph.graph import Graph, Value
from dietcode.graph.tensor_type import DTYPES, HALVES, GraphError
from dietcode.models.importing.builder import F, GraphBuilder, registered
from dietcode.models.importing.symbols import Symbols
from dietcode.workload.text import one_line

NOT_A_CONSTANT = "a number that depends on sizes, where only constants are known"
Imported: TypeAlias = Value | tuple[Value, ...] | list[Value]


class Importer(GraphBuilder):
    """Translates one exported program's nodes; rules call its methods.

    Parameters
    ----------
    graph : Graph
        What nodes are added to.
    symbols : Symbols
    """

    def __init__(self, graph: Graph, symbols: Symbols) -> None:
        super().__init__(graph)
        self.symbols = symbols
        self.values: dict[str, Any] = {}
        self.constants: dict[str, np.ndarray[Any, Any]] = {}  # weights that rules add
        self.around = ""  # the source of the node that calls this function, for nodes that have none

    def add(self, operator: str, *operands: Value, **attributes: Any) -> str:
        """Add a node, and return the name of its first result; its attributes are constants and extents."""
        if any(hasattr(one, "op") and hasattr(one, "meta") for one in (*operands, *attributes.values())):
            raise GraphError(NOT_A_CONSTANT)
        return super().add(operator, *operands, **attributes)

    def value(self, argument: Any) -> Value:
        """Return an argument of PyTorch's as an operand: a name, a number, or None."""
        if hasattr(argument, "op") and hasattr(argument, "meta"):
            found: Value | Extent = self.values[argument.name]
            if isinstance(found, Extent):
                return self.number(found)
            if found is None:
                raise GraphError(f"a result that models do not have ({argument.name})")
            return found
        if argument is None or isinstance(argument, bool | int | float):
            return argument
        raise GraphError(f"given {type(argument).__name__}; allowed: a tensor or a number")

    def tensor(self, argument: Any) -> str:
        """Return an argument that has to be a tensor."""
        found = self.value(argument)
        if not isinstance(found, str):
            raise GraphError(f"given {found!r}; allowed: a tensor")
        return found

    def extent(self, argument: Any) -> Extent:
        """Return an argument that is a size."""
        if hasattr(argument, "op") and hasattr(argument, "meta"):
            found = self.values[argument.name]
            if isinstance(found, Extent):
                return found
            expression = argument.meta["val"].node.expr
            if isinstance(found, str) and not any(map(self.symbols.is_size, expression.free_symbols)):
                text = one_line(self.symbols.text(expression), 100)
                raise GraphError(f"a size of {text}; allowed: sizes by +, -, *, //, %, min and max")
            raise GraphError(
                "a size that depends on values and has no bounds; write torch._check(size >= 0) and "
                "torch._check(size <= 512) after it, with the most that it can be"
            )
        return self.symbols.extent(argument)

    def shape(self, arguments: Sequence[Any]) -> tuple[Extent, ...]:
        """Return arguments that are sizes."""
        return tuple(self.extent(one) for one in arguments)

    def symbols_shape(self, sizes: Sequence[Any]) -> tuple[Extent, ...]:
        """Return PyTorch's sizes as extents."""
        return tuple(self.symbols.extent(size) for size in sizes)

    def at(self) -> str:
        """Return where the node is that is imported, as messages end."""
        return f" ({self.source})" if self.source else ""

    def bounded_by(self, first: Extent, second: Extent) -> bool:
        """Note that a size is at most an extent, where its node can check it; returns whether it can."""
        (name,) = first.variables if len(first.variables) == 1 else ("",)
        sizes = list(self.graph.sizes)
        if first != Extent.of(name) or name not in sizes:
            return False
        if second.variables & set(sizes[sizes.index(name) :]):
            return False
        self.graph.sizes[name] = smaller(self.graph.sizes[name], second, self.graph.ranges)
        return True

    def sliced(self, a: Mapping[str, Any], length: Extent) -> tuple[Extent, Extent]:
        """Return the bounds of a slice that arguments name, as `span` does."""
        is_far = a["end"] is None or (isinstance(a["end"], int) and a["end"] >= 2**62)
        start = Extent() if a["start"] is None else self.extent(a["start"])
        return self.span(start, length if is_far else self.extent(a["end"]), length)


Rule: TypeAlias = Callable[[Importer, Mapping[str, Any], Any], Imported]
RULES: dict[str, Rule] = {}


def rule(*names: str, **bound: Any) -> Callable[[F], F]:
    """Register a rule for operators of PyTorch's, as ``aten.add.Tensor``.

    A rule takes the importer, the arguments by name with their defaults, and the fake result; what else it
    takes is `bound` by name.
    """
    return registered(RULES, names, bound)


def dtype_name(dtype: Any) -> str:
    """Return the name of the dtype that graphs have for one of PyTorch's: float32 for half precision.

    Raises
    ------
    GraphError
        Models do not have it.
    """
    name = str(dtype).removeprefix("torch.")
    if name.startswith("complex"):
        raise GraphError(f"dtype {name}; allowed: within a model; give and return torch.view_as_real(x)")
    if name in HALVES:
        return "float32"
    if name not in DTYPES:
        raise GraphError(f"dtype {name}; allowed: {', '.join(DTYPES)} (convert with model.float())")
    return name
