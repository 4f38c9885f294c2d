"""Alembic's entry: runs the migrations on the connection that `Database.upgrade` hands over.

A developer's ``alembic -c migrations/alembic.ini -x url=sqlite:////tmp/dietcode.db …`` opens one itself.
"""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection

from dietcode_server.store.database import Database, StoreError
from dietcode_server.store.tables import Base


def migrate(connection: Connection) -> None:
    """Run what was asked for, inside the transaction of `connection`."""
    # SQLite cannot alter most things in place: batch mode copies the table.
    context.configure(connection=connection, target_metadata=Base.metadata, render_as_batch=True)
    context.run_migrations()


def main() -> None:
    """Find a connection and migrate.

    Raises
    ------
    StoreError
        Neither a connection nor ``-x url=…`` was given.
    """
    connection = context.config.attributes.get("connection")
    if connection is not None:
        migrate(connection)
        return
    url = context.get_x_argument(as_dictionary=True).get("url")
    if not isinstance(url, str):
        raise StoreError("which database? give its URL, as in: alembic -x url=sqlite:////tmp/dietcode.db …")
    database = Database(url)
    with database.begin() as connection:
        migrate(connection)
    database.dispose()


main()
