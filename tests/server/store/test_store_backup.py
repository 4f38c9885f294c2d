"""Backups: what comes back is what was there, in either kind of database; and what is refused."""

from __future__ import annotations

import shutil
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from store_helpers import job_in, submit
from store_records import DEVICE, micro_kernel
from store_rows import REVISIONS, facts, fill, load

from dietcode.errors import ConflictError, DietCodeError, RequestError
from dietcode.protocol import JobState
from dietcode_server.store import backup as backup_module
from dietcode_server.store import blobs, jobs, runners
from dietcode_server.store.backup import backup, restore
from dietcode_server.store.blobs import CHUNK_BYTES
from dietcode_server.store.clock import clock
from dietcode_server.store.database import Database, StoreError
from dietcode_server.store.records import SqlRecords

WORKLOAD = "sha256:" + "01" * 32


@pytest.fixture
def others(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[[str], Database]]:
    """Return a function that makes an empty database of a kind, which need not be that of `database`."""
    made: list[Database] = []

    def make(of_kind: str) -> Database:
        url = f"sqlite:///{tmp_path / f'other{len(made)}.db'}"
        if of_kind != "sqlite":
            url = request.getfixturevalue("postgres").create()
        made.append(Database(url))
        return made[-1]

    yield make
    for database in made:
        database.dispose()
        if not database.is_sqlite:
            request.getfixturevalue("postgres").drop(
                database.engine.url.render_as_string(hide_password=False)
            )


