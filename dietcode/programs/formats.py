"""How f-strings format numbers."""

from __future__ import annotations

import ast
import re

from dietcode.runtime.programs.code import SPECIFICATION


def specification_of(node: ast.FormattedValue) -> str | None:
    """Return how a value is formatted, empty for as it is; None for what the machine does not know."""
    given = node.format_spec
    if given is None:
        return ""
    parts = given.values if isinstance(given, ast.JoinedStr) else []
    texts = [one.value for one in parts if isinstance(one, ast.Constant)]
    text = "".join(map(str, texts))
    is_known = len(texts) == len(parts) and re.fullmatch(SPECIFICATION, text)
    return text if is_known else None
