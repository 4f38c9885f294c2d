"""Tensor code over lists of any length: which function of `stacked` each piece of it is.

``torch.stack`` of a list stays a list of its rows. Rows are added up and compared two by two; what is done
to each row alone is done in a loop, whose rounds are rows of one bucket.
"""

from __future__ import annotations

import ast
import bisect
import functools
import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dietcode.programs import lists, orders, stacked
from dietcode.programs.dictionaries import Dictionary
from dietcode.programs.module import MarkedBlock
from dietcode.programs.sets import MemberSet
from dietcode.programs.sources import is_module, is_tensor

ALLOWED = (
    "sum, mean, max, min, softmax and argmax over its rows, products with a tensor, and what is done to each "
    "row alone; for all else write a loop over the list"
)
_EACH = frozenset(
    [
        "abs",
        "acos",
        "asin",
        "atan",
        "ceil",
        "clamp",
        "clone",
        "contiguous",
        "cos",
        "detach",
        "elu",
        "exp",
        "expm1",
        "float",
        "floor",
        "gelu",
        "hardsigmoid",
        "hardtanh",
        "leaky_relu",
        "log",
        "log1p",
        "logsigmoid",
        "mish",
        "neg",
        "reciprocal",
        "relu",
        "relu6",
        "round",
        "rsqrt",
        "selu",
        "sigmoid",
        "sign",
        "silu",
        "sin",
        "softplus",
        "softsign",
        "sqrt",
        "square",
        "tan",
        "tanh",
    ]
)
_BOTH = frozenset(
    [
        "add",
        "sub",
        "mul",
        "div",
        "truediv",
        "pow",
        "maximum",
        "minimum",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "__add__",
        "__sub__",
        "__mul__",
    ]
)
_ROW_MODULES = [
    "Linear",
    "LayerNorm",
    "RMSNorm",
    "ReLU",
    "GELU",
    "SiLU",
    "Tanh",
    "Sigmoid",
    "ELU",
    "LeakyReLU",
    "Softplus",
    "Mish",
    "Identity",
    "Dropout",
    "Hardtanh",
]
_WITH_AXIS = frozenset(["sum", "mean", "amax", "amin", "softmax", "log_softmax", "unsqueeze", "squeeze"])


_WHOLE = {
    "sum": stacked.added,
    "mean": stacked.mean,
    "softmax": stacked.softmax,
    "log_softmax": stacked.log_softmax,
}


class StackedRows(list[Any]):
    """``torch.stack`` of a list of any length, while samples run: the list of its rows, one at least."""

    def full(self) -> Any:
        """Return the tensor."""
        import torch

        return torch.stack(list(self))


@dataclass(frozen=True)
class ListsCall:
    """A function of `lists` that does what a place of the text says.

    Attributes
    ----------
    function : function
    given : tuple of (expression or None, object)
        Of each parameter, what the text gives; None for a function, which is the object.
    """

    function: Callable[..., Any]
    given: tuple[tuple[ast.expr | None, Any], ...]

    def same_as(self, other: ListsCall | None) -> bool:
        """Whether another sample had the same."""
        if other is None or self.function is not other.function or len(self.given) != len(other.given):
            return False
        return all(
            node is own and (node is not None or value is known)
            for (node, value), (own, known) in zip(self.given, other.given, strict=True)
        )


def rows_if_tensors(value: Any) -> Any:
    """Return a list of tensors of one shape as `StackedRows`, anything else as it is."""
    if not isinstance(value, list) or isinstance(value, StackedRows) or not value:
        return value
    is_one = all(
        is_tensor(one) and one.shape == value[0].shape and one.dtype == value[0].dtype for one in value
    )
    return StackedRows(value) if is_one and value[0].is_floating_point() else value


def has_text(value: Any) -> bool:
    """Whether a value is a text, or a tuple or list in which there is one."""
    if isinstance(value, tuple | list) and not hasattr(value, "_fields"):
        return any(map(has_text, value))
    return isinstance(value, str)


def is_object(value: Any) -> bool:
    """Whether a value is an object of a class of the user's, and no tensor."""
    return hasattr(value, "_fields") or (hasattr(value, "__dict__") and not is_tensor(value))


