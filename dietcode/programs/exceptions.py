"""Exceptions of a program: what samples throw, and what the machine itself notices."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dietcode.errors import ModelError

ARGS = "args"  # the first field of each exception
# What the machine itself notices: its number, and Python's exception, whose text it does not have.
OF_MACHINE: tuple[tuple[int, type[Exception]], ...] = (
    (2, IndexError),
    (5, ZeroDivisionError),
    (12, IndexError),
    (17, ValueError),
)
NOTICED = (IndexError, ZeroDivisionError)  # which is of no operator alone: a ValueError may be another one


class SampleError(ModelError):
    """A sample has thrown an exception; it is refused where the program does not take it.

    Attributes
    ----------
    error : BaseException
    is_noticed : bool
        Whether it is one of `OF_MACHINE`, and not one that the program did raise itself.
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
