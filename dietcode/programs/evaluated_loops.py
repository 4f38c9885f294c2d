"""Loops in a program's text, run on samples: statements, comprehensions, and what they go over."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from typing import Any

from dietcode.programs import iterators
from dietcode.programs.dictionaries import Dictionary
from dietcode.programs.evaluated_items import ItemEvaluation, kind_words
from dietcode.programs.evaluating import BREAK, CONTINUE, NEXT
from dietcode.programs.exceptions import SampleError
from dietcode.programs.iterators import ListIterator, NumberIterator
from dietcode.programs.sets import MemberSet
from dietcode.programs.sources import is_tensor
from dietcode.programs.statements import at, is_read_alone
from dietcode.programs.unrolling import listed

LOOPED = (range, enumerate, zip, reversed)


class LoopEvaluation(ItemEvaluation):
    """Expressions of a function, loops among them."""

    def _loop(self, target: ast.expr, iterable: ast.expr, body: Callable[[], Any]) -> Any:
        for one in self._items(iterable):
            self._store(target, one)
            found = body()
            if found is BREAK:
                break
            if found is not CONTINUE and found is not NEXT:
                return found
        return NEXT

    def _items(self, node: ast.expr, is_beside: bool = True) -> Any:
        """Return what a loop goes over, which may be an iterator where it is taken from one by one."""
        self._site(node)  # it is reached
        function = self._statics.find(node.func)[1] if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Call) and function in LOOPED:
            strict = [one for one in node.keywords if one.arg == "strict" and function is zip]
            if len(strict) != len(node.keywords):
                raise self._refuse(
                    node, f"{function.__name__} with names of arguments; give them by position"
                )
            if function is range:
                return range(*[self._value(one) for one in node.args])
            return self._items_of_call(node, function, bool(strict) and self._value(strict[0].value))
        value = self._value(node, is_view=True)
        if self._says_itself(value, "__iter__"):
            return self._items(self._iterated(node), is_beside)
        if not isinstance(value, ListIterator | NumberIterator):
            return self._items_in(node, value)
        if not is_beside:
            raise self._refuse(node, f"an {type(value).__name__} in reversed; write list of it")
        return _taken_from(value)

    def _items_of_call(self, node: ast.Call, function: Any, is_strict: bool) -> Any:
        """Return what ``zip``, ``enumerate`` or ``reversed`` go over."""
        given = node.args if function is zip else node.args[:1]
        parts = [self._items(one, is_beside=function is not reversed) for one in given]
        is_of_iterators = any(isinstance(one, Iterator) for one in parts)
        if is_of_iterators and (is_strict or function is reversed):
            what = "zip of an iterator with strict=True; leave that out"
            raise self._refuse(node, what if is_strict else "reversed of an iterator; write list of it")
        if function is zip:
            return zip(*parts, strict=False) if is_of_iterators else list(zip(*parts, strict=is_strict))
        if function is reversed:
            return list(reversed(parts[0]))
        found = enumerate(parts[0], self._value(node.args[1]) if len(node.args) == 2 else 0)
        return found if is_of_iterators else list(found)

    def _items_in(self, node: ast.expr, value: Any) -> list[Any] | tuple[Any, ...]:
        """Return the items of a value."""
        if isinstance(value, MemberSet):
            raise self._refuse(node, "goes over a set, in an order that Python does not say; write sorted(s)")
        if isinstance(value, Dictionary | str):
            return list(value)
        if not isinstance(value, list | tuple):
            allowed = "range, lists, tuples, texts, dicts, zip, enumerate and reversed of them"
            rows = "; write x.unbind(), or give a list of the rows" if is_tensor(value) else ""
            what = f"a loop over {kind_words(value)}; allowed: {allowed}; modules of a constant list{rows}"
            raise self._refuse(node, what)
        return value

    def _iterated(self, node: ast.expr) -> ast.expr:
        """Return what a loop over an object goes over: what its class says."""
        if not is_read_alone(node):
            raise self._refuse(node, "goes over an object that is computed here; give it a name before")
        read = at(node, ast.Attribute(copy.copy(node), "__iter__", ast.Load()))
        written: ast.expr = self._source.chains.setdefault((node, 7), at(node, ast.Call(read, [], [])))
        self._set_role(node, "written").value = written
        return written

    def _comprehension(self, node: ast.ListComp) -> Any:
        written = listed(node, self._statics)
        if written is not None:
            self._set_role(node, "written").value = written
            return self._value(written)
        found: list[Any] = []

        def add() -> Any:
            found.append(self._value(node.elt))
            return NEXT

        self._rounds(node, 0, add)
        return found

    def _rounds(self, node: ast.ListComp, depth: int, body: Callable[[], Any]) -> Any:
        """Run the loops of a comprehension from a depth on; a body that breaks leaves all of them."""
        loop = node.generators[depth]
        if loop.is_async:
            raise self._refuse(node, "async in a comprehension; leave it out")
        is_left = False

        def inner() -> Any:
            nonlocal is_left
            if not all(self._truth(one) for one in loop.ifs):
                return NEXT
            last = depth == len(node.generators) - 1
            found = body() if last else self._rounds(node, depth + 1, body)
            is_left |= found is BREAK
            return found

        self._loop(loop.target, loop.iter, inner)
        return BREAK if is_left else NEXT

    def _lazily(self, node: ast.Call, stops: bool) -> bool:
        """Return ``any`` (which stops at what is true) or ``all`` of a generator."""
        (given,) = node.args
        assert isinstance(given, ast.ListComp)  # as `simplified` writes it
        written = listed(given, self._statics)
        if written is not None:  # over modules
            chained = self._source.chains.setdefault((written, int(stops)), chain_of_truths(written, stops))
            self._set_role(node, "written").value = chained
            return bool(self._value(chained))
        self._set_role(node, "lazy").value = stops

        def look() -> Any:
            return BREAK if self._truth(given.elt) == stops else NEXT

        return (self._rounds(given, 0, look) is BREAK) == stops

    def _next(self, node: ast.Call) -> Any:
        """Return the first item of a generator."""
        given, *otherwise = node.args
        assert isinstance(given, ast.ListComp)  # as `simplified` writes it
        self._set_role(node, "next")
        default = [self._value(one) for one in otherwise]
        found: list[Any] = []

        def take() -> Any:
            found.append(self._value(given.elt))
            return BREAK

        self._rounds(given, 0, take)
        if not found and not default:
            refusal = self._refuse(node, "a sample has nothing that comes next; give next a default")
            raise SampleError(refusal, StopIteration())
        return (found or default)[0]


def _taken_from(own: ListIterator | NumberIterator) -> Iterator[Any]:
    """Go over an iterator of a program's: what the loop's body takes of it does not come again."""
    if isinstance(own, NumberIterator):
        while True:
            yield iterators.following_number(own)
    while own.place < len(own.iterated):
        yield iterators.following(own)


def chain_of_truths(items: ast.List, stops: bool) -> ast.expr:
    """Return ``any`` or ``all`` of what is written there, as a chain of ``or`` or ``and``."""
    word: ast.boolop = ast.Or() if stops else ast.And()
    nots = (at(one, ast.UnaryOp(ast.Not(), one)) for one in items.elts)
    truths: list[ast.expr] = [at(one, ast.UnaryOp(ast.Not(), one)) for one in nots]
    return truths[0] if len(truths) == 1 else at(items, ast.BoolOp(word, truths))
