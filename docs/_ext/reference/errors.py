"""Every exception, with the exit status that it becomes on the command line."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from dietcode import errors
from reference.markdown import code, prose, table


def text() -> str:
    """A table: exception, parent, exit status, when."""
    rows = [
        (code(kind.__name__), code(kind.__base__.__name__), str(kind.exit_status), _first(kind))
        for kind in _below(errors.DietCodeError)
    ]
    return table(("exception", "a kind of", "exit status", "when"), rows)


def _below(kind: type[errors.DietCodeError]) -> Iterator[type[errors.DietCodeError]]:
    yield kind
    for one in kind.__subclasses__():
        if one.__module__ == errors.__name__:
            yield from _below(one)


def _first(kind: type) -> str:
    return prose((inspect.getdoc(kind) or "").partition("\n\n")[0])
