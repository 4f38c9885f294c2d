"""What the dashboard asks of both kinds of database: names with newest versions, and what awaits a spec."""

from __future__ import annotations

from plain_server import plain_files
from small_libraries import spec_data

from dietcode.workload.identity import workload_digest
from dietcode.workload.parse import spec_from_data
from dietcode_server.store import jobs, libraries
from dietcode_server.store.database import Database
from dietcode_server.store.library_names import list_names
from dietcode_server.store.outlook import Outlook, outlook
from dietcode_server.store.subjects import utc_now
from dietcode_server.store.tables import TuningRecord

DEVICE = ("cpu0", "A test CPU", {"kind": "llvm", "mcpu": "test"})


def publish(database: Database, name: str, *codes: bytes) -> None:
    for code in codes:
        with database.write() as session:
            libraries.publish(session, job=None, device_name="a CPU", files=plain_files(name, code))


def test_names_have_their_newest_version(database: Database) -> None:
    publish(database, "b", b"1", b"2", b"3")
    publish(database, "a_b", b"1")
    publish(database, "c", b"1")
    with database.write() as session:
        libraries.yank(session, "b", 3)
        libraries.yank(session, "c", 1)

    def listed(**options: object) -> tuple[list[tuple[str, int, int]], str | None]:
        with database.read() as session:
            found, following = list_names(session, **options)  # type: ignore[arg-type]
            return [(one.newest.name, one.newest.version, one.num_versions) for one in found], following

    assert listed() == ([("a_b", 1, 1), ("b", 2, 2)], None)
    assert listed(include_yanked=True)[0] == [("a_b", 1, 1), ("b", 3, 3), ("c", 1, 1)]
    assert listed(limit=1) == ([("a_b", 1, 1)], "a_b")
    assert listed(limit=1, after="a_b") == ([("b", 2, 2)], None)
    assert listed(search="_B")[0] == [("a_b", 1, 1)]
    for odd in ("%", "\0", "\\", "'"):
        assert listed(search=odd, after=odd if odd == "\0" else "") == ([], None)


def test_what_awaits_a_spec(database: Database) -> None:
    spec = spec_from_data(spec_data())
    options = {"target": DEVICE[2], "measure": True, "owner": "alice"}

    def ahead(**changes: object) -> Outlook:
        with database.read() as session:
            found = outlook(session, **({"spec": spec, "device_id": "cpu0"} | options | changes))  # type: ignore[arg-type]
            session.expunge_all()
            return found

    assert ahead() == Outlook(0, 0, None)
    with database.write() as session:
        row, _ = jobs.submit(
            session,
            spec=spec,
            target=DEVICE[2],
            device=DEVICE,
            runnable=True,
            force=False,
            idempotency_key=None,
            owner="alice",
        )
        job_id = row.id
        for name, error in (("2x16", None), ("2x16", None), ("4x16", None), ("8x16", "wrong"), (None, None)):
            session.add(
                TuningRecord(
                    workload=workload_digest(spec),
                    device_id="cpu0",
                    kind="micro_kernel" if name else "calibration",
                    micro_kernel=name,
                    error=error,
                    line={},
                    created_at=utc_now(),
                )
            )
    found = ahead()
    assert (found.num_known, found.num_before) == (2, 1), "each micro-kernel once, and those that worked"
    assert found.job is not None and found.job.id == job_id
    assert ahead(device_id=None).num_known == ahead(device_id="cpu1").num_before == 0
    assert ahead(measure=False).job is None and ahead(target={"kind": "llvm", "mcpu": "other"}).job is None
    with database.write() as session:
        jobs.request_cancel(session, job_id)
    assert ahead(owner="bob").job is None, "nobody but its owner could resume it"
    again = ahead()
    assert again.job is not None and again.num_before == 0
