"""Where the author of a model wrote what is spoken of."""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Collection
from pathlib import Path
from types import FrameType
from typing import Any

_OWN_FOLDER = str(Path(__file__).parents[1]) + os.sep
_PYTHON_FOLDER = sysconfig.get_path("stdlib") + os.sep
_INSTALLED = ("site-packages", "dist-packages")
_TYPED = ("<stdin>", "<string>")  # python -c, and what is piped to it; also what libraries generate


def source_in(trace: str) -> str:
    """Return where the author of a model wrote a node, as `place` has it; '' where a trace does not say."""
    found = re.findall(r'File "([^"]+)", line (\d+)', trace)
    own = [(file, line) for file, line in found if not is_of_libraries(file) and not is_of_python(file)]
    return place(*own[-1]) if own else ""


def place(file: str, line: int | str) -> str:
    """Return a line as ``folder/file.py:12``, or with the path within an installed package."""
    path = Path(file)
    packages = [number for number, part in enumerate(path.parts) if part in _INSTALLED]
    parts = path.parts[packages[-1] + 1 :] if packages else path.parts[-2:]
    return f"{'/'.join(part for part in parts if part != path.anchor)}:{line}"


def is_of_libraries(file: str) -> bool:
    """Whether a file is PyTorch's, or this package's, or none at all."""
    return "/torch/" in file or file.startswith(("torch/", "<", _OWN_FOLDER))


def asking_frame(frame: FrameType | None, passing: Collection[str] = ()) -> FrameType | None:
    """Return the frame of a model's code that asks for something, itself or by Python's own library.

    Parameters
    ----------
    frame : FrameType, optional
        Where it is asked for.
    passing : collection of str
        Files that ask for others.

    Returns
    -------
    FrameType or None
        None where PyTorch asks.
    """
    while frame is not None:
        file = frame.f_code.co_filename
        if file in passing or is_of_python(file):
            frame = frame.f_back
        elif file in _TYPED:
            return frame if frame.f_globals.get("__name__") == "__main__" else None
        else:
            return None if is_of_libraries(file) else frame
    return None


def place_of(frame: FrameType) -> str:
    """Return where a frame is, as `place` has it."""
    return place(frame.f_code.co_filename, frame.f_lineno)


def is_of_python(file: str) -> bool:
    """Whether a file is of Python's own library."""
    return (file.startswith(_PYTHON_FOLDER) and not is_installed(file)) or file.startswith("<frozen ")


def is_installed(file: str) -> bool:
    """Whether a file is of an installed package."""
    return any(one in file for one in _INSTALLED)


def source_of(node: Any) -> str:
    """Return where the author of a model wrote a node, as `place` has it; '' where that is not known."""
    return source_in(node.meta.get("stack_trace") or "")


def at(where: str) -> str:
    """Return a place of the source in brackets, as the end of a sentence has it; '' without one."""
    return f" ({where})" if where else ""
