"""The text of a function, with what samples show of it, as code."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from dietcode.programs.call_lowering import CallLowering
from dietcode.programs.calling import learn_static
from dietcode.programs.code import Code, Label
from dietcode.programs.loops import lower_for
from dietcode.programs.roles import BINARY
from dietcode.programs.sites import is_of_library
from dietcode.programs.trying import UNREACHED, lower_pending, lower_raise, lower_try
from dietcode.programs.values import KnownValue, Several, Value


class FunctionLowering(CallLowering):
    """One context as code."""

    def run(self) -> Code:
        """Write the code.

        Raises
        ------
        ModelError
            The function has what cannot be compiled; names file and line.
        """
        self.body(self.source.tree.body)
        self.code.emit("return", (KnownValue(None),), writes=0)
        return self.code

    def body(self, body: Sequence[ast.stmt]) -> None:
        """Write statements; behind what no sample reached there is an error."""
        for node in body:
            self.code.line = node.lineno
            if isinstance(node, ast.Raise):
                lower_raise(self, node)
                return
            if (self.path, node) not in self.context.reached and not is_of_library(self.source):
                if isinstance(node, ast.Break | ast.Continue | ast.Pass):
                    self._jump(node)
                    return
                self.fail(UNREACHED)
                return
            self._statement(node)
            if isinstance(node, ast.Return | ast.Break | ast.Continue):
                return

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if node.value is None or learn_static(self.statics, targets, node.value):
                return
            value = self.value(node.value)
            for target in targets:
                self.store(target, value)
        elif isinstance(node, ast.AugAssign):
            self._augmented(node)
        elif isinstance(node, ast.Expr):
            if not isinstance(node.value, ast.Constant):
                self.value(node.value)
        elif isinstance(node, ast.If):
            self._if(node)
        elif isinstance(node, ast.While):
            self._while(node)
        elif isinstance(node, ast.For | ast.Try):
            (lower_for if isinstance(node, ast.For) else lower_try)(self, node)  # type: ignore[arg-type]
        elif isinstance(node, ast.Return):
            self._return(node)
        elif isinstance(node, ast.Assert):
            good = Label()
            self.condition(node.test, lambda value: self._unless(value, good))
            self.throw(AssertionError, ast.unparse(node.test))
            self.code.label(good)
        else:
            self._jump(node)

    def _return(self, node: ast.Return) -> None:
        value = KnownValue(None) if node.value is None else self.value(node.value)
        if self.pending:
            name = f" returned {node.lineno} {node.col_offset}"
            self.code.write(name, value)
            lower_pending(self, 0)
            value = self.code.read(name)
        self.code.emit("return", (value,), writes=0)

    def _jump(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Break | ast.Continue):
            lower_pending(self, len(self.loops))
        if isinstance(node, ast.Break):
            self.code.jump(self.loops[-1][1])
        elif isinstance(node, ast.Continue):
            self.code.jump(self.loops[-1][0])

    def _augmented(self, node: ast.AugAssign) -> None:
        assert isinstance(node.target, ast.Name)  # `simplified` leaves no others
        if self.site(node).role == "library":
            self.store(node.target, self.library(node))
            return
        if self.site(node).role == "written":  # by an object's class
            self.store(node.target, self.value(self.site(node).value))
            return
        before, other = self.kinded(self.variable(node.target.id), node.target), self.value(node.value)
        self.store(node.target, self._operated(node, BINARY[type(node.op)], [before, other]))

    def _if(self, node: ast.If) -> None:
        otherwise, end = Label(), Label()
        self.condition(node.test, lambda value: self.code.jump_unless(value, otherwise))
        self.body(node.body)
        self.code.jump(end)
        self.code.label(otherwise)
        self.body(node.orelse)
        self.code.label(end)

    def _while(self, node: ast.While) -> None:
        again, end = Label(), Label()
        self.code.label(again)
        known, test = self.statics.find(node.test)
        if not known or not test:  # `while True` is left by break alone
            self.condition(node.test, lambda value: self.code.jump_unless(value, end))
        self.loops.append((again, end))
        self.body(node.body)
        self.loops.pop()
        self.code.jump(again)
        self.code.label(end)

    def store(self, target: ast.expr, value: Value) -> None:
        """Assign a value."""
        if isinstance(target, ast.Name):
            self.code.write(target.id, value)
        elif isinstance(target, ast.Tuple | ast.List):
            many = len(target.elts)
            known = value.items if isinstance(value, Several) else None
            cls = self.site(target).value
            if hasattr(cls, "_fields"):
                known = tuple(self.code.emit("field", (value,), name) for name in cls._fields)
            elif known is None:
                items = self.code.emit("characters", (value,)) if cls is str else value
                known = self.code.apart(items, many)
            for one, own in zip(target.elts, known, strict=True):
                self.store(one, own)
        elif isinstance(target, ast.Subscript) and self.site(target).role == "library":  # of a dict
            given = self.value(target.value), self.value(target.slice), value
            self.code.emit("call", given, self.callee(target))
        elif isinstance(target, ast.Subscript):
            base, at = self.value(target.value), self.value(target.slice)
            self.code.emit("put", (base, at, value), writes=0)
        else:
            assert isinstance(target, ast.Attribute)  # the recording refuses others
            self.code.emit("setfield", (self.value(target.value), value), target.attr, writes=0)
