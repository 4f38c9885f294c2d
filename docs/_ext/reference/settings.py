"""Every setting of the server."""

from __future__ import annotations

import re

from pydantic_core import PydanticUndefined

from dietcode_server.settings import ENV_PREFIX, Settings
from reference.markdown import code, prose, table

_DEFAULT = re.compile(r"\s*\[default: (.+?)\]")


def text() -> str:
    """A table: variable, default, what."""
    return table(("variable", "default", "meaning"), (_row(name) for name in Settings.model_fields))


def _row(name: str) -> tuple[str, str, str]:
    field = Settings.model_fields[name]
    about = field.description
    if not about:
        raise ValueError(f"the setting {name} has no description")
    if named := _DEFAULT.search(about):
        shown = prose(named[1])
    elif field.default is PydanticUndefined:
        shown = "the user's data folder"
    elif field.default in (None, "", ()):
        shown = "none"
    else:
        shown = code(field.default)
    return code(ENV_PREFIX + name.upper()), shown, prose(_DEFAULT.sub("", about))
