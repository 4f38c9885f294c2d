"""Exceptions of generators that a program takes: they would come before what is done with earlier items.

A generator is run to its end where it is called, so one that a `try` around its loop would see raise is
refused. What each function may throw is found by its code; what a generator throws is marked on its way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dietcode.errors import ModelError
from dietcode.programs.code import Code, ExceptionHandler, Instruction
from dietcode.programs.exceptions import is_exception_class

_Thrown = tuple[type, str]
"""A class of exceptions, and the generator that it came out of, empty for none."""
_DIVISIONS = ("/", "//", "%", "**")
_ADVICE = (
    "a generator runs to its end where it is called, so that this would come before what is done with its "
    "first values; write the loop where the values are used, or take exceptions within the generator"
)


@dataclass(frozen=True)
class _Throwing:
    """What an instruction throws: of some classes, or what a function throws, or what came before."""

    classes: Sequence[type]
    callee: int | None
    is_whole: bool
    generator: str
    handler: ExceptionHandler | None
    again: tuple[ExceptionHandler, tuple[type, ...]] | None


class ThrowingCode:
    """What a function's code may throw, noted before its registers become few.

    Parameters
    ----------
    code : Code
    classes : mapping of str to type
        Of the program's records.
    generator : str
        Where it is, and its name, if it is a generator; empty for others.
    """

    def __init__(self, code: Code, classes: Mapping[str, type], generator: str) -> None:
        self.generator = generator
        self._classes = classes
        self._errors = tuple(one for one in classes.values() if is_exception_class(one))
        self._taken = code.taken
        self._made = {one.writes[0]: one for one in code.instructions if one.writes}
        self._throwing = [self._of(one) for one in code.instructions]

    def escaping(
        self, functions: Mapping[int, ThrowingCode], of_functions: Mapping[int, frozenset[_Thrown]]
    ) -> frozenset[_Thrown]:
        """Return what comes out, if that comes out of others; raises ModelError as `check_generators`."""
        came: dict[ExceptionHandler, set[_Thrown]] = {}
        out: set[_Thrown] = set()
        for one in self._throwing:
            thrown = {(cls, one.generator) for cls in one.classes}
            if one.callee is not None:
                name = "" if one.is_whole else functions[one.callee].generator
                thrown |= {(cls, own or name or one.generator) for cls, own in of_functions[one.callee]}
            if one.again is not None:  # all that came to it stands before
                handler, types = one.again
                thrown = {own for own in came.get(handler, ()) if not issubclass(own[0], types)}
            if one.handler is None:
                out |= thrown
            else:
                came.setdefault(one.handler, set()).update(thrown)
        for handler, thrown in came.items():
            self._check(thrown, self._taken.get(handler, ()))
        return frozenset(out)

    def _check(self, thrown: set[_Thrown], types: tuple[type, ...]) -> None:
        early = sorted((own, cls.__name__) for cls, own in thrown if own and issubclass(cls, types))
        if early:
            (where, name), *_ = early
            raise ModelError(f"{where} may raise {name}, which the program takes: {_ADVICE}")

    def _of(self, one: Instruction) -> _Throwing:
        callee = one.rest[0] if one.word in ("call", "spawn") else None
        classes = () if one.again is not None else self._classes_of(one)
        return _Throwing(classes, callee, one.is_whole, one.generator, one.handler, one.again)

    def _classes_of(self, one: Instruction) -> Sequence[type]:
        """Return the classes of what an instruction itself throws."""
        if one.word == "throw":
            made = self._made.get(one.reads[0])
            is_known = made is not None and made.word == "record"
            return [self._classes[made.rest[0]]] if made is not None and is_known else self._errors
        if one.word in ("get", "put", "pop"):
            return () if one.is_sure else [IndexError]
        if one.word == "apart":
            return [ValueError]
        if one.word == "binary" and one.rest[0] in _DIVISIONS:
            return () if self._is_number(one.reads[1]) else [ZeroDivisionError]
        return ()

    def _is_number(self, register: int) -> bool:
        """Whether a register holds a constant that is not zero."""
        made = self._made.get(register)
        return made is not None and made.word == "const" and bool(made.rest[0].value)


def check_generators(functions: Mapping[int, ThrowingCode]) -> None:
    """Refuse a program that takes what a generator throws.

    Parameters
    ----------
    functions : mapping of int to ThrowingCode
        By the numbers by which they are called.

    Raises
    ------
    ModelError
        Names the file and line of the generator.
    """
    escaping: dict[int, frozenset[_Thrown]] = dict.fromkeys(functions, frozenset())
    while True:
        found = {number: one.escaping(functions, escaping) for number, one in functions.items()}
        if found == escaping:
            break
        escaping = found
