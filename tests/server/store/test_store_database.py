"""Connections, transactions, errors and the schema's history."""

from __future__ import annotations

import json
import re
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import alembic.config
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from small_libraries import ROOT
from small_models import model_data
from sqlalchemy import delete, insert, inspect, text
from sqlalchemy.exc import IntegrityError
from store_helpers import go, job_in, start, submit

from dietcode.errors import DietCodeError, RequestError
from dietcode.graph.model_request import model_from_data
from dietcode.protocol import JobState, Progress
from dietcode_server.store import blobs, jobs, shares
from dietcode_server.store import database as database_module
from dietcode_server.store import events as job_events
from dietcode_server.store.database import Database, StoreError, migrations_config
from dietcode_server.store.tables import DISPATCH_EXPLAINED, Base, BlobChunk, EventRow, JobRow

HEAD = ScriptDirectory.from_config(migrations_config()).get_current_head()
only_sqlite = pytest.mark.parametrize("kind", ["sqlite"])


def migrate(database: Database, what: Any, revision: str) -> None:
    config = migrations_config()
    with database.begin() as connection:
        config.attributes["connection"] = connection
        what(config, revision)


def check_line(error: DietCodeError, *parts: str) -> None:
    assert "\n" not in str(error) and len(str(error)) < 500
    for part in parts:
        assert part in str(error)


def test_the_migrated_schema_is_that_of_the_tables(database: Database, kind: str) -> None:
    with database.begin() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
        if kind == "sqlite":
            view = connection.execute(text("SELECT sql FROM sqlite_master WHERE type = 'view'")).scalar_one()
            assert view.split() == DISPATCH_EXPLAINED.split()
        assert inspect(connection).get_view_names() == ["dispatch_explained"]
        foreign_keys = {table: inspect(connection).get_foreign_keys(table) for table in Base.metadata.tables}
    # compare_metadata does not see all of these on SQLite
    for name, table in Base.metadata.tables.items():
        declared = {
            tuple(sorted(e.target_fullname for e in c.elements)) for c in table.foreign_key_constraints
        }
        made = {
            tuple(sorted(f"{key['referred_table']}.{column}" for column in key["referred_columns"]))
            for key in foreign_keys[name]
        }
        assert made == declared, name


def test_a_schema_that_differs_is_noticed(database: Database) -> None:
    """So that the comparison above can fail."""
    with database.begin() as connection:
        connection.execute(text("ALTER TABLE jobs ADD COLUMN colour TEXT"))
        connection.execute(text("DROP INDEX jobs_by_state"))
        differences = compare_metadata(MigrationContext.configure(connection), Base.metadata)
    assert len(differences) == 2


def test_downgrade_to_nothing_and_back(database: Database) -> None:
    migrate(database, command.downgrade, "base")
    assert inspect(database.engine).get_table_names() == ["alembic_version"]
    assert inspect(database.engine).get_view_names() == []
    assert not database.at_head()
    database.upgrade()
    assert database.at_head()


def test_graphs_that_were_kept_before_count_for_their_owners(database: Database) -> None:
    graph = model_from_data(json.loads(json.dumps(model_data())))
    with database.write() as session:
        submit(session, spec=graph)
        submit(session, owner="bob")
    kept = bytes_kept(database)
    migrate(database, command.downgrade, "0014")
    before = bytes_kept(database)
    assert kept["local"] - before["local"] == len(json.dumps(graph.content.to_json()))
    assert kept["bob"] == before["bob"]
    database.upgrade()
    assert bytes_kept(database) == kept


def bytes_kept(database: Database) -> dict[str, int]:
    with database.read() as session:
        return {owner: shares.bytes_of(session, owner) for owner in ("local", "bob")}


def test_a_new_database_is_not_at_head(url: str) -> None:
    database = Database(url)
    assert not database.at_head()
    database.upgrade()
    database.upgrade()
    assert database.at_head()
    database.dispose()


def test_a_failed_migration_leaves_nothing(url: str) -> None:
    database = Database(url)
    with database.begin() as connection:
        connection.execute(text("CREATE TABLE tuning_records (mine INTEGER)"))
    with pytest.raises(StoreError, match="already exists"):
        database.upgrade()
    assert inspect(database.engine).get_table_names() == ["tuning_records"]
    database.dispose()


def test_a_newer_schema_is_refused(database: Database) -> None:
    with database.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(DietCodeError) as caught:
        database.upgrade()
    check_line(caught.value, "'9999' is newer", f"'{HEAD}'", str(database.location))
    assert not database.at_head()
    for call in (database.check_head, database.revision):
        with pytest.raises(StoreError, match="'9999' is newer"):
            call()


