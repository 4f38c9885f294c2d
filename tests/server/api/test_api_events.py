"""The stream of a job's events, in this process."""

from __future__ import annotations

import threading
import time

import anyio
import pytest

from dietcode.protocol import JobEvent, JobState, Progress
from dietcode_server.api import events
from dietcode_server.store import jobs


def parse(text: str) -> list[JobEvent]:
    """The events of a stream, after checking that their three lines agree."""
    found = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if not lines:
            continue
        event = JobEvent.model_validate_json(lines["data"])
        assert (lines["id"], lines["event"]) == (str(event.id), event.kind)
        found.append(event)
    return found


def add_steps(service, job_id: str, num: int) -> None:
    for step in range(num):
        with service.database.write() as session:
            jobs.add_progress(session, job_id, Progress(stage="measure", message=f"step {step}", done=step))


@pytest.fixture
def finished(service) -> str:
    """A job of 8 events: waiting, cancelled, queued, running, three steps, failed."""
    job_id = service.add_job()
    service.run_job(job_id)
    add_steps(service, job_id, 3)
    with service.database.write() as session:
        jobs.finish(session, job_id, JobState.FAILED, error="line one\nline two")
    return job_id


def test_a_finished_job_is_told_from_the_start(client, finished):
    response = client.get(f"/api/v1/jobs/{finished}/events")
    assert response.status_code == 200
    assert response.headers["content-type"].partition(";")[0] == "text/event-stream"
    assert response.headers["cache-control"] == "no-store"
    found = parse(response.text)
    assert [event.id for event in found] == list(range(1, 9))
    # cancelled is a final state, but not the job's present one: the stream goes on
    assert [event.state.value for event in found if event.state] == [
        "waiting_for_runner",
        "cancelled",
        "queued",
        "running",
        "failed",
    ]
    assert found[-1].message == "line one line two"


@pytest.mark.parametrize("seen", [0, 1, 5, 7])
def test_a_stream_resumes_after_what_was_seen(client, finished, seen):
    url = f"/api/v1/jobs/{finished}/events"
    by_header = parse(client.get(url, headers={"Last-Event-ID": str(seen)}).text)
    assert [event.id for event in by_header] == list(range(seen + 1, 9))
    assert parse(client.get(url, params={"after": seen}).text) == by_header
    both = client.get(url, params={"after": 2}, headers={"Last-Event-ID": str(seen)})
    assert parse(both.text) == by_header  # a browser repeats the query when it comes back


@pytest.mark.parametrize("seen", [8, 9, 2**31 - 1])
def test_who_has_seen_everything_is_told_to_stop(client, finished, seen):
    response = client.get(f"/api/v1/jobs/{finished}/events", headers={"Last-Event-ID": str(seen)})
    assert (response.status_code, response.content) == (204, b"")


@pytest.mark.parametrize("seen", ["-1", "x", str(2**31), "9" * 5_000, "1.5", ""])
def test_odd_numbers_are_refused(client, problem, finished, seen):
    url = f"/api/v1/jobs/{finished}/events"
    problem(client.get(url, headers={"Last-Event-ID": seen}), 422, "request")
    problem(client.get(url, params={"after": seen}), 422, "request")


def test_events_come_once_and_in_order_while_they_are_added(service):
    job_id = service.add_job()
    service.run_job(job_id)

    def work() -> None:
        add_steps(service, job_id, 150)
        with service.database.write() as session:
            jobs.finish(session, job_id, JobState.SUCCEEDED)

    readers = [[] for _ in range(4)]

    def read(into: list[JobEvent]) -> None:
        into.extend(parse(service.client.get(f"/api/v1/jobs/{job_id}/events").text))

    threads = [threading.Thread(target=read, args=(into,)) for into in readers]
    threads.append(threading.Thread(target=work))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    for found in readers:
        assert [event.id for event in found] == list(range(1, 156))
        assert [event.progress.done for event in found if event.progress] == list(range(150))


def test_more_events_than_one_question_gives(service):
    job_id = service.add_job()
    with service.database.write() as session:
        for step in range(1_100):
            jobs.add_progress(session, job_id, Progress(stage="measure", message="", done=step))
        jobs.request_cancel(session, job_id)
    found = parse(service.client.get(f"/api/v1/jobs/{job_id}/events").text)
    assert [event.id for event in found] == list(range(1, 1_103))


def test_a_quiet_stream_keeps_alive(service, monkeypatch):
    monkeypatch.setattr(events, "KEEPALIVE_SECS", 0.3)
    job_id = service.add_job()

    async def listen() -> list[bytes]:
        stream = events._stream(service.app.state.services, job_id, 1)
        with anyio.fail_after(10):
            return [await anext(stream) for _ in range(2)]

    begun = time.monotonic()
    found = anyio.run(listen)
    assert all(piece.startswith(b":") and piece.endswith(b"\n\n") for piece in found)
    assert time.monotonic() - begun >= 0.6


def test_a_stream_ends_when_the_server_stops(service):
    job_id = service.add_job()
    stopping = service.app.state.services.stopping
    found = []

    def read() -> None:
        found.append(parse(service.client.get(f"/api/v1/jobs/{job_id}/events").text))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        time.sleep(0.4)
        assert reader.is_alive()
        stopping.set()
        reader.join(5)
    finally:
        stopping.clear()
    assert not reader.is_alive()
    assert [event.id for event in found[0]] == [1]
