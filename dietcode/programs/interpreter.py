"""The form of a program run slowly, in Python: to count the sizes of buckets, and as a reference.

Every instance is a fiber with frames of its own. A block is noted as a node; nodes are computed when every
fiber waits or has finished, bucket by bucket.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any

from dietcode.errors import DietCodeError
from dietcode.graph.program_model import NumberSource
from dietcode.programs.plain_operators import BINARY, UNARY
from dietcode.runtime.programs.code import RECORD_KINDS
from dietcode.runtime.programs.instances import parsed
from dietcode.runtime.programs.results import DICT_RECORD

Sources = tuple[NumberSource | None, ...]
Compute = Callable[[int, list[list[Any]]], list[list[Any]]]
"""(block, operands of each row) -> results of each row."""

PHASE = 1 << 32
_SEQUENCES = {"list": list, "tuple": tuple}
_KINDS = {type(None): 0, bool: 1, int: 2, float: 3, str: 4, tuple: 5, list: 6}  # as the machine numbers them
_TENSOR = 8


class InstanceError(DietCodeError):
    """An instance failed: what it raised, with the line."""


class _RaisedError(Exception):
    """What the program itself raises, and nothing takes."""


class _ThrownError(Exception):
    """An exception of the program's, or the number of what the machine noticed, and where."""

    def __init__(self, value: Any, where: str = "") -> None:
        super().__init__(_said(value))
        self.value, self.where = value, where


@dataclass(eq=False)
class NotedBlock:
    """A block that is to run, or has run, for one instance.

    Attributes
    ----------
    block, key : int
    operands : list
        Tensors, numbers, and `Row` of other nodes.
    results : list or None
    sources : tuple of NumberSource or None, optional
        Where its operands come from, if all that blocks compute are of whole numbers, noted as this one is.
    """

    block: int
    key: int
    operands: list[Any]
    results: list[Any] | None = None
    sources: Sources | None = None


@dataclass(frozen=True)
class Row:
    """One result of a node."""

    node: NotedBlock
    number: int


@dataclass(eq=False)
class Record:
    """An object of the program's."""

    name: str
    fields: dict[str, Any]


@dataclass(eq=False)
class _Fiber:
    frames: list[_Frame]
    is_done: bool = False
    result: Any = None
    error: InstanceError | None = None
    thrown: Any = None


@dataclass(eq=False)
class _Frame:
    function: Mapping[str, Any]
    registers: list[Any]
    into: int  # register of the caller
    pc: int = 0


