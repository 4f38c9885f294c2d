"""Jobs: submission, every change of state, claims, events and pages."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from small_libraries import spec_data
from store_helpers import DEVICE, go, job_in, start, submit

from dietcode.errors import ConflictError, DietCodeError, NotFoundError, RequestError
from dietcode.protocol import FINAL_STATES, Job, JobState, Progress
from dietcode.workload.identity import job_digest, workload_digest
from dietcode.workload.parse import spec_from_data
from dietcode_server.store import events as job_events
from dietcode_server.store import jobs, libraries, wire
from dietcode_server.store.database import Database
from dietcode_server.store.tables import Device, Workload

Q, W, R, I, S, F, C = (  # noqa: E741
    JobState.QUEUED,
    JobState.WAITING_FOR_RUNNER,
    JobState.RUNNING,
    JobState.INTERRUPTED,
    JobState.SUCCEEDED,
    JobState.FAILED,
    JobState.CANCELLED,
)
ALL = tuple(JobState)


def job(database: Database, job_id: str) -> Job:
    with database.read() as session:
        return wire.to_wire(session, jobs.get(session, job_id))


def states(database: Database, job_id: str) -> list[tuple[JobState | None, str]]:
    """State and message of each state event; checks that the numbers have no gaps."""
    with database.read() as session:
        events = [wire.event_to_wire(row) for row in job_events.events_after(session, job_id, 0)]
    assert [event.id for event in events] == list(range(1, len(events) + 1))
    return [(event.state, event.message) for event in events if event.kind == "state"]


def test_a_new_job(database: Database) -> None:
    now = datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    with database.write() as session:
        row, new = submit(session, now=now)
    assert new
    spec = spec_from_data(spec_data("dense"))
    assert row.digest == job_digest(spec, {"kind": "llvm", "mcpu": "test"})
    made = job(database, row.id)
    assert made.model_dump() == {
        "id": row.id,
        "name": "dense",
        "state": Q,
        "workload": workload_digest(spec),
        "device_id": "cpu0",
        "device": "A test CPU",
        "target": {"kind": "llvm", "mcpu": "test"},
        "spec": spec.to_json(),
        "force": False,
        "measure": True,
        "attempt": 0,
        "measured": 0,
        "cancel_requested": False,
        "progress": None,
        "error": None,
        "library": None,
        "created_at": now,
        "started_at": None,
        "finished_at": None,
        "updated_at": now,
    }
    assert len(row.id) == 16 and set(row.id) <= set("0123456789abcdef")
    assert list(made.spec["tensors"]) == ["X", "W"]  # their order matters
    assert states(database, row.id) == [(Q, "")]
    with database.read() as session:
        assert session.get_one(Workload, made.workload).spec == spec.to_json()
        assert session.get_one(Device, "cpu0").name == DEVICE[1]


def test_a_job_without_a_runner_or_a_device_waits(database: Database) -> None:
    with database.write() as session:
        row, _ = submit(session, device=None, runnable=False)
        assert jobs.next_queued(session) is None
    made = job(database, row.id)
    assert (made.state, made.device_id, made.device) == (W, None, None)
    assert states(database, row.id) == [(W, "")]


@pytest.mark.parametrize("state", ALL)
def test_the_same_request_gives_the_same_job_whatever_its_state(database: Database, state: JobState) -> None:
    with database.write() as session:
        row, _ = submit(session, runnable=state != W)
        if state not in {Q, W}:
            jobs.claim(session, row.id, "me")
        if state not in {Q, W, R}:
            jobs.finish(session, row.id, state)
        again, new = submit(session)
    assert (again.id, new, again.state) == (row.id, False, state.value)


def test_force_makes_a_new_job_each_time(database: Database) -> None:
    with database.write() as session:
        first, _ = submit(session)
        forced, new = submit(session, force=True)
        another, new_too = submit(session, force=True)
        again, new_again = submit(session)
    assert new and new_too and not new_again
    assert len({first.id, forced.id, another.id}) == 3
    assert again.id == another.id  # the newest measurements


def test_another_name_or_target_is_another_job_on_the_same_workload(database: Database) -> None:
    with database.write() as session:
        rows = [
            submit(session)[0],
            submit(session, "other")[0],
            submit(session, target={"kind": "llvm", "mcpu": "another"})[0],
        ]
    assert len({row.id for row in rows}) == 3
    assert len({row.workload for row in rows}) == 1


@pytest.mark.parametrize("force", [False, True])
def test_an_idempotency_key_gives_its_job_again(database: Database, force: bool) -> None:
    with database.write() as session:
        row, new = submit(session, idempotency_key="k", force=force)
        again, new_again = submit(session, idempotency_key="k", force=force)
        other, _ = submit(session, idempotency_key="another", force=True)
    assert (new, new_again, again.id) == (True, False, row.id)
    assert other.id != row.id


@pytest.mark.parametrize("change", [{"force": True}, {"name": "other"}, {"target": {"kind": "llvm"}}])
def test_an_idempotency_key_of_another_request(database: Database, change: dict[str, Any]) -> None:
    with database.write() as session:
        row, _ = submit(session, idempotency_key="k")
    with (
        pytest.raises(ConflictError, match=rf"Idempotency-Key 'k' was used.*{row.id}"),
        database.write() as session,
    ):
        submit(session, idempotency_key="k", **change)
    with database.read() as session:
        assert len(jobs.list_jobs(session)[0]) == 1


def test_a_key_that_found_a_known_job_belongs_to_it_from_then_on(database: Database) -> None:
    with database.write() as session:
        row, _ = submit(session)
        assert submit(session, idempotency_key="k")[0].id == row.id
        assert submit(session, idempotency_key="another")[0].id == row.id
    with pytest.raises(ConflictError), database.write() as session:
        submit(session, "other", idempotency_key="k")


@pytest.mark.parametrize("job_id", ["", "0123456789abcdef", "x" * 10_000, "'; DROP TABLE jobs", "\x00"])
def test_no_such_job(database: Database, job_id: str) -> None:
    calls: list[Any] = [
        lambda session: jobs.get(session, job_id),
        lambda session: jobs.request_cancel(session, job_id),
        lambda session: jobs.resume(session, job_id),
        lambda session: jobs.finish(session, job_id, F),
        lambda session: jobs.add_progress(session, job_id, Progress(stage="seed", message="")),
    ]
    for call in calls:
        with (
            pytest.raises(NotFoundError, match=r"no such job; `dietcode jobs` lists them") as caught,
            database.write() as session,
        ):
            call(session)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 200
    with database.write() as session:
        assert not jobs.claim(session, job_id, "me")
        assert not jobs.heartbeat(session, job_id, "me")
        assert job_events.events_after(session, job_id, 0) == []


CANCEL = {Q: C, W: C, I: C, R: R, C: C, S: ConflictError, F: ConflictError}
RESUME = {I: Q, F: Q, C: Q, Q: Q, R: R, W: Q, S: ConflictError}
RESUME_WITHOUT_RUNNER = RESUME | {I: W, F: W, C: W, W: W}


@pytest.mark.parametrize("before", ALL)
@pytest.mark.parametrize(
    ("call", "table"),
    [
        (jobs.request_cancel, CANCEL),
        (jobs.resume, RESUME),
        (lambda session, job_id: jobs.resume(session, job_id, runnable=False), RESUME_WITHOUT_RUNNER),
    ],
    ids=["cancel", "resume", "resume without a runner"],
)
def test_what_people_ask_for(
    database: Database, call: Any, table: dict[JobState, Any], before: JobState
) -> None:
    job_id = job_in(database, before)
    was, events = job(database, job_id), states(database, job_id)
    after = table[before]
    if after is ConflictError:
        with (
            pytest.raises(ConflictError, match=rf"{job_id}.* has {before.value} already;"),
            database.write() as session,
        ):
            call(session, job_id)
        assert (job(database, job_id), states(database, job_id)) == (was, events)
        return
    with database.write() as session:
        row = call(session, job_id)
    now = job(database, job_id)
    assert row.state == after.value == now.state.value
    if after == before:
        changed = (
            {"cancel_requested": True, "updated_at": now.updated_at} if call is jobs.request_cancel else {}
        )
        assert now == was.model_copy(update=changed if before == R else {})
        assert states(database, job_id) == events
        return
    assert states(database, job_id) == [
        *events,
        (after, "resumed" if call is not jobs.request_cancel else ""),
    ]
    assert (now.finished_at is not None) == (after in FINAL_STATES)
    assert now.error is None and not now.cancel_requested
    assert (now.attempt, now.started_at) == (was.attempt, was.started_at)


@pytest.mark.parametrize("before", ALL)
def test_a_claim(database: Database, before: JobState) -> None:
    job_id = job_in(database, before)
    was, events = job(database, job_id), states(database, job_id)
    now = datetime.now(timezone.utc)
    with database.write() as session:
        claimed = jobs.claim(session, job_id, "host/1/2", now=now)
    assert claimed == (before == Q)
    if not claimed:
        assert (job(database, job_id), states(database, job_id)) == (was, events)
        return
    after = job(database, job_id)
    assert (after.state, after.attempt, after.started_at, after.updated_at) == (R, 1, now, now)
    assert states(database, job_id) == [*events, (R, "")]
    with database.read() as session:
        row = jobs.get(session, job_id)
        assert (row.runner, row.heartbeat_at) == ("host/1/2", now)


@pytest.mark.parametrize("before", ALL)
@pytest.mark.parametrize("after", ALL)
def test_the_end_of_a_run(database: Database, before: JobState, after: JobState) -> None:
    job_id = job_in(database, before)
    was, events = job(database, job_id), states(database, job_id)
    now = datetime.now(timezone.utc)
    if after == R:
        with pytest.raises(ValueError, match="cannot end"), database.write() as session:
            jobs.finish(session, job_id, after)
        return
    with database.write() as session:
        applied = jobs.finish(session, job_id, after, error="a\nreason", now=now)
    assert applied == (before == R)
    if not applied:
        assert (job(database, job_id), states(database, job_id)) == (was, events)
        return
    is_now = job(database, job_id)
    assert is_now.state == after
    assert is_now.finished_at == (now if after in FINAL_STATES else None)
    assert is_now.error == (None if after in {Q, W} else "a reason")
    assert states(database, job_id) == [*events, (after, "a reason")]
    with database.read() as session:
        assert jobs.get(session, job_id).runner is None
        assert jobs.running(session) == []


@pytest.mark.parametrize("runner", ["another", ""])
def test_only_the_runner_that_holds_a_job_ends_it(database: Database, runner: str) -> None:
    job_id = job_in(database, R)
    with database.write() as session:
        assert not jobs.finish(session, job_id, F, runner=runner)
        assert not jobs.heartbeat(session, job_id, runner)
        assert jobs.get(session, job_id).state == "running"
        assert jobs.finish(session, job_id, F, runner="me")
        assert not jobs.heartbeat(session, job_id, "me")


@pytest.mark.parametrize(("after", "becomes"), [(Q, C), (W, C), (I, C), (C, C), (S, S), (F, F)])
def test_a_cancel_that_was_asked_for_is_kept(database: Database, after: JobState, becomes: JobState) -> None:
    job_id = job_in(database, R)
    with database.write() as session:
        jobs.request_cancel(session, job_id)
        jobs.request_cancel(session, job_id)
        assert not jobs.heartbeat(session, job_id, "me")
        assert jobs.finish(session, job_id, after, error="its worker died")
    ended = job(database, job_id)
    assert (ended.state, ended.finished_at is not None) == (becomes, True)
    assert ended.error == (None if becomes == C and after != C else "its worker died")
    assert [state for state, _ in states(database, job_id)] == [Q, R, becomes]


def test_a_heartbeat(database: Database) -> None:
    job_id = job_in(database, R)
    was = job(database, job_id)
    now = datetime.now(timezone.utc) + timedelta(seconds=5)
    with database.write() as session:
        assert jobs.heartbeat(session, job_id, "me", now=now)
    with database.read() as session:
        assert jobs.get(session, job_id).heartbeat_at == now
    assert job(database, job_id) == was  # nothing that people see


def test_a_second_attempt(database: Database) -> None:
    job_id = job_in(database, I)
    first = job(database, job_id)
    with database.write() as session:
        jobs.resume(session, job_id)
        assert jobs.claim(session, job_id, "another")
        assert jobs.finish(session, job_id, Q)  # handed back
        assert jobs.claim(session, job_id, "a third")
    now = job(database, job_id)
    assert (now.attempt, now.started_at) == (3, first.started_at)
    assert [state for state, _ in states(database, job_id)] == [Q, R, I, Q, R, Q, R]


def test_the_library_of_a_job(database: Database) -> None:
    from store_helpers import library_files

    job_id = job_in(database, R)
    with database.write() as session:
        row = jobs.get(session, job_id)
        library = libraries.publish(session, job=row, device_name="cpu", files=library_files("dense"))
        assert jobs.finish(session, job_id, S, library_id=library.id)
    made = job(database, job_id)
    assert made.library is not None and made.library.model_dump() == {"name": "dense", "version": 1}


def test_a_job_that_measures_nothing_is_another_job(database: Database) -> None:
    with database.write() as session:
        measuring, _ = submit(session)
        other, is_new = submit(session, measure=False)
        assert is_new and other.id != measuring.id and other.workload == measuring.workload
        again, is_new = submit(session, measure=False)
        assert not is_new and again.id == other.id
    assert job(database, measuring.id).measure and not job(database, other.id).measure


def test_progress(database: Database) -> None:
    job_id = job_in(database, R)
    steps = [
        Progress(stage="measure", message=f"{n} of 3", done=n, total=3, best_gflops=n / 3) for n in (1, 2)
    ]
    with database.write() as session:
        jobs.add_progress(session, job_id, steps[0], {"micro_kernel": "4x32"})
        jobs.add_progress(session, job_id, steps[1])
        job_events.count_measured(session, job_id)
    now = job(database, job_id)
    assert (now.progress, now.measured, now.state) == (steps[1], 1, R)
    with database.read() as session:
        events = [wire.event_to_wire(row) for row in job_events.events_after(session, job_id, 2)]
    assert [(e.id, e.kind, e.progress, e.state, e.message, e.data) for e in events] == [
        (3, "progress", steps[0], None, "1 of 3", {"micro_kernel": "4x32"}),
        (4, "progress", steps[1], None, "2 of 3", {}),
    ]


def test_events_after_a_number_and_at_most_so_many(database: Database) -> None:
    job_id, other = job_in(database, R), job_in(database, R)
    with database.write() as session:
        for done in range(5):
            jobs.add_progress(session, job_id, Progress(stage="seed", message="", done=done))
    with database.read() as session:
        assert [row.seq for row in job_events.events_after(session, job_id, 3)] == [4, 5, 6, 7]
        assert [row.seq for row in job_events.events_after(session, job_id, 3, limit=2)] == [4, 5]
        assert job_events.events_after(session, job_id, 7) == []
        assert [row.seq for row in job_events.events_after(session, other, 0)] == [1, 2]


def test_the_oldest_of_the_queue_is_next(database: Database) -> None:
    start_at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    with database.write() as session:
        ids = [submit(session, force=True, now=start_at - timedelta(days=n))[0].id for n in range(3)]
        order = []
        while (row := jobs.next_queued(session)) is not None:
            order.append(row.id)
            assert jobs.claim(session, row.id, f"runner {row.id}")
        assert order == ids[::-1]
        assert [row.id for row in jobs.running(session)] == ids[::-1]


def test_two_processes_claim_the_same_jobs(database: Database, url: str) -> None:
    ids = [job_in(database, Q) for _ in range(40)]
    first, second = go(*(start("claim", url, runner, *ids) for runner in ("first", "second")))
    assert sorted(first + second) == sorted(ids)  # each by one of them
    with database.read() as session:
        for row in jobs.running(session):
            assert row.id in (first if row.runner == "first" else second)
            assert row.attempt == 1
    assert all([state for state, _ in states(database, job_id)] == [Q, R] for job_id in ids)


def test_threads_claim_the_same_job(database: Database) -> None:
    job_id = job_in(database, Q)
    begin = threading.Barrier(8)

    def claim(index: int) -> bool:
        begin.wait(timeout=10)
        with database.write() as session:
            return jobs.claim(session, job_id, f"thread {index}")

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(claim, range(8))) == 1


def test_threads_submit_the_same_request(database: Database) -> None:
    begin = threading.Barrier(6)

    def post(_: int) -> tuple[str, bool]:
        begin.wait(timeout=10)
        with database.write() as session:
            row, new = submit(session)
            return row.id, new

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(post, range(6)))
    assert len({job_id for job_id, _ in answers}) == 1
    assert sum(new for _, new in answers) == 1


def all_pages(database: Database, limit: int, between: Any = None, **filters: Any) -> list[str]:
    seen: list[str] = []
    cursor = None
    while True:
        with database.read() as session:
            rows, cursor = jobs.list_jobs(session, limit=limit, cursor=cursor, **filters)
        assert len(rows) == limit or cursor is None
        seen += [row.id for row in rows]
        assert len(seen) == len(set(seen))
        if cursor is None:
            return seen
        if between is not None:
            between()


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 12, 13, 500])
def test_pages_are_stable_while_jobs_are_added(database: Database, limit: int) -> None:
    """Several jobs have the same time, so that the id decides among them."""
    times = [datetime(2026, 1, 1, 0, 0, n // 3, tzinfo=timezone.utc) for n in range(12)]
    random.Random(0).shuffle(times)
    with database.write() as session:
        rows = [submit(session, force=True, now=at)[0] for at in times]
    expected = [row.id for row in sorted(rows, key=lambda row: (row.created_at, row.id), reverse=True)]
    assert all_pages(database, limit) == expected
    assert all_pages(database, limit, lambda: job_in(database, Q)) == expected


def test_a_page_of_some_states_and_one_name(database: Database) -> None:
    made = {state: job_in(database, state) for state in ALL}
    with database.write() as session:
        other = submit(session, "other")[0].id
    assert all_pages(database, 50, states=[R]) == [made[R]]
    assert set(all_pages(database, 2, states=[Q, F, S])) == {made[Q], made[F], made[S], other}
    assert all_pages(database, 50, states=[Q], name="other") == [other]
    assert all_pages(database, 50, name="nothing") == []


@pytest.mark.parametrize(
    "cursor",
    ["", "x", "AAAA", "ä", "\x00", "W10", "WyIyMDI2LTAxLTAxIiwgImEiXQ", "WzEsIDJd", "W" * 10_000, "bnVsbA"],
)
def test_a_cursor_that_no_page_gave(database: Database, cursor: str) -> None:
    for table in (jobs.list_jobs, libraries.list_libraries):
        with (
            pytest.raises(RequestError, match=r"cursor: given .*leave it out") as caught,
            database.read() as session,
        ):
            table(session, cursor=cursor)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 200


def test_a_cursor_of_another_list(database: Database) -> None:
    job_in(database, Q)
    job_in(database, Q)
    with database.read() as session:
        _, cursor = jobs.list_jobs(session, limit=1)
        assert cursor is not None
        with pytest.raises(RequestError, match="cursor"):
            libraries.list_libraries(session, cursor=cursor)


@pytest.mark.parametrize("limit", [0, -1, 501, 1 << 70])
def test_a_limit_out_of_range(database: Database, limit: int) -> None:
    with (
        pytest.raises(DietCodeError, match=r"limit: given .*; allowed: 1 to 500"),
        database.read() as session,
    ):
        jobs.list_jobs(session, limit=limit)
