"""Tensor code in a program's text as operations of a block."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dietcode.programs import module as marks
from dietcode.programs.code import argument_of
from dietcode.programs.kinds import NUMBERS, is_tensor_kind, is_tuple_kind, words
from dietcode.programs.roles import BINARY, COMPARE
from dietcode.programs.sources import is_tensor
from dietcode.programs.values import (
    Indices,
    KnownValue,
    Operation,
    Register,
    Several,
    Value,
    leaves_of,
    resolved,
)
from dietcode.workload.text import one_line

if TYPE_CHECKING:
    from dietcode.programs.writing import FunctionWriter

_RANDOM = (
    "rand",
    "randn",
    "randint",
    "randperm",
    "bernoulli",
    "multinomial",
    "normal",
    "dropout",
    "rand_like",
)

_OF_LENGTHS = "keep a sequence of any length as a list of its rows: append, torch.stack, x.unbind()"
_OF_SHAPES = frozenset(
    ["zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", "new_tensor"]
)
_TO_FLOATS = (
    "float",
    "sqrt",
    "exp",
    "log",
    "sin",
    "cos",
    "tanh",
    "sigmoid",
    "relu",
    "reciprocal",
    "square",
    "neg",
)
_ARITHMETIC = frozenset(function for _, function in (*BINARY.values(), *COMPARE.values()))


def tensor_operation(
    lowering: FunctionWriter,
    node: ast.AST,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
) -> Value:
    """Add an operation to the block that is being collected, and return its result.

    Parameters
    ----------
    lowering : FunctionWriter
    node : node
        Where it is in the text.
    function : callable
        Of tensors.
    args : sequence of Value or expression
        An expression is what a subscript has between its brackets.
    kwargs : mapping of str to Value, optional

    Raises
    ------
    ModelError
        An argument is no tensor or number, or has another shape in another sample.
    """
    if isinstance(function, marks.MarkedBlock):
        function = function.function
    if getattr(function, "__name__", "") in _RANDOM:
        raise lowering.refuse(node, f"{function.__name__} gives random numbers; give them with the instance")
    given = [_argument(lowering, node, one) for one in args]
    named = {name: _argument(lowering, node, one) for name, one in (kwargs or {}).items()}
    if function in _makers():
        first = given[0]
        if isinstance(first, Register) and (first.kind in NUMBERS or is_tensor_kind(first.kind)):
            return first
        if isinstance(first, Several) and not all(isinstance(one, KnownValue) for one in leaves_of(first)):
            function, named = _tensor_of, {}
            given = [_of_one_kind(lowering, node, first)]
    if getattr(function, "__name__", "") in _OF_SHAPES and is_tensor_kind(getattr(given[0], "kind", None)):
        given[0] = KnownValue(_of_shape(given[0].kind))
    if isinstance(given[0] if given else None, Register) and given[0].kind in NUMBERS - {"float"}:
        if getattr(function, "__name__", "") in _TO_FLOATS:
            given[0] = _as_float(lowering, given[0])
        elif getattr(function, "__name__", "") == "one_hot":
            given = [KnownValue(_identity(given[1]), "one_hot"), given[0]]
            function = _row_at
    leaves = [leaf for one in [*given, *named.values()] for leaf in leaves_of(one)]
    if all(isinstance(leaf, KnownValue) for leaf in leaves):
        return _constant(lowering, node, function, given, named)
    if function in _ARITHMETIC:
        given = [_as_float(lowering, one) for one in given]
    if function is operator.getitem and isinstance(given[1], Register) and given[1].kind in NUMBERS:
        function = _row_at if isinstance(given[0], KnownValue) else _item_at
    name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
    operation = Operation(function, given, named, lowering.source.where(node), name)
    return lowering.code.operate(operation, _kind(lowering, node))


def _of_shape(kind: Any) -> Any:
    """Return a tensor that has a kind's dtype and shape."""
    import torch

    return torch.zeros(kind[2], dtype=getattr(torch, kind[1]))


def _makers() -> tuple[Any, ...]:
    import torch

    return (torch.tensor, torch.as_tensor)


def _identity(num_classes: Any) -> Any:
    """Return the rows of which a position has its own."""
    import torch

    return torch.eye(num_classes.value)


def _tensor_of(items: Any) -> Any:
    """Return a tensor of numbers that come with the instance or are computed."""
    import torch

    return torch.stack(
        [_tensor_of(one) if isinstance(one, list | tuple) else torch.as_tensor(one) for one in items]
    )


def _of_one_kind(lowering: FunctionWriter, node: ast.AST, items: Several) -> Several:
    """Return numbers as floats where the tensor of them has floats."""
    kind = _kind(lowering, node)
    if not is_tensor_kind(kind) or kind[1] != "float32":
        return items

    def own(one: Any) -> Any:
        if isinstance(one, Several):
            return Several(tuple(map(own, one.items)), is_list=True)
        if isinstance(one, KnownValue):
            return KnownValue(float(one.value))
        return _as_float(lowering, one)

    return Several(tuple(map(own, items.items)), is_list=True)


def _as_float(lowering: FunctionWriter, value: Any) -> Any:
    """Return a number beside tensors as they have it: whole numbers of blocks are positions alone."""
    if isinstance(value, Register) and value.kind in NUMBERS - {"float"}:
        return Register(lowering.code.emit("unary", (value,), "float").number, "float", value.is_made)
    return value