def filled(database: Database) -> dict[str, Any]:
    """Rows of all kinds, and a blob of several chunks; nobody works on a job any more."""
    fill(database)
    with database.write() as session:
        blobs.add(session, bytes(range(256)) * (CHUNK_BYTES // 100))
        for row in jobs.running(session):
            row.leased_until = row.created_at
    return facts(database)


@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize("to", ["sqlite", "postgresql"])
def test_what_comes_back_is_what_was_there(
    database: Database, to: str, others: Callable[[str], Database], tmp_path: Path
) -> None:
    was, file = filled(database), tmp_path / "a backup.db"
    assert backup(database, file) == file.stat().st_size > CHUNK_BYTES
    assert sorted(path.name for path in tmp_path.glob("*backup*")) == ["a backup.db"]
    other = others(to)
    assert restore(other, file) > 50
    assert facts(other) == was
    SqlRecords(other, WORKLOAD, DEVICE, spec={}).append(micro_kernel(1))  # its numbers go on
    with other.write() as session:
        submit(session, "new")
    assert facts(database) == was


@pytest.mark.thorough
def test_a_backup_while_others_write_is_of_one_moment(database: Database, tmp_path: Path) -> None:
    job_id, stop = job_in(database, JobState.RUNNING), threading.Event()
    store = SqlRecords(database, WORKLOAD, DEVICE, spec={}, job_id=job_id)

    def write() -> None:
        rows = 0
        while not stop.is_set():
            rows += 1
            store.append(micro_kernel(rows))  # a row and the job's count, together

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(5):
            backup(database, tmp_path / f"{number}.db")
    finally:
        stop.set()
        writer.join()
    for number in range(5):
        with closing(sqlite3.connect(tmp_path / f"{number}.db")) as copy:
            (measured,) = copy.execute("SELECT measured FROM jobs").fetchone()
            assert copy.execute("SELECT count(*) FROM tuning_records").fetchone() == (measured,)
            assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_database_with_rows_is_replaced_only_by_force(
    database: Database, others: Callable[[str], Database], tmp_path: Path, kind: str
) -> None:
    was, file = filled(database), tmp_path / "backup.db"
    backup(database, file)
    other = others(kind)
    other.upgrade()
    job_id = job_in(other, JobState.QUEUED)
    with pytest.raises(ConflictError, match=r"not empty, there are rows in .*--force") as caught:
        restore(other, file)
    assert "\n" not in str(caught.value)
    with other.write() as session:
        assert jobs.get(session, job_id).state == "queued"
        jobs.claim(session, job_id, "me")
    for force in (False, True):
        with pytest.raises(ConflictError, match=f"a worker holds job {job_id}; stop the servers first"):
            restore(other, file, force=force)
    with other.write() as session:
        assert jobs.finish(session, job_id, JobState.QUEUED)
    restore(other, file, force=True)
    assert facts(other) == was


def test_a_restore_that_fails_loses_nothing(
    database: Database, others: Callable[[str], Database], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    was, file = filled(database), tmp_path / "backup.db"
    other = others("sqlite")
    other.upgrade()
    job_in(other, JobState.QUEUED)
    backup(other, file)
    real = backup_module.copy_rows

    def fails(*arguments: Any) -> int:
        real(*arguments)
        raise StoreError("the disk is full")

    monkeypatch.setattr(backup_module, "copy_rows", fails)
    with pytest.raises(StoreError, match="the disk is full"):
        restore(database, file, force=True)
    assert facts(database) == was


@pytest.mark.sampled(keep=5)
@pytest.mark.parametrize("revision", sorted(path.stem for path in REVISIONS.glob("*.sql")))
def test_a_backup_of_an_older_version(
    revision: str, others: Callable[[str], Database], tmp_path: Path, kind: str
) -> None:
    """It is upgraded on its way; the file stays as it was."""
    file = tmp_path / "old.db"
    load(REVISIONS / f"{revision}.sql", file)
    before, other = file.read_bytes(), others(kind)
    restore(other, file)
    assert other.at_head() and len(facts(other)["jobs"]) == 7
    assert file.read_bytes() == before


def test_an_older_database_is_backed_up_as_it_is(
    others: Callable[[str], Database], tmp_path: Path, kind: str
) -> None:
    """So that somebody who has the new version already can still do so before the upgrade."""
    old = others(kind)
    old.upgrade("0002")
    with old.begin() as connection:
        row = {
            "d": "sha256:" + "0" * 64,
            "t": "2026-01-01 00:00:00+00:00" if kind != "sqlite" else "2026-01-01 00:00:00.000000",
        }
        connection.execute(text(f"INSERT INTO blobs VALUES ('{row['d']}', 0, '{row['t']}')"))
    backup(old, tmp_path / "backup.db")
    assert old.revision() == "0002"
    copy = Database(f"sqlite:///{tmp_path / 'backup.db'}")
    assert copy.revision() == "0002"
    copy.dispose()
    new = others(kind)
    assert restore(new, tmp_path / "backup.db") == 1 and new.at_head()


def spoilt(data: bytes) -> bytes:
    return data[: len(data) // 2] + bytes(4096) + data[len(data) // 2 + 4096 :]


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data: b"", "no backup of dietcode"),
        (lambda data: b"a letter to a friend\n" * 400, "no backup of dietcode"),
        (lambda data: data[: len(data) // 2], "no backup of dietcode|damaged"),
        (spoilt, "no backup of dietcode|damaged"),
    ],
)
def test_what_is_no_backup(
    database: Database, others: Callable[[str], Database], tmp_path: Path, change: Any, says: str
) -> None:
    file = tmp_path / "backup.db"
    filled(database)
    backup(database, file)
    file.write_bytes(change(file.read_bytes()))
    other = others("sqlite")
    with pytest.raises(RequestError, match=says) as caught:
        restore(other, file)
    assert "\n" not in str(caught.value) and str(file) in str(caught.value)
    assert not Path(str(other.location)).exists()


def test_an_older_database_is_as_it_was_where_nothing_is_restored(
    database: Database, others: Callable[[str], Database], tmp_path: Path, kind: str
) -> None:
    backup(database, tmp_path / "backup.db")
    old = others(kind)
    old.upgrade("0002")
    for force in (False, True):
        with pytest.raises(StoreError, match="run `dietcode db upgrade`"):
            restore(old, tmp_path / "backup.db", force=force)
        assert old.revision() == "0002"


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("CREATE TRIGGER acts AFTER UPDATE ON jobs BEGIN DELETE FROM tokens; END", "the trigger 'acts'"),
        ("CREATE VIEW shows AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i", "view"),
        ("CREATE VIRTUAL TABLE finds USING fts5(text)", "the virtual table 'finds'"),
        (
            "CREATE TRIGGER dispatch_explained AFTER UPDATE ON jobs BEGIN DELETE FROM tokens; END",
            "the trigger 'dispatch_explained'",
        ),
        # Each reading of a row would take as long, and as much memory.
        (
            "ALTER TABLE jobs ADD COLUMN more TEXT AS (hex(zeroblob(300000000))) VIRTUAL",
            "the computed column 'more'",
        ),
        ("CREATE INDEX finds ON jobs (id, hex(zeroblob(100000)))", "the computed index 'finds'"),
    ],
)
def test_a_file_that_acts_as_it_is_read_is_no_backup(
    database: Database, others: Callable[[str], Database], tmp_path: Path, statement: str, says: str
) -> None:
    file = tmp_path / "backup.db"
    filled(database)
    backup(database, file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600, "tokens' digests and everybody's specs are in it"
    with closing(sqlite3.connect(file)) as made:
        made.execute(statement)
    with pytest.raises(RequestError, match=f"no backup of dietcode: it has .*{says}"):
        restore(others("sqlite"), file)


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("UPDATE workloads SET spec = '{'", "JSONDecodeError"),
        (f"UPDATE workloads SET spec = '{'[' * 200_000}{']' * 200_000}'", "RecursionError"),
        ("UPDATE jobs SET created_at = 'yesterday'", "Invalid isoformat"),
        ("UPDATE jobs SET created_at = 9e99", "fromisoformat"),
        ("UPDATE jobs SET measured = 'many'", r"jobs\.measured is a str"),
        ("UPDATE jobs SET measured = zeroblob(9)", r"jobs\.measured is a bytes"),
        ("UPDATE jobs SET owner = x'ff00'", r"jobs\.owner is a bytes"),
        ("DELETE FROM alembic_version", "it names 0 schemas"),
        ("INSERT INTO alembic_version VALUES ('0003')", "it names 2 schemas"),
        ('CREATE TABLE "a\nb\x1b" (id INTEGER PRIMARY KEY)', "it has a table 'a.nb.x1b'"),
        ("ALTER TABLE tokens ADD COLUMN more TEXT", "tokens has a column 'more'"),
    ],
)
def test_rows_that_no_server_wrote_are_refused(
    database: Database, others: Callable[[str], Database], tmp_path: Path, statement: str, says: str
) -> None:
    file = tmp_path / "backup.db"
    filled(database)
    backup(database, file)
    with closing(sqlite3.connect(file, isolation_level=None)) as made:
        made.execute("PRAGMA ignore_check_constraints = ON")
        made.execute(statement)
    other = others("sqlite")
    other.upgrade()
    with pytest.raises(RequestError, match=f"the backup is damaged: .*{says}") as caught:
        restore(other, file)
    assert str(caught.value).isprintable()
    with other.read() as session:
        assert jobs.list_jobs(session)[0] == []