def test_an_older_schema_is_refused_where_nothing_upgrades_it(database: Database, url: str) -> None:
    database.check_head()
    assert database.revision() == HEAD
    migrate(database, command.downgrade, "0002")
    with pytest.raises(StoreError) as caught:
        database.check_head()
    check_line(caught.value, "schema '0002'", f"needs '{HEAD}'", "run `dietcode db upgrade`")
    migrate(database, command.downgrade, "base")
    assert database.revision() is None
    with pytest.raises(StoreError, match=r"it has no tables.*run `dietcode db upgrade`"):
        database.check_head()
    database.upgrade()
    database.check_head()


@pytest.mark.thorough
@pytest.mark.sampled(keep=1)
def test_upgrades_from_two_processes_at_once(new_url: Callable[[], str], kind: str) -> None:
    urls = [new_url() for _ in range(8 if kind == "sqlite" else 3)]
    assert go(start("upgrade", *urls), start("upgrade", *urls)) == [True, True]
    for url in urls:
        database = Database(url)
        assert database.at_head()
        database.dispose()


def test_upgrades_from_threads_at_once(url: str) -> None:
    def upgrade(_: int) -> bool:
        database = Database(url)
        database.upgrade()
        at_head = database.at_head()
        database.dispose()
        return at_head

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(upgrade, range(6)))


@only_sqlite
def test_an_upgrade_waits_for_another_writer(url: str, tmp_path: Path) -> None:
    """Also where SQLite itself does not wait: when the journal's mode changes."""
    other = sqlite3.connect(tmp_path / "dietcode.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.3, other.execute, ["COMMIT"])
    release.start()
    database = Database(url)
    database.upgrade()
    assert database.at_head()
    release.join()
    other.close()
    database.dispose()


def test_the_command_line_of_developers(url: str) -> None:
    ini = ["-c", str(ROOT / "migrations" / "alembic.ini")]
    alembic.config.main([*ini, "-x", f"url={url}", "upgrade", "head"])
    alembic.config.main([*ini, "-x", f"url={url}", "check"])
    database = Database(url)
    with database.begin() as connection:
        connection.execute(text("DROP INDEX jobs_by_state"))
    database.dispose()
    with pytest.raises(SystemExit):
        alembic.config.main([*ini, "-x", f"url={url}", "check"])
    with pytest.raises(StoreError, match="which database"):
        alembic.config.main([*ini, "check"])


@only_sqlite
def test_settings_of_a_connection(database: Database) -> None:
    with database.read() as session:
        names = ("journal_mode", "foreign_keys", "synchronous", "busy_timeout")
        values = [session.execute(text(f"PRAGMA {name}")).scalar_one() for name in names]
    assert values == ["wal", 1, 1, 10_000]


def test_a_write_is_whole_or_not_there(database: Database) -> None:
    with pytest.raises(ZeroDivisionError), database.write() as session:
        submit(session)
        raise ZeroDivisionError
    with database.read() as session:
        assert jobs.list_jobs(session) == ([], None)


def test_a_read_cannot_write(database: Database) -> None:
    job_id = job_in(database, JobState.QUEUED)
    with pytest.raises(StoreError, match=r"read-?only"), database.read() as session:
        session.execute(delete(JobRow))
    with database.write() as session:  # the same connection, from the pool
        assert jobs.claim(session, job_id, "me")


def test_a_mistake_of_ours_is_no_store_error(database: Database) -> None:
    chunk = {"digest": "sha256:none", "position": 0, "data": b"0"}
    with pytest.raises(IntegrityError, match=r"(?i)foreign key"), database.write() as session:
        session.execute(insert(BlobChunk), chunk)


def test_rows_outlive_their_session(database: Database) -> None:
    with database.write() as session:
        written, _ = submit(session)
    with database.read() as session:
        read = jobs.get(session, written.id)
        event = job_events.events_after(session, written.id, 0)[0]
    assert read is not written and (read.name, read.spec) == (written.name, written.spec)
    assert event.state == "queued"


def test_a_reader_sees_one_state_and_never_waits(database: Database) -> None:
    job_id = job_in(database, JobState.QUEUED)
    with database.read() as reader:
        assert jobs.get(reader, job_id).state == "queued"
        with database.write() as writer:
            assert jobs.claim(writer, job_id, "me")
        assert [event.seq for event in job_events.events_after(reader, job_id, 0)] == [1]
    with database.read() as reader:
        assert [event.seq for event in job_events.events_after(reader, job_id, 0)] == [1, 2]


def numbers(database: Database, job_id: str) -> list[int]:
    with database.read() as session:
        return [event.seq for event in job_events.events_after(session, job_id, 0, limit=10_000)]


@pytest.mark.thorough
@pytest.mark.sampled(keep=1)
def test_events_from_two_processes_have_no_gaps(database: Database, url: str) -> None:
    job_id = job_in(database, JobState.RUNNING)
    assert go(*(start("progress", url, job_id, 150) for _ in range(2))) == [True, True]
    assert numbers(database, job_id) == list(range(1, 303))
    with database.read() as session:
        assert jobs.get(session, job_id).measured == 300


def test_events_from_threads_have_no_gaps(database: Database) -> None:
    job_id = job_in(database, JobState.RUNNING)
    begin = threading.Barrier(8)

    def add(_: int) -> None:
        begin.wait(timeout=10)
        for done in range(20):
            with database.write() as session:
                jobs.add_progress(session, job_id, Progress(stage="measure", message="", done=done))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(8)))
    assert numbers(database, job_id) == list(range(1, 163))


