"""Where the author of a model wrote what is spoken of."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

_OWN_FOLDER = str(Path(__file__).parents[1]) + os.sep


def source_in(trace: str) -> str:
    """Return where the author of a model wrote a node, as ``file.py:12``; '' where a trace does not say."""
    found = re.findall(r'File "([^"]+)", line (\d+)', trace)
    own = [(file, line) for file, line in found if not is_of_libraries(file)]
    return f"{Path(own[-1][0]).name}:{own[-1][1]}" if own else ""


def is_of_libraries(file: str) -> bool:
    """Whether a file is PyTorch's, or this package's, or none at all."""
    return "/torch/" in file or file.startswith(("torch/", "<", _OWN_FOLDER))


def source_of(node: Any) -> str:
    """Return where the author of a model wrote a node, as ``file.py:12``; '' where that is not known."""
    return source_in(node.meta.get("stack_trace") or "")


def at(where: str) -> str:
    """Return a place of the source in brackets, as the end of a sentence has it; '' without one."""
    return f" ({where})" if where else ""