@dataclass
class FormRun:
    """One call of a program.

    Parameters
    ----------
    form : mapping
        ``functions``, ``constants``, ``tensors``, ``records``, ``names``.
    phases : sequence of int
        Of each block.
    compute : callable
    tensors : sequence of tensor
        Those that the form names.
    buckets : list of (int, int, int, int)
        Of each bucket that has run: how many decisions were before it, key, block, and rows.
    flushes : list of dict
        The nodes of each block between two decisions.
    edges : set of (int, int)
        Which block read which other block's results: (reader, read).
    of_number : set of int
        The blocks that take one whole number and nothing else.
    sources : list of Counter
        Of each bucket, how many of its rows had which sources; None for those that had none.
    """

    form: Mapping[str, Any]
    phases: Sequence[int]
    compute: Compute
    tensors: Sequence[Any] = ()
    buckets: list[tuple[int, int, int, int]] = field(default_factory=list)
    flushes: list[dict[int, int]] = field(default_factory=list)
    edges: set[tuple[int, int]] = field(default_factory=set)
    of_number: AbstractSet[int] = frozenset()
    sources: list[Counter[Sources | None]] = field(default_factory=list)
    _nodes: list[NotedBlock] = field(default_factory=list)
    _fibers: list[_Fiber] = field(default_factory=list)

    def run(self, instances: Sequence[Sequence[Any]]) -> list[Any]:
        """Return the result of each instance, or its `InstanceError`.

        Parameters
        ----------
        instances : sequence of sequence
            The arguments of each.
        """
        main = self.form["functions"][self.form["entry"]]
        fibers = [_Fiber([_frame(main, args, -1)]) for args in instances]
        self._fibers = list(fibers)
        while True:
            waiting = [one for one in self._fibers if not one.is_done]
            progress = False
            for one in waiting:
                progress |= self._advance(one)
            if all(one.is_done for one in self._fibers):
                break
            if not progress and not self._nodes:
                raise RuntimeError("all fibers wait, and nothing is left to run")
            if not progress:
                self._flush()
        self._flush()
        return [one.error or self._given(one.result) for one in fibers]

    # ---- Nodes ----

    def _flush(self) -> None:
        nodes, self._nodes = self._nodes, []
        if not nodes:
            return
        counts: dict[int, int] = {}
        buckets: dict[tuple[int, int], list[NotedBlock]] = {}
        for one in nodes:
            counts[one.block] = counts.get(one.block, 0) + 1
            buckets.setdefault((one.key, one.block), []).append(one)
        self.flushes.append(counts)
        for (key, block), bucket in sorted(buckets.items(), key=lambda item: item[0]):
            rows = [[_tensor(operand) for operand in one.operands] for one in bucket]
            for one, results in zip(bucket, self.compute(block, rows), strict=True):
                one.results = results
            self.buckets.append((len(self.flushes) - 1, key, block, len(bucket)))
            self.sources.append(Counter(one.sources for one in bucket))

    def _note(self, block: int, operands: list[Any]) -> NotedBlock:
        key = self.phases[block] * PHASE
        for one in operands:
            if isinstance(one, Row):
                self.edges.add((block, one.node.block))
                if one.node.results is None:  # what is computed need not be waited for
                    key = max(key, one.node.key + 1)
        node = NotedBlock(block, max(key, 1), operands, sources=self._sources(operands))
        self._nodes.append(node)
        return node

    def _sources(self, operands: Sequence[Any]) -> Sources | None:
        """Return where the computed operands come from; None where one is not of a whole number alone."""
        leaders: dict[int, int] = {}
        found: list[NumberSource | None] = []
        for at, one in enumerate(operands):
            if not isinstance(one, Row):
                found.append(None)
                continue
            if one.node.block not in self.of_number or one.node.results is not None:
                return None
            leader = leaders.setdefault(id(one.node), at)
            found.append(NumberSource(one.node.block, one.number, leader))
        return tuple(found) if leaders else None

    # ---- Fibers ----

    def _advance(self, fiber: _Fiber) -> bool:
        """Run a fiber until it waits; returns whether it did anything."""
        steps = 0
        while not fiber.is_done:
            frame = fiber.frames[-1]
            pc = frame.pc
            word, *args = frame.function["code"][pc]
            try:
                if not self._step(fiber, frame, word, args):
                    return steps > 0
            except InstanceError as error:
                fiber.is_done, fiber.error = True, error
            except Exception as error:
                self._unwind(fiber, pc, word, error)
            steps += 1
        return steps > 0

    def _unwind(self, fiber: _Fiber, pc: int, word: str, error: Exception) -> None:
        """Go on where an exception is taken; without such a line the fiber has failed."""
        function = fiber.frames[-1].function
        where = getattr(error, "where", "") or f"{function['file']}:{function['lines'][pc]}"
        plain = isinstance(error, _RaisedError | _ThrownError)
        what = str(error) if plain else f"{type(error).__name__}: {error}"
        failure = InstanceError(f"{where}: {what}")
        thrown = error.value if isinstance(error, _ThrownError) else _noticed(word, error)
        while fiber.frames and thrown is not None:
            frame = fiber.frames[-1]
            for begin, end, target, register in frame.function.get("handlers", ()):
                if begin <= pc < end:
                    frame.pc, frame.registers[register] = target, thrown
                    return
            fiber.frames.pop()
            pc = fiber.frames[-1].pc - 1 if fiber.frames else 0
        fiber.is_done, fiber.error, fiber.thrown = True, failure, thrown

    def _step(self, fiber: _Fiber, frame: _Frame, word: str, args: list[Any]) -> bool:
        """Run an instruction; returns False where it has to wait."""
        r = frame.registers
        if word in ("value", "argmax", "values"):
            given = r[args[1]]
            if isinstance(given, Row) and given.node.results is None:
                return False
            r[args[0]] = _number(_tensor(given), word, args)
        elif word == "wait":
            task = r[args[1]]
            if not task.is_done:
                return False
            if task.error is not None:
                where = str(task.error).split(": ")[0]
                raise task.error if task.thrown is None else _ThrownError(task.thrown, where)
            r[args[0]] = task.result
        elif word == "throw":
            raise _ThrownError(r[args[0]])
        elif word in ("return", "jump", "else"):
            self._go(fiber, frame, word, args)
            return True
        elif word in ("call", "spawn", "block", "raise"):
            frame.pc += 1
            self._begin(fiber, r, word, args)
            return True
        else:
            _INSTRUCTIONS[word](self.form, self.tensors, r, *args)
        frame.pc += 1
        return True

    def _go(self, fiber: _Fiber, frame: _Frame, word: str, args: list[Any]) -> None:
        """Go elsewhere."""
        if word == "jump":
            frame.pc = args[0]
        elif word == "else":
            frame.pc = frame.pc + 1 if frame.registers[args[0]] else args[1]
        else:
            fiber.frames.pop()
            if fiber.frames:
                fiber.frames[-1].registers[frame.into] = frame.registers[args[0]]
            else:
                fiber.is_done, fiber.result = True, frame.registers[args[0]]

    def _begin(self, fiber: _Fiber, r: list[Any], word: str, args: list[Any]) -> None:
        """Call a function, begin a fiber, note a block, or fail."""
        if word == "raise":
            raise _RaisedError(self.form["constants"][args[0]])
        given = [r[one] for one in args[2]]
        if word == "block":
            node = self._note(args[1], given)
            for number, register in enumerate(args[0]):
                r[register] = Row(node, number)
            return
        made = _frame(self.form["functions"][args[1]], given, args[0])
        if word == "call":
            fiber.frames.append(made)
        else:
            r[args[0]] = _Fiber([made])
            self._fibers.append(r[args[0]])

    def _given(self, value: Any) -> Any:
        """Return a result with tensors in the place of rows."""
        if isinstance(value, tuple):
            return tuple(map(self._given, value))
        if isinstance(value, list):
            return list(map(self._given, value))
        if isinstance(value, Record) and value.name == DICT_RECORD[0]:
            return dict(zip(*(self._given(value.fields[name]) for name in DICT_RECORD[1]), strict=True))
        if isinstance(value, Record):
            return Record(value.name, {name: self._given(one) for name, one in value.fields.items()})
        return _tensor(value)