def test_a_locked_database(database: Database, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "BUSY_SECS", 0.2)
    impatient = Database(url)
    with database.write() as holder:
        submit(holder)
        with pytest.raises(StoreError) as caught, impatient.write() as session:
            submit(session, "other")
        with impatient.read() as session:
            assert jobs.list_jobs(session) == ([], None)
    assert re.search("database is locked|lock timeout", str(caught.value))
    check_line(caught.value, "another process has held it", str(database.location))
    with impatient.write() as session:
        assert submit(session, "other")[1]
    impatient.dispose()


@pytest.mark.parametrize(
    ("url", "kind", "parts"),
    [
        ("nonsense", RequestError, ("database URL", "sqlite:////absolute/path")),
        ("oracle+nonsense://x", RequestError, ("database URL", "postgresql+psycopg://")),
        ("mysql://x/y", RequestError, ("given mysql", "postgresql+psycopg://")),
        ("sqlite:////no/such/folder/d.db", StoreError, ("/no/such/folder/d.db", "is its folder there")),
    ],
)
def test_no_database_there(url: str, kind: type[Exception], parts: tuple[str, ...]) -> None:
    with pytest.raises(kind) as caught:
        Database(url).upgrade()
    check_line(caught.value, *parts)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "dietcode.db"
    path.write_text("a letter to a friend, longer than a header of SQLite would be\n" * 20)
    database = Database(f"sqlite:///{path}")
    with pytest.raises(StoreError) as caught:
        database.upgrade()
    check_line(caught.value, str(path), "not a database", "--data-dir")
    with pytest.raises(StoreError, match="not a database"), database.read() as session:
        jobs.running(session)
    database.dispose()


def test_a_database_without_tables(url: str) -> None:
    database = Database(url)
    with pytest.raises(StoreError) as caught, database.read() as session:
        jobs.running(session)
    assert re.search(r'no such table: jobs|relation "jobs" does not exist', str(caught.value))
    check_line(caught.value, "dietcode serve")
    database.dispose()


def test_a_full_disk(mount_disk: Callable[[str], Path | None]) -> None:
    small_disk = mount_disk("2m")
    if small_disk is None:
        return
    database = Database(f"sqlite:///{small_disk / 'dietcode.db'}")
    database.upgrade()
    job_id = job_in(database, JobState.RUNNING)
    with pytest.raises(StoreError) as caught, database.write() as session:
        blobs.add(session, bytes(4 << 20))
    check_line(caught.value, "disk", str(small_disk / "dietcode.db"))
    with database.write() as session:
        assert jobs.finish(session, job_id, JobState.FAILED, error=str(caught.value))
        assert session.execute(text("SELECT count(*) FROM blobs")).scalar_one() == 0
    database.dispose()
    assert check_integrity(small_disk / "dietcode.db") == "ok"


@only_sqlite
def test_a_limit_on_file_sizes(database: Database, url: str, tmp_path: Path) -> None:
    (result,) = go(start("fill", url, 1 << 20))
    assert result["kind"] == "StoreError" and 0 < result["kept"] < 50
    assert re.search(r"dietcode\.db: (disk I/O error|database or disk is full); ", result["error"])
    assert "\n" not in result["error"]
    with database.read() as session:
        assert session.execute(text("SELECT count(*) FROM blobs")).scalar_one() == result["kept"] + 1
    database.dispose()
    assert check_integrity(tmp_path / "dietcode.db") == "ok"


def check_integrity(path: Path) -> str:
    connection = sqlite3.connect(path)
    try:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])
    finally:
        connection.close()


def test_times_are_aware_and_in_utc(database: Database) -> None:
    with database.write() as session:
        row, _ = submit(session)
    with database.read() as session:
        event = session.get_one(EventRow, (row.id, 1))
    assert event.at == row.created_at
    assert event.at.utcoffset() is not None and event.at.utcoffset().total_seconds() == 0
