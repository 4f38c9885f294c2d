"""``try``, ``raise`` and ``assert`` of a program's text, run on samples."""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from dietcode.programs.classes import named_types
from dietcode.programs.evaluated_calls import CallEvaluation
from dietcode.programs.evaluating import NEXT
from dietcode.programs.exceptions import ARGS, SampleError, is_exception_class
from dietcode.programs.sites import Context, Recorder

_SAMPLES = "samples are instances that a program computes"


class ExceptionEvaluation(CallEvaluation):
    """Statements of a function that throw exceptions, or take them."""

    def __init__(self, recording: Recorder, context: Context, values: dict[str, Any]) -> None:
        super().__init__(recording, context, values)
        self._taken: list[SampleError] = []
        self._noticed: list[BaseException] = []  # of which only the class is known

    @abstractmethod
    def _body(self, body: Sequence[ast.stmt]) -> Any:
        """Run statements."""

    def _raise(self, node: ast.Raise) -> Any:
        if node.exc is None:
            if not self._taken:
                raise self._refuse(node, "raise without an exception, outside of except; name one")
            raise self._taken[-1]
        error = self._value(node.exc)
        if not isinstance(error, BaseException):
            raise self._refuse(node, "raises what is no exception of the program's own")
        what = f"a sample raised this: {type(error).__name__}: {error}; {_SAMPLES}"
        raise SampleError(self._refuse(node, what), error)

    def _assert(self, node: ast.Assert) -> Any:
        if not self._truth(node.test):
            error = AssertionError(ast.unparse(node.test))
            refusal = self._refuse(node, f"a sample fails this assertion; {_SAMPLES}")
            raise SampleError(refusal, error, is_noticed=True)  # Python says nothing
        return NEXT

    def _try(self, node: ast.Try) -> Any:
        path, depth = self._path, len(self._taken)
        try:
            found = self._tried(node)
        except SampleError:
            self._path = path
            del self._taken[depth:]
            last = self._body(node.finalbody)
            if last is not NEXT:
                return last
            raise
        last = self._body(node.finalbody)
        return found if last is NEXT else last

    def _tried(self, node: ast.Try) -> Any:
        path = self._path
        clauses = [(one, self._types_of(one)) for one in node.handlers]
        try:
            found = self._body(node.body)
        except SampleError as thrown:
            self._path = path
            clause = next((one for one, types in clauses if isinstance(thrown.error, types)), None)
            if clause is None:
                raise
            return self._taken_by(clause, thrown)
        return self._body(node.orelse) if found is NEXT else found

    def _taken_by(self, clause: ast.ExceptHandler, thrown: SampleError) -> Any:
        self._field(clause, thrown.error, ARGS)
        if clause.name is not None:
            self._values[clause.name] = thrown.error
            if thrown.is_noticed:
                self._noticed.append(thrown.error)
        self._taken.append(thrown)
        found = self._body(clause.body)
        self._taken.pop()
        return found

    def _field(self, node: ast.AST, base: Any, name: str) -> None:
        if name == ARGS and isinstance(node, ast.Attribute):
            self._check_said(node, base)
        super()._field(node, base, name)

    def _as_text(self, node: ast.Call) -> str:
        for one in self._noticed if len(node.args) == 1 else ():
            if self._value(node.args[0]) is one:
                self._check_said(node, one)
        return super()._as_text(node)

    def _check_said(self, node: ast.AST, error: Any) -> None:
        if any(error is one for one in self._noticed):
            what = f"what Python says of an {type(error).__name__}; write a text, or isinstance of it"
            raise self._refuse(node, what)

    def _types_of(self, clause: ast.ExceptHandler) -> tuple[type, ...]:
        if clause.type is None:
            return (BaseException,)
        types = named_types(clause.type, self._statics)
        if types is None or not all(map(is_exception_class, types)):
            raise self._refuse(clause, f"except {ast.unparse(clause.type)}; allowed: classes by name")
        return types