@pytest.mark.parametrize("kind", ["sqlite"])
def test_files_that_are_not_taken(database: Database, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="cannot be read"):
        restore(database, tmp_path / "nowhere.db")
    with pytest.raises(RequestError, match="the database itself"):
        backup(database, tmp_path / "dietcode.db")
    with pytest.raises(DietCodeError, match="cannot be written"):
        backup(database, tmp_path / "no" / "folder.db")
    empty = Database(f"sqlite:///{tmp_path / 'empty.db'}")
    with pytest.raises(StoreError, match="nothing to back up"):
        backup(empty, tmp_path / "backup.db")
    empty.dispose()
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("CREATE TABLE mine (x)")
    with pytest.raises(RequestError, match="it lacks the tables"):
        restore(database, tmp_path / "other.db")
    backup(database, tmp_path / "newer.db")
    with closing(sqlite3.connect(tmp_path / "newer.db", isolation_level=None)) as newer:
        newer.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreError, match="'9999' is newer"):
        restore(database, tmp_path / "newer.db")


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_full_disk_leaves_the_older_backup(
    database: Database, mount_disk: Callable[[str], Path | None], tmp_path: Path
) -> None:
    disk = mount_disk("2m")
    if disk is None:
        return
    backup(database, disk / "backup.db")
    before = (disk / "backup.db").read_bytes()
    with database.write() as session:
        blobs.add(session, bytes(4 << 20))
    with pytest.raises(DietCodeError, match=r"cannot be written: .*full"):
        backup(database, disk / "backup.db")
    assert (disk / "backup.db").read_bytes() == before and len(list(disk.iterdir())) == 1
    shutil.copy(disk / "backup.db", tmp_path / "copy.db")


def test_a_database_that_a_runner_announced_itself_in_is_in_use(database: Database, tmp_path: Path) -> None:
    def announce(lease_secs: float) -> None:
        with database.write() as session:
            assert runners.announce(
                session,
                name="rack1",
                process="rack1/1/1.00",
                engine="local",
                version="1",
                devices=[],
                started_at=clock(session),
                lease_secs=lease_secs,
            )

    file = tmp_path / "b.db"
    announce(60.0)
    backup(database, file)
    with pytest.raises(ConflictError, match="runner rack1 uses it; stop the servers and workers first"):
        restore(database, file, force=True)
    announce(-1.0)
    assert restore(database, file) == 0, "who was there then is not there now, and keeps no database"
    with database.read() as session:
        assert runners.live(session) == []
