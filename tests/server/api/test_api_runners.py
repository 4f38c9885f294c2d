"""Who runs jobs, as the API and the metrics tell it."""

from __future__ import annotations

import re
from typing import Any

from dietcode.protocol import RunnerList
from dietcode_server.store import runners, slots
from dietcode_server.store.clock import clock
from dietcode_server.store.runners import AnnouncedDevice

CPU = AnnouncedDevice("d", "A CPU", {"kind": "llvm", "mcpu": "test"}, {"mcpu": "test"}, "rack1")


def figures(service: Any) -> dict[str, str]:
    text = service.client.get("/metrics").text
    return dict(re.findall(r"^(dietcode_(?:runners|devices|slots_taken)) (\S+)$", text, re.MULTILINE))


def test_runners_that_are_there_are_listed_and_counted(service: Any) -> None:
    assert service.client.get("/api/v1/runners").json() == {"runners": []}
    with service.database.write() as session:
        now = clock(session)
        for name in ("one", "two"):
            assert runners.announce(
                session,
                name=name,
                process=f"{name}.example/7/1.00",
                engine="local",
                version="0.1.0",
                devices=[CPU],
                started_at=now,
                lease_secs=60.0,
                job_id="0" * 16,
            )
        assert slots.take(session, "rack1", "one.example/8/1.00", "0" * 16, 60.0)
    answer = service.client.get("/api/v1/runners").json()
    found = RunnerList.model_validate(answer).runners
    assert [(one.name, one.host, one.job) for one in found] == [
        ("one", "one.example", "0" * 16),
        ("two", "two.example", "0" * 16),
    ]
    assert answer["runners"][0]["devices"] == [
        {"id": "d", "name": "A CPU", "target": CPU.target, "slot": "rack1"}
    ]
    assert figures(service) == {
        "dietcode_runners": "2.0",
        "dietcode_devices": "1.0",
        "dietcode_slots_taken": "1.0",
    }
