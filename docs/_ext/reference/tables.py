"""Every table of the service's database."""

from __future__ import annotations

import inspect

from dietcode_server.store.tables import Base
from reference.markdown import code, prose, table


def text() -> str:
    """A table: name, what a row is, its columns."""
    mappers = sorted(Base.registry.mappers, key=lambda one: str(one.local_table))
    rows = [
        (
            code(mapper.local_table),
            prose((inspect.getdoc(mapper.class_) or "").partition("\n\n")[0]),
            ", ".join(code(column.name) for column in mapper.columns),
        )
        for mapper in mappers
    ]
    return table(("table", "a row is", "columns"), rows)