def _noticed(word: str, error: Exception) -> int | None:
    """Return the number of what the machine notices, where that is an exception of Python's."""
    if isinstance(error, ZeroDivisionError):
        return 5
    if word == "apart" and isinstance(error, ValueError):
        return 17
    if not isinstance(error, IndexError):
        return None
    return 12 if word == "pop" and "empty" in str(error) else 2


def _said(thrown: Any) -> str:
    if not isinstance(thrown, Record):
        known = {5: "division by zero", 12: "pop from an empty list", 17: "too many or few values to unpack"}
        return known.get(thrown, "index out of range")
    args = thrown.fields.get("args") or ()
    return f"{thrown.name}: {args[0]}" if args else thrown.name


def _frame(function: Mapping[str, Any], args: Sequence[Any], into: int) -> _Frame:
    registers = [*args, *[None] * (function["registers"] - len(args))]
    return _Frame(function, registers, into)


def _tensor(value: Any) -> Any:
    if not isinstance(value, Row):
        return value
    if value.node.results is None:
        raise RuntimeError("a row is read before its block has run")
    return value.node.results[value.number]


def _number(tensor: Any, word: str, args: list[Any]) -> Any:
    if word == "argmax":
        return int(tensor.argmax())
    if word == "values":
        return [float(one) for one in tensor]
    number = tensor.item() if hasattr(tensor, "item") else tensor  # what is compared may be a number already
    return {"float": float, "int": int, "bool": bool}[args[2]](number)


def _of_record(form: Mapping[str, Any], number: int, values: list[Any]) -> Record:
    own = form["records"][number]
    return Record(own["name"], dict(zip(own["fields"], values, strict=True)))


