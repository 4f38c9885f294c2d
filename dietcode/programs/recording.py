"""Samples run statement by statement, and what they show of a program."""

from __future__ import annotations

import ast
import copy
import functools
import sys
import threading
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from dietcode.errors import ModelError
from dietcode.programs import lists
from dietcode.programs.calling import learn_static
from dietcode.programs.dictionaries import Dictionary
from dietcode.programs.evaluated_exceptions import ExceptionEvaluation
from dietcode.programs.evaluating import BREAK, CONTINUE, NEXT
from dietcode.programs.function_values import FunctionValue
from dietcode.programs.iterators import ListIterator, NumberIterator
from dietcode.programs.kinds import WholeNumbers, is_record_kind, kind_of, tensors_in
from dietcode.programs.ownership import Ownership
from dietcode.programs.roles import BINARY
from dietcode.programs.sets import MemberSet, has_one
from dietcode.programs.shared_lists import SharedLists
from dietcode.programs.sites import Context, allowed_for, named
from dietcode.programs.sources import FunctionSource, is_tensor
from dietcode.programs.stacks import ListsCall, StackedRows, has_text
from dietcode.programs.statements import at
from dietcode.programs.unrolling import rounds_of
from dietcode.runtime.programs.instances import plain_value
from dietcode.workload.text import clip

_STACK_BYTES, _DEEPEST = 1 << 29, 200_000


class Recording:
    """What samples show of a program.

    Parameters
    ----------
    function : function
        The program's.
    bound : sequence of object
        Its first parameters, where it is a method.

    Attributes
    ----------
    contexts : list of Context
        The first is the program.
    entries : set of int
        The contexts of the program itself, which become one.
    records : dict of str to list of str
        The fields of each class whose objects the program reads, in order.
    classes : dict of str to type
        These classes.
    wanted : list
        What the function itself returns, of each sample.
    """

    def __init__(self, function: Any, bound: Sequence[Any] = ()) -> None:
        self.contexts: list[Context] = []
        self.entries: set[int] = set()
        self.records: dict[str, list[str]] = {}
        self.classes: dict[str, type] = {}
        self.made: dict[int, Any] = {}
        self.functions: dict[Any, type] = {}
        self.wanted: list[Any] = []
        self.ownership = Ownership()
        self.shared = SharedLists()
        self._known: dict[Any, int] = {}
        self._sources: dict[Any, FunctionSource] = {}
        self._kept: list[Any] = []
        self._function = function
        source = self.source_of(function)
        if source.rest or source.named_rest:
            what = f"*{source.rest}" if source.rest else f"**{source.named_rest}"
            raise source.refusal(source.tree, f"{what} of a program; give it a list")
        names = source.parameters
        self._bound: dict[str, Any] = dict(zip(names, bound, strict=False))
        self._num_given = -1  # arguments of each instance; the first one says whether it gives defaults too

    def run(self, samples: Sequence[Any]) -> None:
        """Run samples, each of them one instance.

        Raises
        ------
        ModelError
            The program has what cannot be compiled, or fails; names file and line.
        """
        problem: list[BaseException] = []

        def work() -> None:
            import torch

            limit = sys.getrecursionlimit()
            sys.setrecursionlimit(_DEEPEST)
            try:
                with torch.no_grad():
                    for one in samples:
                        self.made.clear()
                        self.ownership.clear()
                        given = [*self._bound.values(), *self._evaluated(one)]
                        left = self._left_out(len(given))
                        statics = {**self._bound, **left}
                        result, number = self.call(self._function, [*given, *left.values()], statics)
                        self.shared.check()
                        self._check_result(result)
                        self.entries.add(number)
                        self.wanted.append(self._function(*self._bound.values(), *self.instance(one)))
            except BaseException as error:
                problem.append(error)
            finally:
                sys.setrecursionlimit(limit)

        before = threading.stack_size(_STACK_BYTES)
        thread = threading.Thread(target=work)
        thread.start()
        threading.stack_size(before)
        thread.join()
        if problem:
            raise problem[0]

    def arguments(self, instance: Any) -> list[Any]:
        """Return the arguments of an instance: itself, or its items where a program takes several."""
        bound = list(self._bound.values())
        source = self.source_of(self._function)
        many = len(source.parameters) - len(bound)
        least = many - source.num_defaults
        is_several = isinstance(instance, tuple) and many > 1 and max(least, 2) <= len(instance) <= many
        if not is_several and not least <= 1 <= many:
            allowed = f"tuples of {least} to {many}" if least < many else f"tuples of {many}"
            name = self._function.__name__
            raise ModelError(f"--samples: given {clip(instance)}; allowed: {allowed}, which {name} takes")
        given = list(instance) if is_several else [instance]
        if self._num_given not in (-1, len(given)):
            raise ModelError(
                f"--samples: {len(given)} arguments in one instance and {self._num_given} in another; "
                "allowed: as many in each, or all that have defaults left out"
            )
        self._num_given = len(given)
        return [*bound, *given]

    def _left_out(self, num_given: int) -> dict[str, Any]:
        """Return the defaults of the parameters that instances leave out: constants of the program."""
        source = self.source_of(self._function)
        names = source.parameters
        found = {names[at]: source.default(at) for at in range(num_given, len(names))}
        for position, name in enumerate(names[num_given:], num_given):
            self.shared.note(found[name], functools.partial(source.changed_default, position))
        return found

    def instance(self, instance: Any) -> list[Any]:
        """Return a copy of the arguments of an instance, without what the program is bound to."""
        return list(copied(self.arguments(instance)[len(self._bound) :]))

    def taken(self, instance: Any) -> list[Any]:
        """Return what `instance` does, with tensors of whole numbers as lists, as a bundle reads them."""
        given = self.arguments(instance)[len(self._bound) :]
        return list(copied(given, lambda one: one.tolist() if _are_whole_numbers(one) else one, True))

    def _evaluated(self, instance: Any) -> list[Any]:
        """Return what `instance` does, with tensors of whole numbers as lists of tensors."""
        return list(copied(self.arguments(instance)[len(self._bound) :], _rows_of_numbers, True))

    def _check_result(self, result: Any) -> None:
        """Refuse a result that would come out as something else."""
        source = self.source_of(self._function)
        for one, advice in (
            (MemberSet, "a set; return sorted of it, or a list"),
            (ListIterator | NumberIterator, "an iterator; return list of it"),
            (FunctionValue, "a function; return what it gives"),
        ):
            if has_one(result, one):
                raise source.refusal(source.tree.body[-1], f"returns {advice}")
        if _has_stack(result):
            raise source.refusal(
                source.tree.body[-1],
                "returns torch.stack of a list of any length; return the list, and stack it outside",
            )

    def fields_of(self, cls: type) -> list[str] | None:
        """Return the fields of a class that are read, to add to; None where another class has its name."""
        if self.classes.setdefault(cls.__name__, cls) is not cls:
            return None
        return self.records.setdefault(cls.__name__, [])

    def source_of(self, function: Any) -> FunctionSource:
        """Return the source of a function, read once."""
        if function not in self._sources:
            self._sources[function] = FunctionSource(function)
        return self._sources[function]

    def call(
        self,
        function: Any,
        args: Sequence[Any],
        statics: dict[str, Any] | None,
        callees: dict[int, None] | None = None,
    ) -> tuple[Any, int]:
        """Return what a function returns, and the number of the context that computed it.

        That is also noted among `callees`, before it runs: it may throw.
        """
        source = self.source_of(function)
        if len(args) != len(source.parameters):
            raise source.refusal(
                source.tree, f"given {len(args)} arguments; it takes {len(source.parameters)}"
            )
        given = statics or {}
        kinds = tuple(
            "static" if name in given else _kind_in_context(one)
            for name, one in zip(source.parameters, args, strict=True)
        )
        key = (function, kinds, tuple(sorted((name, id(one)) for name, one in given.items())))
        if key not in self._known:
            self._kept.append(given)
            self._known[key] = len(self.contexts)
            self.contexts.append(Context(len(self.contexts), source, given))
        context = self.contexts[self._known[key]]
        if callees is not None:
            callees[context.number] = None
        run = _Activation(self, context, dict(zip(source.parameters, args, strict=True)))
        return run.result(), context.number


