"""What a compiled program holds of exceptions: which classes it may throw, and where they are taken."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from dietcode.errors import ModelError
from dietcode.programs.code import Instruction
from dietcode.programs.exceptions import ARGS, NOTICED, is_exception_class
from dietcode.programs.recording import Recording

_RAISED = (KeyError, ValueError, AssertionError, StopIteration)  # by what a program calls


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
