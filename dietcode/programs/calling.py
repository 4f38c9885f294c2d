"""Calls of a program's text: which function they run, and which of its arguments are static."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence
from typing import Any

from dietcode.programs import module as marks
from dietcode.programs.kinds import kind_of
from dietcode.programs.sources import FunctionSource, Statics, is_frozen, is_tensor
from dietcode.workload.text import clip


def learn_static(statics: Statics, targets: Sequence[ast.expr], value: ast.expr) -> bool:
    """Note a name that is assigned once, to a module, a weight or a number; returns whether it is one."""
    (target, *others) = targets
    if others or not isinstance(target, ast.Name) or statics.source.stores.get(target.id) != 1:
        return False
    known, found = statics.find(value)
    is_number = type(found) is int and target.id in statics.source.assigned_first
    if not known or not (is_frozen(found) or is_number):
        return False
    statics.names[target.id] = found
    return True


def callable_of(function: Any) -> tuple[Any, list[Any]]:
    """Return the plain function that a call runs, and what it is bound to."""
    if isinstance(function, marks.Program):
        return function.function, function.bound
    if hasattr(function, "forward"):
        function = function.forward
    if inspect.ismethod(function):
        return function.__func__, [function.__self__]
    return function, []


def static_arguments(
    statics: Statics, source: FunctionSource, nodes: Sequence[ast.expr | None], given: Sequence[Any]
) -> dict[str, Any]:
    """Return the arguments of a call that are modules, functions, weights or constant dicts, by parameters.

    Parameters
    ----------
    statics : Statics
        Of the caller.
    source : FunctionSource
        Of what is called; a weight is no constant of a parameter that is assigned to.
    nodes : sequence of expression or None
        None for what is bound, or left out.
    given : sequence of object
        The values.
    """
    found = {}
    for name, node, value in zip(source.parameters, nodes, given, strict=True):
        if is_tensor(value) and source.stores[name] > 1:
            continue
        known = True if node is None else statics.find(node)[0]
        if known and (is_frozen(value) or isinstance(value, dict | set)):
            found[name] = value
        elif kind_of(value) == "object" and value is not None:
            raise statics.source.refusal(
                node or statics.source.tree, f"{clip(value)} is chosen by values; write the calls in an `if`"
            )
    return found