def python_call(
    function: Any, args: Sequence[Any], named: Mapping[str, Any], nodes: Sequence[ast.expr]
) -> ListsCall | None:
    """Return what a function of Python does to a list; None for what is no such function.

    Parameters
    ----------
    function : callable
        Of Python, as ``sum``.
    args, named : sequence and mapping
        The arguments.
    nodes : sequence of expression
        Where `args` are in the text.
    """
    if named or not args or not isinstance(args[0], list | tuple | Dictionary | MemberSet):
        return None
    items = args[0].set_members if isinstance(args[0], MemberSet) else list(args[0])
    is_of_objects = bool(items) and (is_object(items[0]) or has_text(items[0]))
    is_of_tensors = isinstance(rows_if_tensors(args[0]), StackedRows)
    known: dict[Any, Callable[..., Any]] = {
        sum: stacked.added if is_of_tensors else lists.total,
        min: orders.smallest_object if is_of_objects else orders.smallest,
        max: orders.largest_object if is_of_objects else orders.largest,
    }
    known |= {sorted: orders.ordered, any: lists.some, all: lists.every, heapq.heappop: orders.pop_smallest}
    known[heapq.heapify] = orders.as_heap
    found = next((own for one, own in known.items() if one is function), None)
    of_two: dict[Any, Callable[..., Any]] = {
        heapq.heappush: orders.push,
        heapq.heapreplace: orders.replace_smallest,
        heapq.heappushpop: orders.push_and_pop,
        bisect.bisect_left: orders.place_before,
        bisect.bisect_right: orders.place_behind,
        bisect.insort: orders.insert_behind,
    }
    pair = next((own for one, own in of_two.items() if one is function), None)
    if pair is not None and len(args) == 2:
        return ListsCall(pair, tuple(zip(nodes, args, strict=True)))
    return None if found is None or len(args) > 1 else ListsCall(found, ((nodes[0], args[0]),))


def tensor_call(
    function: Any, args: Sequence[Any], named: Mapping[str, Any], nodes: Sequence[ast.expr]
) -> ListsCall | None:
    """Return what tensor code does to a stack of any length; None where it is not known to be sound.

    Parameters
    ----------
    function : callable
        Of tensors.
    args, named : sequence and mapping
        The arguments; one of `args` is `StackedRows`.
    nodes : sequence of expression
        Where `args` are in the text.
    """
    word = getattr(function, "__name__", "")
    if is_module(function):
        return _of_module(function, args, nodes)
    if len(args) == 2 and not named and any(is_tensor(one) for one in args) | _are_rows(args):
        found = _of_two(word, function, args, nodes)
        if found is not None or word not in _WITH_AXIS:
            return found
    if len(args) == 2 and not named and word in _BOTH and isinstance(args[1], int | float):
        return _one_by_one(function, args, nodes)
    if len(args) == 2 and word in _BOTH and isinstance(args[0], int | float):
        return _one_by_one(function, args, nodes)
    if not isinstance(args[0], StackedRows):
        return None
    return _of_one(word, function, args, named, nodes)


def topk_call(given: Mapping[str, tuple[ast.expr, Any]]) -> ListsCall | None:
    """Return what ``topk`` of a row of numbers is; None of another axis, or of the smallest.

    Parameters
    ----------
    given : mapping of str to (expression, object)
        Its arguments, by the names of parameters: where they are in the text, and their values.
    """
    values = {name: value for name, (_, value) in given.items()}
    row: Any = values.get("input")
    many = values.get("k")
    rank = 1 + row[0].dim() if isinstance(row, StackedRows) else row.dim() if is_tensor(row) else 0
    is_of_row = rank == 1 and values.get("dim", -1) in (0, -1) and isinstance(many, int)
    is_largest = values.get("largest", True) is True and values.get("sorted", True) is True
    return ListsCall(stacked.most, (given["input"], given["k"])) if is_of_row and is_largest else None


def _are_rows(args: Sequence[Any]) -> bool:
    return all(isinstance(one, StackedRows) for one in args)


def _static(function: Any) -> tuple[None, Any]:
    return None, function


def _one_by_one(function: Any, args: Sequence[Any], nodes: Sequence[ast.expr]) -> ListsCall:
    pairs = tuple(zip(nodes, args, strict=True))
    if _are_rows(args):
        return ListsCall(stacked.each_of_both, (_static(function), *pairs))
    which = stacked.each_before if isinstance(args[0], StackedRows) else stacked.each_behind
    return ListsCall(which, (_static(function), *pairs))