def _row_at(tensor: Any, index: Any) -> Any:
    """Return a row at a position that is a number of the instance."""
    import torch

    if tensor.dim() == 2:
        return torch.nn.functional.embedding(index, tensor)
    return tensor.index_select(0, index.reshape(1)).squeeze(0)


def _item_at(tensor: Any, index: Any) -> Any:
    """Return an item of a computed tensor at a position that is a number of the instance.

    The position is read from a table of all positions, so the machine checks its range as that of any row.
    """
    import torch

    positions = torch.arange(len(tensor), dtype=torch.float32)
    chosen = torch.nn.functional.embedding(index, positions.unsqueeze(1))
    is_it = (positions == chosen).reshape(-1, *[1] * (tensor.dim() - 1))
    return torch.where(is_it, tensor, torch.zeros_like(tensor)).sum(0)


def _kind(lowering: FunctionWriter, node: ast.AST) -> Any:
    kinds = lowering.site(node).kinds
    if len(kinds) != 1:
        found = " and ".join(sorted(map(words, kinds))[:3])
        raise lowering.refuse(
            node, f"is {found} in different samples; allowed: one shape at a place of the text; {_OF_LENGTHS}"
        )
    (kind,) = kinds
    return kind


def _constant(
    lowering: FunctionWriter, node: ast.AST, function: Callable[..., Any], args: Any, kwargs: Any
) -> Value:
    """Compute at once what depends on no instance."""
    import torch

    try:
        with torch.no_grad():
            found = function(
                *(resolved(one, KnownValue.for_torch) for one in args),
                **{k: resolved(one, KnownValue.for_torch) for k, one in kwargs.items()},
            )
    except Exception as error:
        what = one_line(f"{type(error).__name__}: {error}", 200)
        raise lowering.refuse(node, f"cannot be computed: {what}") from error
    return _known(found, ast.unparse(node))


def _known(found: Any, name: str) -> Value:
    if isinstance(found, tuple | list):
        return Several(tuple(_known(one, name) for one in found))
    if is_tensor(found) and not found.dim() and not found.is_floating_point():
        return KnownValue(found.item(), is_tensor=True)
    return KnownValue(found, name)


def _argument(lowering: FunctionWriter, node: ast.AST, given: Any) -> Any:
    """Return an argument of tensor code."""
    if isinstance(given, ast.expr):
        return _index(lowering, node, given)
    value = argument_of(lowering.code, given)
    if isinstance(value, KnownValue) and isinstance(value.value, tuple | list):
        is_list = isinstance(value.value, list)
        value = Several(tuple(KnownValue(one, value.name) for one in value.value), is_list)
    if isinstance(value, Several):
        return Several(tuple(_argument(lowering, node, one) for one in value.items), value.is_list)
    return _unpacked(lowering, node, value) if isinstance(value, Register) else value


def _unpacked(lowering: FunctionWriter, node: ast.AST, value: Register) -> Value:
    kind = value.kind
    if kind == "number":  # whole for one sample, and not for another
        return Register(lowering.code.emit("unary", (value,), "float").number, "float", value.is_made)
    if kind == "none":
        return KnownValue(None)
    if kind in NUMBERS or is_tensor_kind(kind):
        if is_tensor_kind(kind) and kind[1] == "int32" and not value.is_made:
            raise lowering.refuse(
                node, f"{words(kind)}: whole numbers with axes; give them one by one, as a list"
            )
        return value
    if is_tuple_kind(kind):
        items = []
        for at, own in enumerate(kind[1]):
            found = lowering.code.emit("get", (value, KnownValue(at)))
            items.append(_unpacked(lowering, node, Register(found.number, own, value.is_made)))
        return Several(tuple(items))
    if isinstance(kind, tuple) and kind[0] == "mixed":
        what = " and ".join(kind[1])
        raise lowering.refuse(
            node, f"is {what} in different samples; allowed: one shape at a place of the text; {_OF_LENGTHS}"
        )
    what = words(kind)
    advice = "tensors, numbers, and tuples of them; go over a list by a loop"
    raise lowering.refuse(node, f"tensor code is given {what}; allowed: {advice}")


def _index(lowering: FunctionWriter, node: ast.AST, given: ast.expr) -> Any:
    if isinstance(given, ast.Tuple):
        return Several(tuple(_index(lowering, node, one) for one in given.elts))
    if isinstance(given, ast.Slice):
        ends = [
            KnownValue(None) if one is None else _argument(lowering, node, lowering.value(one))
            for one in (given.lower, given.upper, given.step)
        ]
        if any(isinstance(one, Register) for one in ends):
            raise lowering.refuse(node, "a slice whose ends depend on the instance; allowed: constants")
        return Indices(tuple(ends))
    return _argument(lowering, node, lowering.value(given))


def argmax_of(lowering: FunctionWriter, node: ast.Call, function: Any) -> Value | None:
    """Return the tensor whose largest element a call finds; None for other calls."""
    import torch

    if lowering.site(node).kinds != {"int"}:
        return None
    if function is torch.argmax:
        base = node.args[0]
    elif function is None and isinstance(node.func, ast.Attribute) and node.func.attr == "argmax":
        base = node.func.value
    else:
        return None
    return lowering.value(base)
