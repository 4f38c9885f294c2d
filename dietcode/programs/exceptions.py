"""Exceptions of a program: what samples throw, which classes there are, where the machine takes them."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dietcode.errors import ModelError

if TYPE_CHECKING:
    from dietcode.programs.code import Instruction
    from dietcode.programs.recording import Recording

ARGS = "args"  # the first field of each exception
# What the machine itself notices: its number, and Python's exception, whose text it does not have.
OF_MACHINE: tuple[tuple[int, type[Exception]], ...] = (
    (2, IndexError),
    (5, ZeroDivisionError),
    (12, IndexError),
)
NOTICED = tuple(own for _, own in OF_MACHINE)
_RAISED = (KeyError, ValueError, AssertionError)  # by what a program calls


class SampleError(ModelError):
    """A sample has thrown an exception; it is refused where the program does not take it.

    Attributes
    ----------
    error : BaseException
    is_noticed : bool
        Whether it is one of `NOTICED` that the program did not raise itself.
    """

    def __init__(self, refusal: ModelError, error: BaseException, is_noticed: bool = False) -> None:
        super().__init__(str(refusal))
        self.error, self.is_noticed = error, is_noticed


@dataclass(frozen=True)
class FinalStatements:
    """What runs before one leaves a ``try``, and how many loops and handlers were around that."""

    body: Sequence[ast.stmt]
    num_loops: int
    num_handlers: int


def is_exception_class(given: Any) -> bool:
    """Whether something is a class of exceptions."""
    return isinstance(given, type) and issubclass(given, BaseException)


def note_exceptions(recording: Recording) -> bool:
    """Return whether a program takes exceptions; then each class that it may throw is one of its records."""
    contexts = recording.contexts
    if not any(isinstance(node, ast.Try) for one in contexts for _, node in one.reached):
        return False
    known: list[Any] = [*_RAISED, *NOTICED]
    for one in contexts:
        raised = [node.exc for node in ast.walk(one.source.tree) if isinstance(node, ast.Raise)]
        called = [node.func for node in raised if isinstance(node, ast.Call)]
        known += [one.source.static_value(node) for node in called if isinstance(node, ast.Name)]
    for cls in dict.fromkeys(filter(is_exception_class, known)):
        fields = recording.fields_of(cls)
        if fields is None:
            raise ModelError(f"there are two classes {cls.__name__}; give them different names")
        if ARGS not in fields:
            fields.insert(0, ARGS)
    return True


def handlers_of(
    kept: Sequence[Instruction], code: Sequence[Instruction], places: Mapping[int, int]
) -> list[list[int]]:
    """Return which instructions go on where when they throw: ``[begin, end, target, register]``.

    Parameters
    ----------
    kept, code : sequence of Instruction
        Without and with labels.
    places : mapping of int to int
        Of each label, by its identity.
    """
    registers = {
        id(label.target): one.writes[0] for label, one in itertools.pairwise(code) if one.word == "caught"
    }
    found: list[list[int]] = []
    for at, one in enumerate(kept):
        if one.handler is None:
            continue
        label = id(one.handler.label)
        own = [places[label], registers[label]]
        if found and found[-1][1] == at and found[-1][2:] == own:
            found[-1][1] = at + 1
        else:
            found.append([at, at + 1, *own])
    return found
