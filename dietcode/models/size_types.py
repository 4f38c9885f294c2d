"""Dynamic sizes as a model's own Python takes them: instances of ``int``, and never texts.

PyTorch has a class for them that is no ``int``, and writes ``s21`` where a model writes a size in a text, so
that a model would go other ways in an export than it does when it is called.
"""

from __future__ import annotations

import dis
import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from dietcode.models.own_thread import is_own_thread
from dietcode.models.size_type_calls import types_of_sizes
from dietcode.models.sources import asking_frame, place_of

_DROPPED = "POP_TOP"
_RAISING = "RAISE_VARARGS"


@contextmanager
def sizes_as_numbers(module: Any, ask_text: Callable[[Any, str], str]) -> Iterator[None]:
    """Let sizes be numbers to a model's code in this thread, for as long as this lasts.

    Parameters
    ----------
    module : torch.nn.Module
        The model.
    ask_text : callable
        Called with PyTorch's node of a size, and where the model's code makes a text of it which is no
        message, as ``file.py:12``; returns the text.
    """
    import torch

    kinds: dict[Any, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
    texts = {kind: kind.__repr__ for kind in kinds}
    for kind, number in kinds.items():
        kind.__getattribute__ = _with_class(number)
        kind.__repr__ = _with_text(texts[kind], ask_text)
    try:
        with types_of_sizes(module, kinds):
            yield
    finally:
        for kind, text in texts.items():
            del kind.__getattribute__
            kind.__repr__ = text


def _with_class(number: type) -> Callable[[Any, str], Any]:
    """Return a reader of attributes that shows a model's code a class of Python's numbers."""

    def get(self: Any, name: str) -> Any:
        if name == "__class__" and is_own_thread() and asking_frame(sys._getframe(1)) is not None:
            return number
        return object.__getattribute__(self, name)

    return get


def _with_text(own: Callable[[Any], str], ask_text: Callable[[Any, str], str]) -> Callable[[Any], str]:
    def text(self: Any) -> str:
        frame = asking_frame(sys._getframe(1)) if is_own_thread() else None
        return own(self) if frame is None or _is_message(frame) else ask_text(self.node, place_of(frame))

    return text


def _is_message(frame: FrameType) -> bool:
    """Whether what a frame computes now is raised, or is for a call whose result is dropped, as ``print``."""
    rest = itertools.dropwhile(lambda one: one.offset <= frame.f_lasti, dis.get_instructions(frame.f_code))
    for one in rest:
        if one.opname in (_DROPPED, _RAISING):
            return True
        if one.opname.startswith(("STORE_", "RETURN_", "POP_JUMP", "JUMP_", "COMPARE_", "YIELD_")):
            return False
    return False