def _of_two(word: str, function: Any, args: Sequence[Any], nodes: Sequence[ast.expr]) -> ListsCall | None:
    """Return what a function of two tensors is, of which one or both are stacks."""
    first, other = args
    ranks = [
        one[0].dim() if isinstance(one, StackedRows) else one.dim() for one in args if not _is_number(one)
    ]
    if word in ("matmul", "mv", "__matmul__"):
        if isinstance(first, StackedRows) and first[0].dim() == 0:  # weights of rows
            pairs = tuple(zip(nodes, args, strict=True))
            return ListsCall(stacked.weighted, pairs) if isinstance(other, StackedRows) else None
        if isinstance(first, StackedRows) and not isinstance(other, StackedRows):
            is_row = first[0].dim() == 1 and other.dim() in (1, 2)
            return _one_by_one(function, args, nodes) if is_row else None
        return None
    if word not in _BOTH:
        return None
    if _are_rows(args):
        return _one_by_one(function, args, nodes) if ranks[0] == ranks[1] else None
    at = 0 if isinstance(first, StackedRows) else 1
    return _one_by_one(function, args, nodes) if ranks[1 - at] <= ranks[at] else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _of_module(module: Any, args: Sequence[Any], nodes: Sequence[ast.expr]) -> ListsCall | None:
    (rows,) = args if len(args) == 1 else (None,)
    if not isinstance(rows, StackedRows) or rows[0].dim() < 1 or not _is_of_rows(module):
        return None
    return ListsCall(stacked.each, (_static(module), (nodes[0], rows)))


def _is_of_rows(module: Any) -> bool:
    """Whether a module computes each row of the last axis by itself."""
    name = type(module).__name__
    if not type(module).__module__.startswith("torch.nn"):
        return False
    if name in ("LayerNorm", "RMSNorm"):
        return len(module.normalized_shape) == 1
    return name in _ROW_MODULES or (name == "Sequential" and all(map(_is_of_rows, module)))


def _of_one(
    word: str, function: Any, args: Sequence[Any], named: Mapping[str, Any], nodes: Sequence[ast.expr]
) -> ListsCall | None:
    """Return what a function of a stack and of constants is."""
    rows = args[0]
    own = (nodes[0], rows)
    rank = 1 + rows[0].dim()
    rest, names = tuple(args[1:]), dict(named)
    if word in _EACH:
        return ListsCall(stacked.each, (_static(_row_function(function, rest, tuple(names.items()))), own))
    axis = names.pop("dim", names.pop("axis", rest[0] if rest else None))
    is_known = axis is None or type(axis) is int
    if len(rest) > 1 or names or not is_known or (axis is None and rank > 1):
        return None
    if axis is not None and axis < 0:
        axis += rank + (word == "unsqueeze")
    if axis:  # one of a row's
        row = _row_function(function, (axis - 1,), ())
        return ListsCall(stacked.each, (_static(row), own)) if word in _WITH_AXIS else None
    if word in ("argmax", "tolist"):
        which = stacked.best if word == "argmax" else stacked.numbers
        return ListsCall(which, (own,)) if rank == 1 else None
    return ListsCall(_WHOLE[word], (own,)) if word in _WHOLE else _extreme(word, axis, own)


def _extreme(word: str, axis: int | None, own: tuple[ast.expr, Any]) -> ListsCall | None:
    import torch

    functions = {"max": torch.maximum, "amax": torch.maximum, "min": torch.minimum, "amin": torch.minimum}
    if word not in functions:
        return None
    which = stacked.extreme if axis == 0 and word in ("max", "min") else stacked.folded
    return ListsCall(which, (_static(functions[word]), own))


@functools.lru_cache(maxsize=1024)
def _row_function(function: Any, rest: tuple[Any, ...], named: tuple[tuple[str, Any], ...]) -> Any:
    """Return a function of one row, always the same one for the same arguments."""
    if not rest and not named:
        return function
    names = dict(named)

    def of_row(row: Any) -> Any:
        return function(row, *rest, **names)

    of_row.__name__ = getattr(function, "__name__", "of_row")
    return MarkedBlock(of_row)


def row_function(index: Any) -> Any | None:
    """Return what ``rows[:, …]`` does to one row; None where it is not known."""
    if not isinstance(index, tuple) or not index or index[0] != slice(None) or len(index) < 2:
        return None
    if any(one is not None and not isinstance(one, int) for one in index[1:]):
        return None
    return _row_item(index[1:])


@functools.lru_cache(maxsize=1024)
def _row_item(index: tuple[Any, ...]) -> Any:
    def item(row: Any) -> Any:
        return row[index]

    return MarkedBlock(item)
