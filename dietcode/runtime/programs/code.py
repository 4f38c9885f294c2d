"""The functions of a program, read and checked.

Registers are numbers below a function's ``registers``; the parameters come first, and all others are None at
first.
An instruction is one of

    ["const", d, k]  ["tensor", d, k]            a constant of the program, a tensor of it
    ["move", d, a]  ["unary", d, operator, a]  ["binary", d, operator, a, b]
    ["jump", pc]  ["else", a, pc]                the latter where a is false
    ["call", d, f, [a…]]  ["return", a]  ["spawn", d, f, [a…]]  ["wait", d, a]
    ["tuple", d, [a…]]  ["list", d, [a…]]  ["record", d, r, [a…]]
    ["get", d, a, b]  ["put", a, b, c]  ["slice", d, a, b, c]
    ["append", a, b]  ["pop", d, a, b]  ["len", d, a]
    ["field", d, a, name]  ["setfield", a, name, b]
    ["block", [d…], k, [a…]]  ["raise", k]
    ["value", d, a, "float", "int" or "bool"]    a tensor's only element; this and the next two wait for it
    ["argmax", d, a]  ["values", d, a]           where the first largest element is; all elements as a list
    ["kind", d, a]                               the kind of a value, or `RECORD_KINDS` and its record
    ["as", d, "list" or "tuple", a]              the items of a list or tuple, as another one
    ["lookup", d, a, t, b]                       what a table of constants has for a, or else b
    ["format", d, a, k]  ["join", d, [a…]]       texts: a number by a specification; all, as ``str`` has them
    ["concatenate", d, a]  ["characters", d, a]  the texts of a list as one; a text's characters
    ["parsed", d, a]  ["ordinal", d, a]          the float that a text is, or None; the number of a character
    ["character", d, a]                          the character of a number
    ["order", d, a, b]                           whether a text, or a tuple or list of some, is before another
                                                 (-1), it (0), or behind (1)
    ["rounded", d, a, b]                         a number, to so many digits behind the point
    ["apart", [d…], a]                           the items of a list or tuple, which has as many
    ["throw", a]                                 an exception: a record, whose first field are its arguments

A function's ``handlers`` are lists ``[begin, end, target, d]``: what is thrown by an instruction from begin
up to end is written to d, and target goes on. The first one that has an instruction counts; without one, the
caller throws. What the machine notices is thrown as a whole number: an index out of range (2), a division by
zero (5), an empty list (12), other than so many items (17). What else goes wrong ends the instance.

where d, a, b and c are registers, and all else are numbers of what the program lists. A result of a block
that nobody reads may be written to -1, which is no register.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# In the order of their numbers in the machine.
OPERATIONS = (
    *("const", "tensor", "move", "unary", "binary", "jump", "else", "call", "return", "tuple", "list"),
    "record",
    *("get", "put", "slice", "append", "pop", "len", "field", "setfield", "block", "value", "spawn", "wait"),
    *("raise", "argmax", "values", "kind", "as", "lookup", "throw", "format", "join", "order", "rounded"),
    *("concatenate", "characters", "parsed", "ordinal", "apart", "character"),
)
UNARY = (
    "neg",
    "not",
    "abs",
    "int",
    "float",
    "bool",
    "invert",
    "round",
    "floor",
    "ceil",
    "sqrt",
    "exp",
    "log",
    *("tanh", "sin", "cos", "log2", "log10", "log1p", "expm1"),
)
BINARY = (
    *("+", "-", "*", "/", "//", "%", "**", "min", "max", "==", "!=", "<", "<=", ">", ">=", "is"),
    *("&", "|", "^", "<<", ">>"),
    "find",  # where the first item is that equals a key, or -1
)
SEQUENCES = {"tuple": 5, "list": 6}  # as the machine numbers kinds
RECORD_KINDS = 16  # the kind of a record is this and its number
MAX_REGISTERS, MAX_INSTRUCTIONS = 1 << 12, 1 << 20
_WORDS = {"unary": UNARY, "binary": BINARY, "kind": ("float", "int", "bool"), "sequence": tuple(SEQUENCES)}
_CHANGING = {"put", "append", "pop", "setfield"}
_OF_TEXTS = ("format", "join", "order", "concatenate", "characters", "parsed", "ordinal", "character")
_LAST = ("return", "jump", "raise", "throw")
# What follows an operation, and the field of the machine's instruction that it goes to.
_FORMS: dict[str, tuple[tuple[str, str], ...]] = {
    "const": (("register", "d"), ("constant", "a")),
    "tensor": (("register", "d"), ("tensor", "a")),
    "move": (("register", "d"), ("register", "a")),
    "unary": (("register", "d"), ("unary", "b"), ("register", "a")),
    "binary": (("register", "d"), ("binary", "c"), ("register", "a"), ("register", "b")),
    "jump": (("pc", "a"),),
    "else": (("register", "a"), ("pc", "b")),
    "call": (("register", "d"), ("function", "b"), ("registers", "list")),
    "return": (("register", "a"),),
    "tuple": (("register", "d"), ("registers", "list")),
    "list": (("register", "d"), ("registers", "list")),
    "record": (("register", "d"), ("record", "a"), ("registers", "list")),
    "get": (("register", "d"), ("register", "a"), ("register", "b")),
    "put": (("register", "a"), ("register", "b"), ("register", "c")),
    "slice": (("register", "d"), ("register", "a"), ("register", "b"), ("register", "c")),
    "append": (("register", "a"), ("register", "b")),
    "pop": (("register", "d"), ("register", "a"), ("register", "b")),
    "len": (("register", "d"), ("register", "a")),
    "field": (("register", "d"), ("register", "a"), ("name", "b")),
    "setfield": (("register", "a"), ("name", "b"), ("register", "c")),
    "block": (("results", "results"), ("block", "b"), ("registers", "list")),
    "value": (("register", "d"), ("register", "a"), ("kind", "b")),
    "spawn": (("register", "d"), ("function", "b"), ("registers", "list")),
    "wait": (("register", "d"), ("register", "a")),
    "raise": (("text", "a"),),
    "argmax": (("register", "d"), ("register", "a")),
    "values": (("register", "d"), ("register", "a")),
    "kind": (("register", "d"), ("register", "a")),
    "as": (("register", "d"), ("sequence", "b"), ("register", "a")),
    "lookup": (("register", "d"), ("register", "a"), ("lookup", "b"), ("register", "c")),
    "throw": (("register", "a"),),
    "format": (("register", "d"), ("register", "a"), ("text", "b")),
    "join": (("register", "d"), ("registers", "list")),
    "order": (("register", "d"), ("register", "a"), ("register", "b")),
    **dict.fromkeys(
        ("concatenate", "characters", "parsed", "ordinal", "character"),
        (("register", "d"), ("register", "a")),
    ),
    "rounded": (("register", "d"), ("register", "a"), ("register", "b")),
    "apart": (("registers", "list"), ("register", "a")),
}
SPECIFICATION = r"0?[0-9]{0,2}(\.[0-9]{1,2})?[dfeg]"  # of a number as a text


@dataclass(frozen=True)
class FunctionCode:
    """A function of a program.

    Attributes
    ----------
    name, file : str
    parameters, registers : int
    lines : tuple of int
        Of each instruction, in `file`.
    instructions : tuple of tuple of int
        Of each the operation, d, a, b, c, the number of its list, and where it begins in `lists`.
    lists : tuple of int
    changes : bool
        Whether it changes lists or records.
    handlers : tuple of (int, int, int, int)
        Where exceptions are taken: begin, end, target and register of each.
    """

    name: str
    file: str
    parameters: int
    registers: int
    lines: tuple[int, ...]
    instructions: tuple[tuple[int, ...], ...]
    lists: tuple[int, ...]
    changes: bool
    handlers: tuple[tuple[int, ...], ...] = ()

    @property
    def makes_texts(self) -> bool:
        """Whether it makes texts, or asks for their order."""
        return any(OPERATIONS[one[0]] in _OF_TEXTS for one in self.instructions)

    @property
    def integers(self) -> list[int]:
        """Its part of a machine's description."""
        head = [self.parameters, self.registers, len(self.instructions), len(self.lists)]
        code = (number for one in self.instructions for number in one)
        handlers = (number for one in self.handlers for number in one)
        return [*head, *code, *self.lists, len(self.handlers), *handlers]


