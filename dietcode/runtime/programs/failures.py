"""Why an instance has no result, as Python would say it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from dietcode.errors import ProgramError
from dietcode.runtime.programs.code import BINARY, OPERATIONS, UNARY
from dietcode.runtime.programs.instances import OWN_TEXTS
from dietcode.runtime.programs.machine import BOOL, FLOAT, INT, LIST, NONE, RECORD, TENSOR, TEXT, TUPLE
from dietcode.runtime.programs.plan import ProgramPlan
from dietcode.runtime.programs.results import TYPE_SHIFT

FAILURE_WORDS = 6  # kind, function, instruction, and three numbers
_NAMES = {
    NONE: "None", BOOL: "bool", INT: "int", FLOAT: "float", TEXT: "str", TUPLE: "tuple", LIST: "list",
    RECORD: "an object", TENSOR: "a tensor", 9: "a task",
}  # fmt: skip


def failure_of(
    plan: ProgramPlan, instance: int, words: Sequence[int], texts: Sequence[str] = ()
) -> ProgramError:
    """Return the exception that ended an instance.

    Parameters
    ----------
    plan : ProgramPlan
    instance : int
    words : sequence of int
        `FAILURE_WORDS`: kind, function, instruction, and three numbers.
    texts : sequence of str
        Those of the call that are no constants.
    """
    kind, number, pc, *given = words
    if pc < 0:
        return ProgramError(
            _ENDS.get(kind, "returns a task; allowed: its result, by dietcode.concurrent"), instance
        )
    function = plan.functions[number]
    if kind == _OF_KINDS:
        what = _kinds(OPERATIONS[function.instructions[pc][0]], *given)
    elif kind == _THROWN:
        what = _thrown(plan, texts, *given)
    else:
        what = _ENDS[kind] if kind in _ENDS else _SAID[kind](plan, *given)
    return ProgramError(f"{function.file}:{function.lines[pc]}: in {function.name}: {what}", instance)


def _named(kind: int) -> str:
    """Return what Python calls a kind of values; a register that was never written has none of these."""
    return _NAMES.get(kind, "no value")


def _index(plan: ProgramPlan, index: int, length: int, _: int) -> str:
    return f"index {index} of {length} items" + (f"; allowed: {-length}…{length - 1}" if length else "")


def _apart(plan: ProgramPlan, wanted: int, given: int, _: int) -> str:
    word = "too many" if given > wanted else "not enough"
    return f"ValueError: {word} values to unpack (expected {wanted}, got {given})"


def _field(plan: ProgramPlan, name: int, kind: int, record: int) -> str:
    owner = plan.records[record][0] if kind == RECORD else _named(kind)
    return f"{owner} has no {plan.names[name]}"


def _operand(plan: ProgramPlan, number: int, operand: int, given: int) -> str:
    block = plan.blocks[number]
    what = str(plan.types[given >> TYPE_SHIFT]) if given & 255 == TENSOR else _named(given & 255)
    return f"{block.name}: operand {operand} is {what}; allowed: {plan.types[block.operands[operand]]}"


def _elements(plan: ProgramPlan, type_: int, _: int, __: int) -> str:
    return f"a tensor {plan.types[type_]} as a number; allowed: one of one element"


def _row(plan: ProgramPlan, block: int, number: int, count: int) -> str:
    limit = f"0…{count - 1}, a row of the table that is read" if count >= 0 else "32 bits"
    return f"{plan.blocks[block].name}: the number {number}; allowed: {limit}"


def _kinds(operation: str, a: int, b: int, c: int) -> str:
    if operation == "unary":
        return f"{UNARY[a]} of {_named(b)}; allowed: numbers"
    if operation == "binary":
        if BINARY[a] == "find":
            return (
                f"{_named(c)} as a key of a dict; allowed: whole numbers, bools, texts, None, tuples of them"
            )
        return f"{_named(b)} {BINARY[a]} {_named(c)}; allowed: numbers"
    of_texts = {
        "format": f"{_named(b)} by a specification; allowed: int, bool by d, f, e or g, float by f, e or g",
        "order": f"{_named(b)} before or behind {_named(c)}; allowed: two texts, or tuples alike",
        "rounded": f"round of {_named(b)} to {_named(c)} digits; allowed: a number, to int digits",
        "concatenate": f"{_named(b)} in a list or a sum that becomes a text; allowed: texts",
        "characters": f"characters of {_named(b)}; allowed: of str",
        "parsed": f"a number written as {_named(b)}; allowed: str",
        "ordinal": f"ord of {_named(b)}; allowed: of a str of one character",
        "apart": f"{_named(b)} taken apart; allowed: tuples and lists",
        "character": f"chr of {_named(b)}; allowed: of the number of a character",
        "join": f"{_named(b)} as a text; allowed: numbers, bools, texts and None",
    }
    if operation in of_texts:
        return of_texts[operation]
    if operation == "else":
        return f"the truth of {_named(b)}; allowed: of numbers, lists, tuples and None"
    return f"{operation} of {_named(b)}"


def _thrown(plan: ProgramPlan, texts: Sequence[str], record: int, kind: int, value: int) -> str:
    name = plan.records[record][0]
    if kind == TEXT:
        return f"{name}: {texts[value - OWN_TEXTS] if value >= OWN_TEXTS else plan.constants[value]}"
    if kind in (BOOL, INT):
        return f"{name}: {bool(value) if kind == BOOL else value}"
    return f"{name}: {struct.unpack('d', struct.pack('q', value))[0]}" if kind == FLOAT else name


_OF_KINDS, _THROWN = 3, 16  # as the machine numbers failures
_SAID: dict[int, Callable[[ProgramPlan, int, int, int], str]] = {
    1: lambda plan, constant, _, __: str(plan.constants[constant]),
    2: _index,
    7: lambda _, most, __, ___: f"calls within calls, over {most}",
    8: _field,
    9: _operand,
    10: _elements,
    11: _row,
    17: _apart,
}
_ENDS = {
    4: "a whole number beyond 64 bits",
    5: "division by zero",
    6: "no real number, or none that is whole",
    12: "pop from an empty list",
    13: "waits for itself: a task whose result needs this one's",
    14: "a comparison of lists or tuples that are too deep",
    15: "a chain of more blocks than are counted",
}
