"""Calls, errors and events of both clients against a server that may misbehave."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from small_libraries import spec_data
from wire_server import JOB, Fault, WireServer, job, progress_event, state_event

from dietcode.client import AsyncClient, Client
from dietcode.errors import (
    ConflictError,
    DietCodeError,
    NotFoundError,
    RequestError,
    ServerError,
    SpecError,
)
from dietcode.protocol import JobEvent, JobState
from dietcode.workload.parse import load_spec, spec_from_data


@pytest.fixture
def client(wire: WireServer) -> Iterator[Client]:
    wire.jobs[JOB] = job()
    with Client() as made:
        yield made


def problem(status: int, detail: str, **more: Any) -> Fault:
    body = {"type": "urn:dietcode:problem:x", "title": "X", "status": status, "detail": detail} | more
    return Fault(status=status, body=json.dumps(body).encode())


def refused(error: type[DietCodeError], call: Callable[[], Any], *words: str) -> None:
    with pytest.raises(error) as caught:
        call()
    text = str(caught.value)
    assert type(caught.value) is error or error is ServerError, caught.value
    assert "\n" not in text and len(text) < 700 and all(word in text for word in words), text


def test_submit_sends_the_whole_spec(client: Client, wire: WireServer, tmp_path: Path) -> None:
    (tmp_path / "weights.json").write_text(json.dumps({"1": 0.5, "3": 0.25}))
    data = spec_data(shape_vars={"T": {"min": 1, "max": 8, "weights": {1: 0.5, 3: 0.25}}})
    (tmp_path / "spec.json").write_text(json.dumps(data))
    spec = load_spec(tmp_path / "spec.json")
    found = client.submit(spec, force=True, idempotency_key="k 1")
    assert found.id == JOB and found.state is JobState.QUEUED
    sent = wire.requests[-1]
    body = json.loads(sent.body)
    assert body["force"] is True and sent.headers["idempotency-key"] == "k 1"
    assert sent.headers["content-type"] == "application/json"
    assert spec_from_data(body["spec"]) == spec == spec_from_data(data)
    client.submit(data)
    assert json.loads(wire.requests[-1].body) == {"spec": body["spec"], "force": False, "measure": True}


def test_a_wrong_spec_is_refused_before_asking(client: Client, wire: WireServer) -> None:
    refused(SpecError, lambda: client.submit(spec_data("../x")), "name: ")
    refused(RequestError, lambda: client.submit(spec_data(), idempotency_key="a\nb"), "1 to 255")
    refused(RequestError, lambda: client.submit(spec_data(), idempotency_key=""), "1 to 255")
    assert not wire.requests


def test_jobs_are_listed_and_steered(client: Client, wire: WireServer) -> None:
    other = "f" * 16
    wire.jobs[other] = job(other, "failed", name="rows", error="no candidate worked")
    assert [one.id for one in client.jobs().jobs] == [JOB, other]
    assert [one.id for one in client.jobs(["failed", JobState.QUEUED], name="rows").jobs] == [other]
    assert wire.requests[-1].query["state"] == ["failed", "queued"]
    assert client.cancel(JOB).state is JobState.CANCELLED
    assert client.resume(JOB).state is JobState.QUEUED
    assert client.job(other).error == "no candidate worked"


def test_errors_of_the_server_become_ours(client: Client, wire: WireServer) -> None:
    wire.jobs[JOB]["state"] = "succeeded"
    refused(ConflictError, lambda: client.cancel(JOB), "nothing to cancel")
    refused(NotFoundError, lambda: client.job("0" * 16), "no such job; `dietcode jobs`")
    wire.fault("/jobs", problem(422, "dims.m: unknown variable", field="dims.m"))
    with pytest.raises(SpecError) as caught:
        client.submit(spec_data())
    assert (caught.value.field, caught.value.problem) == ("dims.m", "unknown variable")
    wire.fault("/jobs", problem(422, "limit: at most 500"))
    refused(RequestError, client.jobs, "limit: at most 500")
    wire.fault("/jobs", problem(401, "no token given"))
    refused(RequestError, client.jobs, "no token given; set DIETCODE_TOKEN")
    wire.fault("/jobs", problem(503, "the database is full\x1b[31m\nindeed"))
    refused(ServerError, client.jobs, "the server failed: the database is full?[31m indeed (status 503)")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault(status=500), "status 500 without a problem document"),
        (Fault(status=404, body=b"<html>nginx"), "status 404 without a problem document"),
        (Fault(body=b"<html>hello"), "no JobPage of DietCode"),
        (Fault(body=b"{}"), "jobs: Field required"),
        (Fault(body=b'{"jobs": [{"id": 1}]}'), "no JobPage of DietCode"),
        (Fault(body=b"[" * 100_000), "no JobPage of DietCode"),
        (Fault(body=b"\xff\xfe"), "no JobPage of DietCode"),
        (Fault(status=204), "no JobPage of DietCode"),
        (Fault(cut=5), "the connection broke"),
        (Fault(endless=True), "larger than 64 MiB"),
        (Fault(headers={"Content-Length": str(10**15)}, cut=5), "larger than 64 MiB"),
        (Fault(headers={"Content-Encoding": "gzip"}), "content encoding 'gzip'"),
        (Fault(status=307, headers={"Location": "http://elsewhere.example/"}), "http://elsewhere.example/"),
        (Fault(status=500, endless=False, body=b"x" * (2 << 20)), "larger than 1 MiB"),
    ],
)
def test_an_answer_that_is_none(client: Client, wire: WireServer, fault: Fault, words: str) -> None:
    wire.fault("/jobs", fault)
    refused(ServerError, client.jobs, wire.url, words)


def test_the_job_asked_for_is_the_job_given(client: Client, wire: WireServer) -> None:
    wire.fault("/jobs", Fault(body=json.dumps(job("e" * 16)).encode()))
    refused(ServerError, lambda: client.job(JOB), "given 'eeeeeeeeeeeeeeee'")


def test_a_server_that_is_not_there_or_slow(wire: WireServer) -> None:
    wire.fault("/jobs", Fault(delay_secs=5.0))
    with Client(timeout_secs=0.1) as client:
        refused(ServerError, client.jobs, wire.url, "no answer within 0.1 s")
    wire.stop()
    with Client() as client:
        refused(ServerError, client.jobs, f"{wire.url}: cannot be reached: connection refused; start it with")
    with Client("http://no-such-host.invalid") as client:
        refused(ServerError, client.jobs, "http://no-such-host.invalid: cannot be reached: ")


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8000",
        "ftp://localhost",
        "http://",
        "http://u:p@host",
        "http://host?x=1",
        "http://host:99999",
        "http://[::1",
        "http://a b/",
        "http://host/\x1b[31m",
        "file:///etc/passwd",
    ],
)
def test_a_url_that_is_none(url: str) -> None:
    refused(RequestError, lambda: Client(url), "server: ", "allowed: http://HOST[:PORT]")


def test_where_server_and_token_come_from(wire: WireServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIETCODE_TOKEN", "secret")
    with Client(f"{wire.url.replace('http', 'HTTP')}/") as client:
        client.jobs()
        assert client.server == wire.url and "secret" not in repr(client.transport.address)
    assert wire.requests[-1].headers["authorization"] == "Bearer secret"
    with Client(token="another") as client:
        client.jobs()
    assert wire.requests[-1].headers["authorization"] == "Bearer another"
    monkeypatch.delenv("DIETCODE_TOKEN")
    monkeypatch.delenv("DIETCODE_SERVER")
    with Client() as client:
        assert client.server == "http://127.0.0.1:8000"
    refused(RequestError, lambda: Client(token="a\r\nX: 1"), "DIETCODE_TOKEN")


def test_no_proxy_leads_to_this_machine(
    client: Client, wire: WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with Client() as other:
        assert len(other.jobs().jobs) == 1


@pytest.mark.parametrize("job_id", ["", "..", "../healthz", "0" * 15, "G" * 16, "0" * 16 + "\n", "%2e%2e"])
def test_an_id_that_is_none(client: Client, wire: WireServer, job_id: str) -> None:
    for call in (client.job, client.cancel, client.resume, lambda one: list(client.events(one))):
        refused(RequestError, lambda call=call: call(job_id), "16 hex digits")
    assert not wire.requests


def test_arguments_that_are_wrong(client: Client, wire: WireServer) -> None:
    refused(RequestError, lambda: client.jobs(["done"]), "state: given 'done'; allowed: queued,")
    refused(RequestError, lambda: client.jobs(limit=0), "limit: given 0; allowed: 1 to 500")
    refused(RequestError, lambda: client.libraries(name="../x"), "no name of a library")
    refused(RequestError, lambda: client.library("dense", 0), "no version")
    refused(RequestError, lambda: Client(timeout_secs=0), "timeout_secs")
    assert not wire.requests


HISTORY = [state_event(1, "queued"), state_event(2, "running"), progress_event(3), progress_event(4)]


def ids(events: Any) -> list[int]:
    return [event.id for event in events]


async def async_events(**options: Any) -> list[JobEvent]:
    async with AsyncClient() as client:
        return [event async for event in client.events(JOB, **options)]


@pytest.fixture(params=["blocking", "asyncio"])
def read_events(request: pytest.FixtureRequest, client: Client) -> Callable[..., list[JobEvent]]:
    """Return a function that gives all events of the job, by either client."""

    def read(**options: Any) -> list[JobEvent]:
        if request.param == "asyncio":
            return asyncio.run(async_events(**options))
        return list(client.events(JOB, **options))

    return read


Read = Callable[..., list[JobEvent]]


def ends(wire: WireServer, *events: dict[str, Any], state: str = "succeeded") -> None:
    wire.events = [*HISTORY, *events]
    wire.jobs[JOB]["state"] = state


def test_events_of_a_finished_job(wire: WireServer, read_events: Read) -> None:
    ends(wire, state_event(5, "succeeded"))
    events = read_events()
    assert ids(events) == [1, 2, 3, 4, 5]
    assert events[-1].state is JobState.SUCCEEDED and events[2].progress is not None
    assert "last-event-id" not in wire.asked("/events")[0].headers
    assert ids(read_events(after=3)) == [4, 5]
    assert ids(read_events(after=5)) == []


@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_broken_stream_goes_on_without_loss_or_repetition(
    wire: WireServer, read_events: Read, after: int
) -> None:
    ends(wire, state_event(5, "succeeded"))
    wire.break_events_after = after
    assert ids(read_events()) == [1, 2, 3, 4, 5]
    positions = [int(r.headers.get("last-event-id", 0)) for r in wire.asked("/events")]
    assert positions == sorted(positions) and set(range(0, 5, after)) <= set(positions)


def test_events_go_on_after_the_server_was_restarted(wire: WireServer, read_events: Read) -> None:
    wire.events = list(HISTORY)
    lost: list[ServerError] = []

    def restart() -> None:
        wire.until(lambda: wire.last_sent == 4)
        wire.stop()
        wire.until(lambda: bool(lost))
        ends(wire, progress_event(5), state_event(6, "succeeded"))
        wire.start()

    thread = threading.Thread(target=restart)
    thread.start()
    assert ids(read_events(on_lost=lost.append)) == [1, 2, 3, 4, 5, 6]
    thread.join()
    assert len(lost) == 1
    positions = [r.headers.get("last-event-id") for r in wire.asked("/events")]
    assert positions[0] is None and positions[1] == "4"


def test_trying_again_ends(wire: WireServer, read_events: Read) -> None:
    wire.stop()
    began = time.monotonic()
    with pytest.raises(ServerError, match="connection refused"):
        read_events(reconnect_secs=0.5)
    assert time.monotonic() - began < 5.0


def test_a_server_that_hangs_up_at_once_is_not_asked_in_a_loop(wire: WireServer, read_events: Read) -> None:
    wire.always = [("/events", Fault(body=b"", headers={"Content-Type": "text/event-stream"}))]
    with pytest.raises(ServerError, match="ended the events early"):
        read_events(reconnect_secs=0.5)
    assert len(wire.asked("/events")) < 10


def test_errors_while_following(wire: WireServer, read_events: Read) -> None:
    ends(wire, state_event(5, "succeeded"))
    wire.fault("/events", Fault(status=500), Fault(status=503))
    assert ids(read_events()) == [1, 2, 3, 4, 5]
    wire.fault("/events", problem(404, "no such job"))
    with pytest.raises(NotFoundError):
        read_events()


@pytest.mark.parametrize(
    "data",
    [b"{}", b"no json", json.dumps(state_event(1, "queued") | {"job": "e" * 16}).encode(), b"[" * 10_000],
)
def test_events_that_are_none(wire: WireServer, read_events: Read, data: bytes) -> None:
    body = b"id: 1\nevent: state\ndata: " + data + b"\n\n"
    wire.fault("/events", Fault(body=body, headers={"Content-Type": "text/event-stream"}))
    with pytest.raises(ServerError, match=f"job {JOB}: received"):
        read_events()


def test_a_stream_that_is_none(wire: WireServer, read_events: Read) -> None:
    wire.fault("/events", Fault(body=b"<html>", headers={"Content-Type": "text/html"}))
    with pytest.raises(ServerError, match="text/html"):
        read_events()
    endless = b"data: " + b"x" * (2 << 20)
    wire.fault("/events", Fault(body=endless, headers={"Content-Type": "text/event-stream"}))
    with pytest.raises(ServerError, match="byte limit"):
        read_events()


def test_events_sent_twice_are_given_once(wire: WireServer, read_events: Read) -> None:
    ends(wire, state_event(5, "succeeded"))
    text = "".join(f"data: {json.dumps(event)}\n\n" for event in [*HISTORY[:2], *HISTORY, HISTORY[0]])
    wire.fault("/events", Fault(body=text.encode(), headers={"Content-Type": "text/event-stream"}))
    assert ids(read_events()) == [1, 2, 3, 4, 5]


def test_an_interrupted_job_ends_the_events(wire: WireServer, read_events: Read) -> None:
    ends(wire, state_event(5, "interrupted", "its worker died"), state="interrupted")
    assert ids(read_events()) == [1, 2, 3, 4, 5]


def test_a_job_that_was_resumed_has_more_events(wire: WireServer, read_events: Read) -> None:
    more = [
        state_event(5, "interrupted"),
        state_event(6, "queued"),
        state_event(7, "running"),
        state_event(8, "failed"),
        state_event(9, "queued"),
        state_event(10, "interrupted"),
    ]
    ends(wire, *more, state="interrupted")
    assert ids(read_events()) == list(range(1, 11))
    ends(wire, *more, state_event(11, "failed"), state="failed")
    assert ids(read_events()) == list(range(1, 12))


def test_a_running_job_that_was_interrupted_before_is_followed(wire: WireServer, read_events: Read) -> None:
    ends(wire, state_event(5, "interrupted"), state="running")
    timer = threading.Timer(0.6, ends, [wire, state_event(5, "interrupted"), state_event(6, "succeeded")])
    timer.start()
    assert ids(read_events()) == [1, 2, 3, 4, 5, 6]
    timer.join()


def test_wait_gives_the_job(client: Client, wire: WireServer) -> None:
    ends(wire, state_event(5, "failed"), state="failed")
    heard: list[JobEvent] = []
    assert client.wait(JOB, heard.append).state is JobState.FAILED
    assert ids(heard) == [1, 2, 3, 4, 5]

    async def wait() -> JobState:
        async with AsyncClient() as other:
            return (await other.wait(JOB)).state

    assert asyncio.run(wait()) is JobState.FAILED


def test_all_calls_from_asyncio(client: Client, wire: WireServer) -> None:
    async def run() -> None:
        async with AsyncClient() as other:
            assert (await other.submit(spec_data())).id == JOB
            assert await other.jobs() == client.jobs()
            assert await other.job(JOB) == client.job(JOB)
            assert (await other.cancel(JOB)).state is JobState.CANCELLED
            assert (await other.resume(JOB)).state is JobState.QUEUED
            with pytest.raises(NotFoundError):
                await other.manifest("dense")
            wire.fault("/jobs", Fault(endless=True))
            with pytest.raises(ServerError, match="larger than 64 MiB"):
                await other.jobs()

    asyncio.run(run())
