"""Publishing: versions, all or nothing, and the reasons for the dispatch in SQL."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from small_libraries import as_served, library_bytes, with_manifest
from sqlalchemy import func, select, text
from sqlalchemy.exc import IntegrityError
from store_helpers import job_in, library_files

from dietcode.errors import LibraryError, NotFoundError
from dietcode.protocol import JobState
from dietcode_server.store import blobs, jobs, libraries, wire
from dietcode_server.store.database import Database
from dietcode_server.store.tables import Base, LibraryFile, LibraryRow


def publish(database: Database, files: dict[str, bytes], **options: Any) -> LibraryRow:
    with database.write() as session:
        return libraries.publish(session, **({"job": None, "device_name": "a CPU", "files": files} | options))


def contents(database: Database) -> dict[str, int]:
    """Number of rows of each table."""
    with database.read() as session:
        return {
            name: session.execute(select(func.count()).select_from(table)).scalar_one()
            for name, table in Base.metadata.tables.items()
        }


def test_a_published_library(database: Database) -> None:
    job_id = job_in(database, JobState.RUNNING)
    with database.read() as session:
        job = jobs.get(session, job_id)
    files = as_served(library_files())
    row = publish(database, files, job=job)
    with database.read() as session:
        info = wire.library_to_wire(session, libraries.get(session, "dense"))
        assert libraries.manifest_bytes(session, row) == files["manifest.json"]
        kept = {
            file.path: b"".join(blobs.read(session, file.digest))
            for file in session.scalars(select(LibraryFile).where(LibraryFile.library_id == row.id))
        }
    assert kept == files
    assert info.model_dump(exclude={"created_at"}) == {
        "kind": "library",
        "name": "dense",
        "version": 1,
        "owner": "local",
        "job": job_id,
        "workload": "sha256:" + "ab" * 32,
        "device": "a CPU",
        "target": {"kind": "llvm", "mcpu": "test"},
        "num_micro_kernels": 2,
        "size_bytes": sum(len(data) for path, data in files.items() if not path.startswith("blobs/")),
        "manifest": {
            "sha256": f"sha256:{hashlib.sha256(files['manifest.json']).hexdigest()}",
            "size_bytes": len(files["manifest.json"]),
        },
        "yanked_at": None,
        "standing": None,
    }
    assert abs((datetime.now(UTC) - info.created_at).total_seconds()) < 60


def test_a_library_that_was_really_built(database: Database) -> None:
    files = as_served(library_bytes("dense"))
    row = publish(database, files)
    report = json.loads(files["report.json"])
    with database.read() as session:
        assert libraries.manifest_bytes(session, row) == files["manifest.json"]
        served = session.execute(
            text("SELECT first_variable, category FROM dispatch_explained ORDER BY 1")
        ).all()
    assert [tuple(pair) for pair in served] == [
        (i["shape_vars"]["T"], i["category"]) for i in report["instances"]
    ]


def test_which_kernel_serves_t_5_and_why(database: Database) -> None:
    publish(database, library_files(code=b"older"))
    publish(database, library_files())
    publish(database, library_files("other"))
    with database.read() as session:
        answer = session.execute(
            text(
                "SELECT micro_kernel, category, f_local, f_spatial, f_pad, predicted_gflops, "
                "best_micro_kernel, best_predicted_gflops, predicted_loss, object_bytes, provenance "
                "FROM dispatch_explained "
                "WHERE library = 'dense' AND version = 2 AND first_variable = 5"
            )
        ).one()
        rows = session.execute(text("SELECT first_variable, micro_kernel FROM dispatch_explained")).all()
    assert tuple(answer) == (
        *("4x32", 1, 2e9, 0.75, 0.9, 30.0),
        *("6x16", 40.0, 0.25, 1234, "mutation of 3x16"),
    )
    assert sorted(map(tuple, rows)) == sorted(
        (t, "3x16" if t <= 4 else "4x32") for t in range(1, 9) for _ in range(3)
    )


def test_micro_kernels_that_were_not_chosen_are_there_too(database: Database) -> None:
    publish(database, library_files())
    with database.read() as session:
        rows = session.execute(text("SELECT micro_kernel, category FROM micro_kernels ORDER BY 1")).all()
        threshold = LibraryRow.dispatch_rule["root"]["threshold"].as_integer()
        rule = session.execute(select(threshold)).scalar_one()
    assert [tuple(row) for row in rows] == [("3x16", 0), ("4x32", 1), ("6x16", None)]
    assert rule == 4


def test_versions_count_up_for_each_name(database: Database) -> None:
    published = [
        publish(database, library_files(name, code=code))
        for name, code in [("dense", b"1"), ("dense", b"2"), ("other", b"1"), ("dense", b"3")]
    ]
    assert [(row.name, row.version) for row in published] == [
        ("dense", 1),
        ("dense", 2),
        ("other", 1),
        ("dense", 3),
    ]
    with database.read() as session:
        for row in published:
            assert libraries.get(session, row.name, row.version).id == row.id
        assert libraries.get(session, "dense").version == 3


def test_the_same_bytes_again_are_the_same_version(database: Database) -> None:
    first = publish(database, library_files())
    before = contents(database)
    assert publish(database, library_files()).id == first.id
    assert contents(database) == before
    second = publish(database, library_files(code=b"new"))
    third = publish(database, library_files())  # not the newest any more: a version of its own
    assert (second.version, third.version, third.manifest_digest) == (2, 3, first.manifest_digest)
    assert contents(database)["blobs"] == before["blobs"] + 2  # code and manifest of the second


def test_versions_share_what_they_have_in_common(database: Database) -> None:
    publish(database, library_files())
    publish(database, library_files("other"))
    with database.read() as session:
        digests = session.execute(
            text("SELECT count(DISTINCT digest) FROM library_files WHERE path = 'library.so'")
        ).scalar_one()
    assert digests == 1


def test_threads_publish_at_once(database: Database) -> None:
    with ThreadPoolExecutor(6) as pool:
        rows = list(pool.map(lambda n: publish(database, library_files(code=bytes([n]))), range(6)))
    assert sorted(row.version for row in rows) == [1, 2, 3, 4, 5, 6]


def without(path: str) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    return lambda files: {name: data for name, data in files.items() if name != path}


def changed(path: str, data: bytes) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    return lambda files: files | {path: data}


def remade(**manifest_changes: Any) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    def change(files: dict[str, bytes]) -> dict[str, bytes]:
        listed = {path: files[path] for path in ("library.so", "dispatch.json", "report.json")}
        return with_manifest(listed, **manifest_changes)

    return change


def reported(**changes: Any) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    return lambda _: library_files(**changes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("manifest.json"), "manifest.json: missing"),
        (without("report.json"), "report.json: missing"),
        (without("library.so"), "library.so: missing, but the manifest lists it"),
        (lambda files: {k: v for k, v in files.items() if "blobs" not in k}, "blobs/sha256-.*: missing"),
        (changed("library.so", b"edoc"), "library.so: not what the manifest lists"),
        (changed("dispatch.json", b"{}"), "dispatch.json: not what the manifest lists"),
        (changed("manifest.json", b"{"), "manifest.json: missing, or not JSON"),
        (changed("manifest.json", b"[]"), "manifest.json: not a JSON object"),
        (changed("manifest.json", b"{}"), "'runtime' is missing"),
        (changed("more", b""), "'more': the manifest does not list it"),
        (remade(files={}), "must list dispatch.json, library.so, report.json"),
        (remade(runtime={"sha256": "../../etc/passwd", "bytes": 1}), "is not a digest"),
        (remade(variable_order=["Q"]), "'Q' is missing"),
        (remade(variable_order=[]), "out of range"),
        (reported(instances=[{"shape_vars": {"T": 1}}]), "'category' is missing"),
        (reported(instances=[{"category": 7}]), "dispatch.json has no category 7"),
        (reported(instances=None), "not iterable"),
        (reported(micro_kernels=[]), "report.json does not describe micro-kernel '3x16'"),
    ],
)
def test_files_that_do_not_fit(database: Database, change: Any, message: str) -> None:
    before = contents(database)
    with pytest.raises(LibraryError, match=message) as caught:
        publish(database, change(library_files()))
    assert "\n" not in str(caught.value)
    assert contents(database) == before


# What makes a late insert fail, when other rows are in the transaction already.
BREAKS = {
    "blob_chunks": "new.data = x'636f6465'",
    "library_files": "1 = 1",
    "micro_kernels": "new.category = 1",
    "dispatch_table": "new.position = 7",
}


def trigger(kind: str, table: str) -> tuple[list[str], str]:
    """Statements that make an insert fail, and the one that ends it."""
    if kind == "sqlite":
        when = f"CREATE TRIGGER t BEFORE INSERT ON {table} WHEN {BREAKS[table]}"
        return [f"{when} BEGIN SELECT RAISE(ABORT, 'no'); END"], "DROP TRIGGER t"
    condition = BREAKS[table].replace("x'636f6465'", "'code'::bytea")
    body = (
        f"BEGIN IF {condition} THEN RAISE EXCEPTION 'no' USING ERRCODE = 'integrity_constraint_violation'; "
        "END IF; RETURN new; END"
    )
    made = [
        f"CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$",
        f"CREATE TRIGGER t BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION no()",
    ]
    return made, "DROP FUNCTION no() CASCADE"


@pytest.mark.parametrize("table", BREAKS)
@pytest.mark.parametrize("goes_on", [False, True], ids=["the session ends", "the session goes on"])
def test_a_failure_midway_leaves_nothing(database: Database, kind: str, table: str, goes_on: bool) -> None:
    job_id = job_in(database, JobState.RUNNING)
    before = contents(database)
    made, unmade = trigger(kind, table)
    with database.begin() as connection:
        for statement in made:
            connection.exec_driver_sql(statement)
    if goes_on:
        with database.write() as session:
            with pytest.raises(IntegrityError):
                libraries.publish(session, job=None, device_name="a CPU", files=library_files())
            assert jobs.finish(session, job_id, JobState.FAILED, error="not published")
        before["events"] += 1
    else:
        with pytest.raises(IntegrityError):
            publish(database, library_files())
    assert contents(database) == before
    with database.begin() as connection:
        connection.exec_driver_sql(unmade)
    assert publish(database, library_files()).version == 1


def test_no_such_library(database: Database) -> None:
    with (
        database.read() as session,
        pytest.raises(NotFoundError, match=r"^'dense': no such library; none is published yet$"),
    ):
        libraries.get(session, "dense")
    publish(database, library_files("dense"))
    with (
        database.read() as session,
        pytest.raises(NotFoundError, match=r"^dense@2: no such version; there is 1$"),
    ):
        libraries.get(session, "dense", 2)
    for code in (b"2", b"3"):
        publish(database, library_files("dense", code=code))
    publish(database, library_files("another"))
    with database.read() as session:
        with pytest.raises(NotFoundError, match=r"^'x': no such library; there are another, dense$"):
            libraries.get(session, "x")
        for version in (0, -1, 4, 1 << 31, 1 << 200):
            with pytest.raises(NotFoundError, match=r"no such version; there are 1 to 3$") as caught:
                libraries.get(session, "dense", version)
            assert len(str(caught.value)) < 100


def test_many_names_are_not_all_told(database: Database) -> None:
    for index in range(12):
        publish(database, library_files(f"lib{index:02}"))
    with (
        pytest.raises(NotFoundError, match=r"there are lib00, .*, lib09 and more$"),
        database.read() as session,
    ):
        libraries.get(session, "x")


def test_pages_of_libraries(database: Database) -> None:
    made = [
        publish(database, library_files(name, code=bytes([n])))
        for n in range(3)
        for name in ("dense", "other")
    ]
    seen, cursor = [], None
    for _ in range(3):
        with database.read() as session:
            rows, cursor = libraries.list_libraries(session, limit=2, cursor=cursor)
        seen += [row.id for row in rows]
        publish(database, library_files("later", code=bytes([len(seen)])))
    assert cursor is None
    assert seen == [row.id for row in reversed(made)]
    with database.read() as session:
        rows, cursor = libraries.list_libraries(session, name="other")
        assert libraries.list_libraries(session, name="nothing") == ([], None)
    assert cursor is None and [(row.name, row.version) for row in rows] == [
        ("other", 3),
        ("other", 2),
        ("other", 1),
    ]