@dataclass(frozen=True)
class Surroundings:
    """What instructions may refer to.

    Attributes
    ----------
    counts : dict of str to int
        How many there are of each sort of thing: ``constant``, ``tensor``, ``record``, ``name``, ``block``,
        ``function``, ``lookup``.
    texts : frozenset of int
        The constants that are texts.
    parameters : tuple of int
        Of each function.
    fields : tuple of int
        Of each record.
    blocks : tuple of (int, int)
        Operands and results of each block.
    """

    counts: Mapping[str, int]
    texts: frozenset[int]
    parameters: tuple[int, ...]
    fields: tuple[int, ...]
    blocks: tuple[tuple[int, int], ...]


def whole(value: Any, low: int, high: int, what: str) -> int:
    """Return a whole number within bounds, both of which it may be; raises ValueError for anything else."""
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{what} {str(value)[:40]}; allowed: {low}…{high}")
    return value


def read_function(data: Mapping[str, Any], around: Surroundings) -> FunctionCode:
    """Return a function; raises ValueError, KeyError or TypeError for what is none."""
    name, file = str(data["name"])[:200], str(data["file"])[:400]
    registers = whole(data["registers"], 1, MAX_REGISTERS, f"{name}: registers")
    parameters = whole(data["parameters"], 0, registers, f"{name}: parameters")
    code = data["code"]
    whole(len(code), 1, MAX_INSTRUCTIONS, f"{name}: number of instructions")
    lines = tuple(whole(one, 0, 1 << 30, f"{name}: line") for one in data["lines"])
    if len(lines) != len(code):
        raise ValueError(f"{name}: {len(lines)} lines of {len(code)} instructions")
    limits = {**around.counts, "register": registers, "pc": len(code)}
    instructions: list[tuple[int, ...]] = []
    lists: list[int] = []
    for number, one in enumerate(code):
        try:
            made, own = _instruction(one, limits, around)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise ValueError(f"{name}: instruction {number}: {error}") from error
        instructions.append((*made, len(own), len(lists)))
        lists += own
    if code[-1][0] not in _LAST:
        raise ValueError(f"{name}: ends with {code[-1][0]!r}; allowed: {', '.join(_LAST)}")
    changes = any(one[0] in _CHANGING for one in code)
    given = data.get("handlers", [])
    whole(len(given), 0, len(code), f"{name}: number of handlers")
    handlers = tuple(_handler(one, len(code), registers) for one in given)
    return FunctionCode(
        name, file, parameters, registers, lines, tuple(instructions), tuple(lists), changes, handlers
    )