def _field(base: Any, name: str) -> Any:
    return base.fields[name] if isinstance(base, Record) else getattr(base, name)


def _kind(form: Mapping[str, Any], value: Any) -> int:
    if type(value) in _KINDS:
        return _KINDS[type(value)]
    name = value.name if isinstance(value, Record) else type(value).__name__
    names = [one["name"] for one in form["records"]]
    return RECORD_KINDS + names.index(name) if name in names else _TENSOR


def _looked_up(form: Mapping[str, Any], number: int, key: Any, otherwise: Any) -> Any:
    constants = form["constants"]
    pairs = {constants[key]: constants[value] for key, value in form["lookups"][number]}
    return pairs.get(key, otherwise)


def _set_field(base: Any, name: str, value: Any) -> None:
    if isinstance(base, Record):
        base.fields[name] = value
    else:
        setattr(base, name, value)


# Each takes the form, its tensors, the registers, and what follows the word in the instruction.
_INSTRUCTIONS: dict[str, Callable[..., Any]] = {
    "const": lambda form, _, r, d, k: operator.setitem(r, d, form["constants"][k]),
    "tensor": lambda _, tensors, r, d, k: operator.setitem(r, d, tensors[k]),
    "move": lambda _, __, r, d, a: operator.setitem(r, d, r[a]),
    "unary": lambda _, __, r, d, word, a: operator.setitem(r, d, UNARY[word](r[a])),
    "binary": lambda _, __, r, d, word, a, b: operator.setitem(r, d, BINARY[word](r[a], r[b])),
    "tuple": lambda _, __, r, d, own: operator.setitem(r, d, tuple(r[one] for one in own)),
    "list": lambda _, __, r, d, own: operator.setitem(r, d, [r[one] for one in own]),
    "record": lambda form, _, r, d, k, own: operator.setitem(
        r, d, _of_record(form, k, [r[one] for one in own])
    ),
    "get": lambda _, __, r, d, a, b: operator.setitem(r, d, r[a][r[b]]),
    "put": lambda _, __, r, a, b, c: operator.setitem(r[a], r[b], r[c]),
    "slice": lambda _, __, r, d, a, b, c: operator.setitem(r, d, r[a][r[b] : r[c]]),
    "append": lambda _, __, r, a, b: r[a].append(r[b]),
    "pop": lambda _, __, r, d, a, b: operator.setitem(r, d, r[a].pop(-1 if r[b] is None else r[b])),
    "apart": lambda _, __, r, own, a: [*starmap(r.__setitem__, zip(own, r[a], strict=True))],
    "len": lambda _, __, r, d, a: operator.setitem(r, d, len(r[a])),
    "kind": lambda form, _, r, d, a: operator.setitem(r, d, _kind(form, r[a])),
    "as": lambda _, __, r, d, word, a: operator.setitem(r, d, _SEQUENCES[word](r[a])),
    "lookup": lambda form, _, r, d, a, k, b: operator.setitem(r, d, _looked_up(form, k, r[a], r[b])),
    "format": lambda form, _, r, d, a, k: operator.setitem(r, d, format(r[a], form["constants"][k])),
    "join": lambda _, __, r, d, own: operator.setitem(r, d, "".join(str(r[one]) for one in own)),
    "characters": lambda _, __, r, d, a: operator.setitem(r, d, list(r[a])),
    "parsed": lambda _, __, r, d, a: operator.setitem(r, d, parsed(r[a])),
    "ordinal": lambda _, __, r, d, a: operator.setitem(r, d, ord(r[a])),
    "character": lambda _, __, r, d, a: operator.setitem(r, d, chr(r[a])),
    "concatenate": lambda _, __, r, d, a: operator.setitem(r, d, "".join(r[a])),
    "order": lambda _, __, r, d, a, b: operator.setitem(r, d, (r[a] > r[b]) - (r[a] < r[b])),
    "rounded": lambda _, __, r, d, a, b: operator.setitem(r, d, round(r[a], r[b])),
    "field": lambda form, _, r, d, a, k: operator.setitem(r, d, _field(r[a], form["names"][k])),
    "setfield": lambda form, _, r, a, k, b: _set_field(r[a], form["names"][k], r[b]),
}
