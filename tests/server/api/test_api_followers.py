"""Many event streams: one question for all of a job, and no more of one owner than are allowed."""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import pytest

from dietcode.protocol import JobEvent, JobState, Progress
from dietcode_server.api import events
from dietcode_server.api.callers import Caller
from dietcode_server.api.followers import POLL_SECS, Followers
from dietcode_server.api.problems import Refusal
from dietcode_server.api.quotas import admitted_stream
from dietcode_server.store import jobs


def test_a_hundred_streams_ask_once(service, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = service.add_job()
    service.run_job(job_id)
    asked, real = [], Followers.news
    monkeypatch.setattr(Followers, "news", lambda *given: asked.append(given) or real(*given))

    heard: set[int] = set()  # streams that have what there was when they began

    async def follow(number: int) -> str:
        text = b""
        async for part in events._stream(service.app.state.services, job_id, 0):
            text += part
            heard.add(number)
        return text.decode()

    async def crowd() -> list[str]:
        streams = [asyncio.create_task(follow(number)) for number in range(100)]
        while len(heard) < len(streams):
            await asyncio.sleep(POLL_SECS)
        before, began = len(asked), time.monotonic()
        for step in range(4):
            with service.database.write() as session:
                jobs.add_progress(session, job_id, Progress(stage="measure", message=f"step {step}"))
            await asyncio.sleep(POLL_SECS)
        questions, turns = len(asked) - before, (time.monotonic() - began) / POLL_SECS
        assert questions <= 10 * turns, "not one for each of a hundred"
        with service.database.write() as session:
            jobs.finish(session, job_id, JobState.FAILED, error="over")
        return await asyncio.gather(*streams)

    texts = asyncio.run(asyncio.wait_for(crowd(), 60))
    assert len(texts) == 100 and len(set(texts)) == 1
    data = [line.removeprefix("data: ") for line in texts[0].splitlines() if line.startswith("data: ")]
    found = [JobEvent.model_validate_json(one) for one in data]
    assert [event.id for event in found] == list(range(1, len(found) + 1))
    assert found[-1].state is JobState.FAILED


def test_streams_of_one_owner_are_bounded(service) -> None:
    followers, settings = Followers(), service.settings.model_copy(update={"max_streams_per_owner": 2})
    alice, admin = Caller("alice", frozenset({"read"})), Caller("ops", frozenset({"admin"}))

    def admitted(caller: Caller) -> AbstractContextManager[None]:
        return admitted_stream(followers, settings, caller)

    with admitted(alice), admitted(alice):
        with pytest.raises(Refusal) as refused, admitted(alice):
            pass
        assert refused.value.status == 429
        with admitted(admin), admitted(replace(alice, owner="bob")):
            assert followers.num_of("bob") == 1
    with admitted(alice):
        assert followers.num_of("alice") == 1
    assert followers.num_of("alice") == 0


def test_streams_that_are_asked_for_at_once_are_counted_too(service) -> None:
    job_id = service.add_job()
    service.run_job(job_id)
    services = service.app.state.services
    few = replace(services, settings=service.settings.model_copy(update={"max_streams_per_owner": 3}))
    alice, statuses = Caller("alice", frozenset({"read"})), []

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    async def ask() -> None:
        try:
            answer = events.follow_events(job_id, few, alice)
            await answer({"type": "http", "asgi": {"spec_version": "2.4"}}, receive, send)
        except Refusal as refusal:
            statuses.append(refusal.status)

    async def crowd() -> None:
        streams = [asyncio.create_task(ask()) for _ in range(10)]
        while len(statuses) < len(streams):
            await asyncio.sleep(0.01)
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)

    asyncio.run(asyncio.wait_for(crowd(), 30))
    assert sorted(statuses) == [200] * 3 + [429] * 7
    assert services.followers.num_of("alice") == 0