class _Activation(ExceptionEvaluation):
    """A call of a function."""

    def result(self) -> Any:
        """Run the function, and return what it returns."""
        found = self._body(self._source.tree.body)
        return None if found is NEXT else found

    def _body(self, body: Sequence[ast.stmt]) -> Any:
        for node in body:
            self._context.reached.add((self._path, node))
            found = self._statement(node)
            if found is not NEXT:
                return found
        return NEXT

    def _statement(self, node: ast.stmt) -> Any:
        run = _STATEMENTS.get(type(node))
        if run is None:
            raise self._refuse(node, f"{named(node)}; allowed: {allowed_for(node)}")
        return run(self, node)

    def _assign(self, node: ast.Assign | ast.AnnAssign) -> Any:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if node.value is not None and not learn_static(self._statics, targets, node.value):
            value = self._value(node.value)
            for target in targets:
                self._store(target, value)
        return NEXT

    def _augmented(self, node: ast.AugAssign) -> Any:
        if not isinstance(node.target, ast.Name):
            raise self._refuse(node, "an assignment as x.y += z; write x.y = x.y + z")
        if type(node.op) not in BINARY:
            raise self._refuse(node, f"the operator {type(node.op).__name__}")
        before = self._values.get(node.target.id)
        site = self._site(node.target)
        site.kinds.add(kind_of(before))
        site.is_made |= any(id(one) in self._recording.made for one in tensors_in(before))
        other = self._value(node.value)
        if isinstance(before, MemberSet | Dictionary):
            self._store(node.target, self._changed_by(node, before, other))
            return NEXT
        if isinstance(before, list) and not isinstance(before, StackedRows) and isinstance(node.op, ast.Add):
            pairs = ((node.target, before), (node.value, other))
            self._store(node.target, self._library(node, ListsCall(lists.extended, pairs)))
            return NEXT
        name = at(node.target, ast.Name(node.target.id, ast.Load()))
        target = self._source.chains.setdefault((node, 9), name)
        of_class = self._operated_by_class(
            node, BINARY[type(node.op)][1], [before, other], [target, node.value]
        )
        if of_class is not None:
            if self._says_itself(before, f"__i{BINARY[type(node.op)][1].__name__.strip('_')}__"):
                raise self._refuse(
                    node, "an operator as += that a class changes its object by; write x = x + y"
                )
            self._store(node.target, of_class[0])
            return NEXT
        if is_tensor(before) and not self._recording.ownership.is_alone(before, self._references(before)):
            raise self._refuse(
                node, "changes a tensor that something else may have too; write x = x + y in full"
            )
        value = self._operated(node, BINARY[type(node.op)][1], [before, other], [node.target, node.value])
        self._site(node).kinds.add(kind_of(value))
        self._store(node.target, value)
        return NEXT

    def _references(self, tensor: Any) -> int:
        """Return how many references to a tensor a variable and its assignment are."""
        return 2 + (id(tensor) in self._recording.made)

    def _expression(self, node: ast.Expr) -> Any:
        if not isinstance(node.value, ast.Constant):
            self._value(node.value)
        return NEXT

    def _if(self, node: ast.If) -> Any:
        return self._body(node.body if self._truth(node.test) else node.orelse)

    def _while(self, node: ast.While) -> Any:
        if node.orelse:
            raise self._refuse(node, "a loop with else; write a variable that says so")
        while self._truth(node.test):
            found = self._body(node.body)
            if found is BREAK:
                break
            if found is not CONTINUE and found is not NEXT:
                return found
        return NEXT

    def _for(self, node: ast.For) -> Any:
        if node.orelse:
            raise self._refuse(node, "a loop with else; write a variable that says so")
        rounds = rounds_of(node, self._statics)
        if rounds is None:
            return self._loop(node.target, node.iter, lambda: self._body(node.body))
        outer = self._path
        found = NEXT
        for number, one in enumerate(rounds):
            self._path = (*outer, number)
            self._statics.names.update(one.names)
            for target, value in one.assigned:
                self._store(target, self._value(value))
            found = self._body(node.body)
            if found is BREAK or (found is not NEXT and found is not CONTINUE):
                break
        self._path = outer
        return NEXT if found in (BREAK, CONTINUE) else found

    def _return(self, node: ast.Return) -> Any:
        return None if node.value is None else self._value(node.value)

    def _pass(self, node: ast.stmt) -> Any:
        return {ast.Break: BREAK, ast.Continue: CONTINUE}.get(type(node), NEXT)


