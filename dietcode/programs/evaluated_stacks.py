"""Tensors made of lists of any length in a program's text, run on samples: they stay lists of their rows."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from dietcode.programs import stacked
from dietcode.programs.evaluated_texts import TextEvaluation
from dietcode.programs.kinds import WholeNumbers, kind_of, words
from dietcode.programs.sources import is_tensor
from dietcode.programs.stacks import ALLOWED as STACKS
from dietcode.programs.stacks import ListsCall, StackedRows, rows_if_tensors, tensor_call
from dietcode.programs.statements import at, is_read_alone


class StackEvaluation(TextEvaluation):
    """Expressions of a function, tensors of lists among them."""

    def _of_list(self, node: ast.Call, function: Any, args: list[Any], named: dict[str, Any]) -> Any:
        """Return the rows of a tensor that a call makes of a list of any length; None for other calls."""
        if not args or not node.args or isinstance(self._site(node.args[0]).value, ast.List):  # written out
            return None
        if is_stack(function, node):
            return self._stack(node, args, named)
        if is_joined(function, node):
            return self._joined(node, function, args, named)
        is_known = self._statics.find(node.args[0])[0]
        if not is_known and is_ids(function, args[0], node.args[0], named):
            import torch

            self._set_role(node, "stack")
            return WholeNumbers(map(torch.tensor, args[0]))
        if isinstance(args[0], WholeNumbers) and is_embedding(function) and len(args) == 1:
            return rows_if_tensors(
                self._library(node, ListsCall(stacked.each, ((None, function), (node.args[0], args[0]))))
            )
        return None

    def _stack(self, node: ast.Call, args: list[Any], named: dict[str, Any]) -> Any:
        """Keep a list of any length as the rows of what ``torch.stack`` gives."""
        axis = named.pop("dim", args[1] if len(args) > 1 else 0)
        rows = rows_if_tensors(args[0])
        if not isinstance(rows, StackedRows) or axis != 0 or named:
            what = "tensors float32 of one shape, along axis 0" if isinstance(args[0], list) else "a list"
            raise self._refuse(node, f"torch.stack of {words(kind_of(args[0]))}; allowed: {what}")
        self._set_role(node, "stack")
        return StackedRows(rows)

    def _joined(self, node: ast.Call, function: Any, args: list[Any], named: dict[str, Any]) -> Any:
        """Keep a list of any length of tensors, one behind the other, as the rows that they have."""
        axis = named.pop("dim", args[1] if len(args) > 1 else 0)
        given = rows_if_tensors(args[0])
        rank = given[0].dim() if isinstance(given, StackedRows) else 0
        if function.__name__ == "vstack" and rank == 1 and not named:
            self._set_role(node, "stack")
            return StackedRows(given)
        if rank == 1 and len(given[0]) == 1 and axis in (0, -1) and not named:
            import torch

            numbers = ListsCall(stacked.each, ((None, torch.squeeze), (node.args[0], given)))
            return rows_if_tensors(self._library(node, numbers))
        is_tuple = type(args[0]) is tuple and is_read_alone(node.args[0])
        if is_tuple and rank < 2 and args[0] and all(map(is_tensor, args[0])):
            return self._with_items(node, len(args[0]))
        if rank < 2 or axis not in (0, -rank) or named:
            what = "of tensors float32 of one shape and of two axes or more, along axis 0"
            raise self._refuse(
                node, f"{function.__name__} of {_words_of_items(args[0])}; allowed: {what}, or torch.stack"
            )
        return rows_if_tensors(self._library(node, ListsCall(stacked.unbound, ((node.args[0], given),))))

    def _with_items(self, node: ast.Call, many: int) -> Any:
        """Evaluate a call of a tuple with the items of it written out."""
        given, chains = node.args[0], self._source.chains
        if (node, 11) not in chains:
            items: list[ast.expr] = [
                at(given, ast.Subscript(given, at(given, ast.Constant(k)), ast.Load())) for k in range(many)
            ]
            whole = at(given, ast.Tuple(items, ast.Load()))
            chains[node, 11] = many, at(node, ast.Call(node.func, [whole, *node.args[1:]], node.keywords))
        known, written = chains[node, 11]
        if known != many:
            raise self._refuse(node, "joins a tuple of another number of tensors in another sample")
        self._set_role(node, "written").value = written
        return self._value(written)

    def _stacked(
        self,
        node: ast.AST,
        function: Any,
        args: list[Any],
        nodes: list[ast.expr],
        named: Mapping[str, Any] | None = None,
    ) -> Any:
        """Compute tensor code over stacks of any length.

        Parameters
        ----------
        node : expression
        function : callable
            Of tensors.
        args : list
        nodes : list of expression
            Where they are in the text.
        named : mapping, optional
        """
        call = tensor_call(function, args, named or {}, nodes)
        read = [one for one, _ in call.given if one is not None] if call is not None else []
        others = [one for one in nodes if one not in read]
        if isinstance(node, ast.Call):
            others += [one.value for one in node.keywords]
        if call is None or not all(self._statics.find(one)[0] for one in others):
            name = getattr(function, "__name__", type(function).__name__)
            raise self._refuse(node, f"{name} of torch.stack of a list of any length; allowed: {STACKS}")
        return self._library(node, call)


def is_stack(function: Any, node: ast.Call) -> bool:
    """Whether a call is ``torch.stack`` of a list that is not written there item by item."""
    import torch

    return function is torch.stack and _is_of_any_length(node)


def is_joined(function: Any, node: ast.Call) -> bool:
    """Whether a call is ``torch.cat`` of a list that is not written there item by item."""
    import torch

    own = (torch.cat, torch.concat, torch.concatenate, torch.vstack)
    return any(function is one for one in own) and _is_of_any_length(node)


def is_ids(function: Any, given: Any, node: ast.expr, named: Mapping[str, Any]) -> bool:
    """Whether a call is ``torch.tensor`` of a list of whole numbers that is not written there."""
    import torch

    makers = (torch.tensor, torch.as_tensor, torch.LongTensor, torch.IntTensor)
    is_known = set(named) <= {"dtype"} and named.get("dtype", torch.int64) in (torch.int64, torch.int32)
    is_list = type(given) is list and bool(given) and all(type(one) is int for one in given)
    return is_list and is_known and not isinstance(node, ast.List) and any(function is one for one in makers)


def is_embedding(function: Any) -> bool:
    """Whether something is a table of rows for whole numbers."""
    import torch

    return isinstance(function, torch.nn.Embedding) and function.max_norm is None


def _is_of_any_length(node: ast.Call) -> bool:
    if not node.args:
        return False
    given = node.args[0]
    if not isinstance(given, ast.List | ast.Tuple):
        return True
    return any(isinstance(one, ast.Starred) for one in given.elts)


def _words_of_items(value: Any) -> str:
    kinds = sorted({words(kind_of(one)) for one in value}) if isinstance(value, list | tuple) else []
    return f"a list of {' and '.join(kinds[:3])}" if kinds else words(kind_of(value))