def _handler(data: Sequence[Any], many: int, registers: int) -> tuple[int, ...]:
    begin, end, target, register = data
    whole(begin, 0, many, "begin of a handler")
    whole(end, begin, many, "end of a handler")
    whole(target, 0, many - 1, "target of a handler")
    whole(register, 0, registers - 1, "register of a handler")
    return begin, end, target, register


def _instruction(
    data: Sequence[Any], limits: Mapping[str, int], around: Surroundings
) -> tuple[tuple[int, ...], list[int]]:
    """Return operation, d, a, b and c, and the list of registers behind them."""
    operation, *given = data
    if operation not in _FORMS:
        raise ValueError(f"{str(operation)[:40]!r} is no operation")
    form = _FORMS[operation]
    if len(given) != len(form):
        raise ValueError(f"{operation} with {len(given)} operands; allowed: {len(form)}")
    found = {field: _operand(sort, value, limits) for (sort, field), value in zip(form, given, strict=True)}
    own = found.pop("list", [])
    results = found.pop("results", [])
    _check_counts(operation, found, len(own), len(results), around)
    for word, field in (("raise", "a"), ("format", "b")):
        if operation == word and found[field] not in around.texts:
            raise ValueError(f"{word} of a constant that is no text")
    return (OPERATIONS.index(operation), *(found.get(field, 0) for field in "dabc")), [*results, *own]


def _operand(sort: str, value: Any, limits: Mapping[str, int]) -> Any:
    if sort in ("registers", "results"):
        if not isinstance(value, list):
            raise ValueError("registers are a list")
        least = -1 if sort == "results" else 0
        return [whole(one, least, limits["register"] - 1, "register") for one in value]
    if sort in _WORDS:
        if value not in _WORDS[sort]:
            raise ValueError(f"{sort} {str(value)[:20]!r}; allowed: {' '.join(_WORDS[sort])}")
        if sort == "sequence":
            return SEQUENCES[value]
        return (BINARY if sort == "binary" else UNARY).index(value)
    return whole(value, 0, limits["constant" if sort == "text" else sort] - 1, sort)


def _check_counts(
    operation: str, found: Mapping[str, Any], num_given: int, num_results: int, around: Surroundings
) -> None:
    """Refuse a call with fewer or more operands than what is called takes."""
    if operation in ("call", "spawn"):
        allowed = around.parameters[found["b"]]
    elif operation == "record":
        allowed = around.fields[found["a"]]
    elif operation == "block":
        allowed, results = around.blocks[found["b"]]
        if num_results != results:
            raise ValueError(f"{num_results} results of a block; allowed: {results}")
    else:
        return
    if num_given != allowed:
        raise ValueError(f"{operation} with {num_given} values; allowed: {allowed}")
