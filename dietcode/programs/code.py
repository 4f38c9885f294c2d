"""Code of a function while it is written: instructions, labels, tensor code that is to be a block."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from dietcode.programs.values import (
    KnownValue,
    Operation,
    OperationGroup,
    Pending,
    Register,
    Several,
    Value,
    arguments_of,
    leaves_of,
)


@dataclass(eq=False)
class Label:
    """A place in the code that is jumped to."""


@dataclass(eq=False)
class ExceptionHandler:
    """Where an exception goes on, and the register that gets what was thrown."""

    label: Label
    register: int


@dataclass(eq=False)
class Instruction:
    """One instruction over registers that are as many as are needed.

    Attributes
    ----------
    word : str
    writes, reads : list of int
        Registers; of what a block does not have to write, -1.
    rest : list
        What follows them in the form.
    line : int
    group : OperationGroup or None
        Of a block.
    target : Label or None
        Of a jump; for "label", itself.
    handler : ExceptionHandler or None
        Where it goes on if it throws; it does not write then.
    again : (ExceptionHandler, tuple of type) or None
        Of what throws again whatever came to a handler and is of none of these classes.
    is_sure : bool
        Whether the item that it reads is known to be there.
    is_whole : bool
        Whether it calls what may be a generator, whose values are used when all of them are there.
    generator : str
        Where the generator is, and its text, whose list is being made.
    """

    word: str
    writes: list[int]
    reads: list[int]
    rest: list[Any] = field(default_factory=list)
    line: int = 0
    group: OperationGroup | None = None
    target: Label | None = None
    handler: ExceptionHandler | None = None
    again: tuple[ExceptionHandler, tuple[type, ...]] | None = None
    is_sure: bool = False
    is_whole: bool = False
    generator: str = ""


THROWING = frozenset(
    (
        *("get", "put", "pop", "unary", "binary", "call", "wait", "throw", "slice", "len", "lookup"),
        *("value", "argmax", "values", "field", "setfield", "append", "as", "apart"),
    )
)


class Code:
    """The code of one function.

    Parameters
    ----------
    parameters : sequence of str
        They are the first registers.
    doubtful : set of str
        Variables that may be read before they are assigned: each has another one that says whether it is.
    """

    def __init__(self, parameters: Sequence[str], doubtful: Collection[str] = ()) -> None:
        self.instructions: list[Instruction] = []
        self.line = 0
        self.num_registers = len(parameters)
        self.variables = {name: number for number, name in enumerate(parameters)}
        self._current: dict[str, Value] = {}
        self._changed: set[str] = set()
        self._group = OperationGroup()
        self.handlers: list[ExceptionHandler] = []  # of what is being written, the innermost last
        self.taken: dict[ExceptionHandler, tuple[type, ...]] = {}  # the classes that a handler takes
        self.generator = ""
        self._doubtful, self._sure = doubtful, set[str]()
        for name in sorted(doubtful):
            self.write(_is_assigned(name), KnownValue(False))

    def fresh(self) -> int:
        """Return a new register."""
        self.num_registers += 1
        return self.num_registers - 1

    def emit(self, word: str, reads: Sequence[Value] = (), *rest: Any, writes: int = 1) -> Register:
        """Write an instruction that reads values; returns the register that it writes."""
        given = [self.register_of(one) for one in reads]
        target = [self.fresh()] if writes else []
        handler = self.handlers[-1] if self.handlers and word in THROWING else None
        if handler is not None and self._changed:  # what takes it reads variables
            given = self._settled(given)
        made = Instruction(word, target, given, list(rest), self.line, handler=handler)
        made.generator = self.generator
        self.instructions.append(made)
        return Register(target[0] if target else -1)

    def item(self, base: Value, at: Value) -> Register:
        """Write a read of an item that a loop knows to be there."""
        found = self.emit("get", (base, at))
        self.instructions[-1].is_sure = True
        return found

    def apart(self, base: Value, many: int) -> tuple[Register, ...]:
        """Write what takes a list or a tuple of so many items apart."""
        self.emit("apart", (base,), writes=0)
        targets = [self.fresh() for _ in range(many)]
        self.instructions[-1].writes = targets
        return tuple(map(Register, targets))

    def throw_again(self, value: Value, handler: ExceptionHandler) -> None:
        """Write a throw of what came to a handler and is of no class that it takes."""
        self.emit("throw", (value,), writes=0)
        self.instructions[-1].again = (handler, self.taken.get(handler, ()))

    # ---- Variables ----

    def read(self, name: str) -> Value:
        """Return the value of a variable."""
        if name in self._current:
            return self._current[name]
        return Register(self._variable(name))

    def write(self, name: str, value: Value) -> None:
        """Set a variable; its register is written at the end of the basic block."""
        self._variable(name)
        self._current[name] = value
        self._changed.add(name)
        if name in self._doubtful and name not in self._sure:
            self._sure.add(name)
            self.write(_is_assigned(name), KnownValue(True))

    def check_assigned(self, name: str, otherwise: Callable[[], None]) -> None:
        """Write a test of whether a variable is assigned, where that is not known, and what to do if not."""
        if name not in self._doubtful or name in self._sure:
            return
        good = Label()
        self.jump_unless(self.emit("unary", (self.read(_is_assigned(name)),), "not"), good)
        otherwise()
        sure = {*self._sure, name}
        self.label(good)  # nothing else goes there
        self._sure = sure

    def _variable(self, name: str) -> int:
        if name not in self.variables:
            self.variables[name] = self.fresh()
        return self.variables[name]

    # ---- Basic blocks ----

    def label(self, label: Label) -> None:
        """End the basic block, and begin one that is jumped to."""
        self.end_block()
        self._sure = set()
        self.instructions.append(Instruction("label", [], [], line=self.line, target=label))

    def jump(self, label: Label) -> None:
        """End the basic block by a jump."""
        self.end_block()
        self.instructions.append(Instruction("jump", [], [], line=self.line, target=label))

    def jump_unless(self, condition: Value, label: Label) -> None:
        """End the basic block by a jump that is taken where a condition is false."""
        number = self.register_of(condition)
        self.end_block()
        self.instructions.append(Instruction("else", [], [number], line=self.line, target=label))

    def _settled(self, numbers: list[int]) -> list[int]:
        """End the basic block; returns registers that still hold what these do."""
        own = {self.variables[name] for name in self._changed}
        kept = [self._moved(one, self.fresh()) if one in own else one for one in numbers]
        self.end_block()
        return kept

    def caught(self, handler: ExceptionHandler) -> Register:
        """Begin what an exception goes on with; returns what was thrown."""
        self.label(handler.label)
        self.instructions.append(Instruction("caught", [handler.register], [], line=self.line))
        return Register(handler.register)

    def end_block(self) -> None:
        """Write every variable that changed to its register."""
        self.flush()
        changed = sorted(self._changed)
        moved = {name: self.register_of(self._current[name]) for name in changed}
        own = {self.variables[name] for name in changed}
        for name, number in moved.items():
            if number in own and number != self.variables[name]:  # another move may overwrite it first
                moved[name] = self._moved(number, self.fresh())
        for name, number in moved.items():
            if number != self.variables[name]:
                self._moved(number, self.variables[name])
        self._current.clear()
        self._changed.clear()

    def _moved(self, source: int, target: int) -> int:
        self.instructions.append(Instruction("move", [target], [source], line=self.line))
        return target

    # ---- Tensor code ----

    def operate(self, operation: Operation, kinds: Any) -> Value:
        """Add an operation to the block that is being collected; returns what it returns."""
        self._group.operations.append(operation)
        known = {one.number for one in self._group.operands}
        for argument in arguments_of(operation):
            for leaf in leaves_of(argument):
                if isinstance(leaf, Register) and leaf.number not in known:
                    self._group.operands.append(leaf)
                    known.add(leaf.number)
        return _returned(operation, (), kinds)

    def flush(self) -> None:
        """Write the block of the tensor code that was collected."""
        group, self._group = self._group, OperationGroup()
        if not group.operations:
            return
        group.results = [result for one in group.operations for result in one.results]
        for result in group.results:
            result.register = self.fresh()
        writes = [one.register for one in group.results if one.register is not None]
        reads = [one.number for one in group.operands]
        self.instructions.append(Instruction("block", writes, reads, [], self.line, group))

    def register_of(self, value: Value) -> int:
        """Return a register that holds a value."""
        if isinstance(value, Register):
            return value.number
        if isinstance(value, Pending):
            if value.register is None:
                self.flush()
            assert value.register is not None  # the block has just been written
            if value.kind != "int":
                return value.register
            if value.number is None:  # tables have it as float32
                value.number = self.emit("value", (Register(value.register),), "int").number
            return value.number
        if isinstance(value, Several):
            return self.emit("list" if value.is_list else "tuple", value.items).number
        if isinstance(value.value, list | tuple) and not hasattr(value.value, "_fields"):
            items = tuple(KnownValue(one, value.name) for one in value.value)
            return self.register_of(Several(items, isinstance(value.value, list)))
        word = "tensor" if hasattr(value.value, "dtype") else "const"
        return self.emit(word, (), value).number


def argument_of(code: Code, value: Value) -> Value:
    """Return a value as an argument of tensor code: what a block has written already is in a register."""
    if isinstance(value, Pending) and value.register is not None:
        if value.kind == "int":
            return Register(code.register_of(value), "int")
        return Register(value.register, value.kind)
    if isinstance(value, Several):
        return Several(tuple(argument_of(code, one) for one in value.items), value.is_list)
    return value


def _is_assigned(name: str) -> str:
    return f" is {name} assigned"


def _returned(operation: Operation, path: tuple[int, ...], kind: Any) -> Value:
    if isinstance(kind, tuple) and kind[0] == "tuple":
        return Several(tuple(_returned(operation, (*path, at), one) for at, one in enumerate(kind[1])))
    if kind == "none":
        return KnownValue(None)
    found = Pending(operation, path, kind)
    operation.results.append(found)
    return found