def _kind_in_context(value: Any) -> Any:
    """Return a value's kind; lists of other tensors, of texts or of objects make another context."""
    kind = kind_of(value)
    first = value[0] if isinstance(value, list) and value else None
    is_apart = is_tensor(first) or has_text(first) or is_record_kind(kind_of(first))
    return (kind, kind_of(first)) if is_apart else kind


def copied(
    value: Any, as_given: Callable[[Any], Any] = lambda tensor: tensor, has_texts: bool = False
) -> Any:
    """Return what an instance is, so that a program may change it; tensors stay the same, or as is said.

    With texts, members of an Enum are numbers or texts, as programs have them.
    """
    tensors, members = _tensors_of(value)
    known: dict[int, Any] = {id(one): as_given(one) for one in tensors}
    if has_texts:
        known |= {id(one): plain_value(one) for one in members}
    return copy.deepcopy(value, known)


def _are_whole_numbers(tensor: Any) -> bool:
    """Whether a tensor is a list of whole numbers for a program."""
    return tensor.dim() > 0 and str(tensor.dtype) in ("torch.int64", "torch.int32")


def _rows_of_numbers(tensor: Any) -> Any:
    rows = tensor.unbind(0) if _are_whole_numbers(tensor) else None
    return tensor if rows is None else WholeNumbers(map(_rows_of_numbers, rows))


def _tensors_of(value: Any) -> tuple[list[Any], list[Enum]]:
    """Return the tensors of an instance, and its members of Enums."""
    found: list[Any] = []
    members: list[Enum] = []
    seen, waiting = set(), [value]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if is_tensor(one):
            found.append(one)
        elif isinstance(one, Enum):
            members.append(one)
        elif isinstance(one, list | tuple):
            waiting += one
        elif hasattr(one, "__dict__"):
            waiting += vars(one).values()
    return found, members


def _has_stack(value: Any) -> bool:
    if isinstance(value, StackedRows):
        return True
    return isinstance(value, list | tuple) and any(map(_has_stack, value))


_STATEMENTS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Assign: _Activation._assign,
    ast.AnnAssign: _Activation._assign,
    ast.AugAssign: _Activation._augmented,
    ast.Expr: _Activation._expression,
    ast.If: _Activation._if,
    ast.While: _Activation._while,
    ast.For: _Activation._for,
    ast.Return: _Activation._return,
    ast.Raise: _Activation._raise,
    ast.Assert: _Activation._assert,
    ast.Try: _Activation._try,
    ast.Pass: _Activation._pass,
    ast.Break: _Activation._pass,
    ast.Continue: _Activation._pass,
}
