"""What is known of the devices, and who announces them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from store_helpers import F, Q, R, S, W, job, job_in
from store_records import CALIBRATION, DEVICE, SEED, micro_kernel
from test_store_pages import plans_of

from dietcode_server.engine.placement import Placement
from dietcode_server.engine.targets import Resolved, Targets
from dietcode_server.store import devices, jobs, runners
from dietcode_server.store.database import Database
from dietcode_server.store.device_headers import header_of
from dietcode_server.store.records import SqlRecords
from dietcode_server.store.runners import AnnouncedDevice
from dietcode_server.store.subjects import remember_device, utc_now
from dietcode_server.store.tables import DeviceRow

WHOLE = {"kind": "llvm", "mcpu": "test", "num_cores": 4, "features": ["avx2"]}
PART = WHOLE | {"num_cores": 2}
NAME = "A test CPU"


def workload(number: int) -> str:
    return f"sha256:{number:064x}"


def measure(database: Database, device: dict[str, Any], number: int, *lines: dict[str, Any]) -> None:
    store = SqlRecords(database, workload(number), device, spec={"name": f"name-{number}"})
    for line in lines:
        store.append(line)


def device(device_id: str, target: dict[str, Any]) -> dict[str, Any]:
    return {"id": device_id, "name": NAME, "target": target}


def announce(database: Database, name: str, device_id: str, target: dict[str, Any], secs: float = 60) -> None:
    found = AnnouncedDevice(device_id, NAME, target, target, f"{name}-slot")
    with database.write() as session:
        assert runners.announce(
            session,
            name=name,
            process=f"{name}/1/1.00",
            engine="local",
            version="1",
            devices=[found],
            started_at=utc_now(),
            lease_secs=secs,
        )


def test_no_devices(database: Database) -> None:
    with database.read() as session:
        assert devices.list_devices(session) == []


def test_records_by_workload_and_the_latest_calibration(database: Database) -> None:
    later = CALIBRATION | {"kappa": 0.5}
    measure(database, device("a", WHOLE), 1, CALIBRATION, micro_kernel(4), micro_kernel(6))
    measure(database, device("a", WHOLE), 2, later, SEED)
    measure(database, device("a", WHOLE), 1, micro_kernel(8))
    measure(database, device("b", PART), 2, micro_kernel(4))
    with database.read() as session:
        found = {one.id: one for one in devices.list_devices(session)}
    assert set(found) == {"a", "b"} and found["a"].target == WHOLE and found["a"].name == NAME
    assert [(w.workload, w.name, w.num_records) for w in found["a"].workloads] == [
        (workload(1), "name-1", 4),
        (workload(2), "name-2", 2),
    ]
    assert found["a"].workloads[0].last_at > found["a"].workloads[1].last_at
    calibration = found["a"].calibration
    assert calibration is not None and (calibration.kappa, calibration.workload) == (0.5, workload(2))
    assert list(calibration.num_tiles) == CALIBRATION["num_tiles"]
    assert list(calibration.tile_gflops) == CALIBRATION["tile_gflops"]
    assert calibration.reference_secs == CALIBRATION["reference_secs"]
    assert found["b"].calibration is None and found["b"].num_workloads == 1


def test_those_that_somebody_announces_come_first(database: Database) -> None:
    """A part of an announced machine can be measured there, too; what was announced long ago cannot."""
    with database.write() as session:
        for number, (key, target) in enumerate([("part", PART), ("other", PART | {"num_cores": 8})]):
            remember_device(session, key, NAME, target, utc_now() + timedelta(seconds=number))
    announce(database, "here", "whole", WHOLE)
    announce(database, "gone", "other", PART | {"num_cores": 8}, secs=-1)
    with database.read() as session:
        found = devices.list_devices(session)
    names = {one.id: [row.name for row in one.runners] for one in found}
    assert names == {"whole": ["here"], "part": ["here"], "other": []}
    assert found[-1].id == "other"


def test_lists_are_bounded(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "MAX_WORKLOADS", 2)
    monkeypatch.setattr(devices, "MAX_COUNTED", 3)
    for number in range(3):
        measure(database, device("a", WHOLE), number, *(micro_kernel(rows) for rows in range(1, 6)))
    with database.read() as session:
        (found,) = devices.list_devices(session)
    assert [w.workload for w in found.workloads] == [workload(2), workload(1)] and found.num_workloads == 3
    assert {w.num_records for w in found.workloads} == {3}


@pytest.mark.parametrize("kind", ["sqlite"])
def test_no_list_reads_all_records(database: Database) -> None:
    measure(database, device("a", WHOLE), 1, CALIBRATION, micro_kernel(4))
    with plans_of(database) as plans, database.read() as session:
        devices.list_devices(session)
    assert any("calibrations_by_device" in plan for plan in plans)
    of_records = [plan for plan in plans if "tuning_records" in plan]
    assert of_records and not any("SCAN tuning_records" in plan for plan in of_records), of_records


class Here(Targets):
    """Says that one device is here, which an earlier version knew as another."""

    found = Resolved(WHOLE, ("new", "A VM", WHOLE | {"machine": {"l2_bytes": 1}, "formerly": "cpu0"}), True)

    def on(self, target: object, host: object = None) -> Resolved:
        return self.found


def test_what_earlier_versions_knew_by_its_name_goes_on_under_its_id(database: Database) -> None:
    """Its records and jobs follow as soon as a runner of this version asks for its jobs, or announces it."""
    measure(database, DEVICE, 1, CALIBRATION, micro_kernel(4))
    ids = {state: job_in(database, state) for state in (Q, W, S, F)}
    running = job_in(database, R)
    before = {one: job(database, one) for one in ids.values()}
    place = Placement(Here())
    assert place.next_job(database) is None, "an earlier version is at work there"
    with database.write() as session:
        assert jobs.finish(session, running, F)
    assert place.next_job(database) is None
    taken = place.next_job(database)
    assert taken is not None and (taken.id, taken.device_id) == (ids[Q], "new")
    with database.write() as session:
        assert jobs.claim(session, ids[Q], "me")
    assert place.take_up(database) == [ids[W]]
    for state, one in ids.items():
        row = job(database, one)
        assert row.device_id == "new" and row.target == (before[one].target if state == S else WHOLE)
    store = SqlRecords(database, workload(1), header(database, "new"), spec={"name": "name-1"})
    assert store.records.calibration is not None and len(store.records.measurements) == 1
    with database.read() as session:
        assert [one.id for one in devices.list_devices(session)] == ["new"]


def header(database: Database, device_id: str) -> dict[str, Any]:
    with database.read() as session:
        found = header_of(session.get_one(DeviceRow, device_id))
    assert found["target"] == WHOLE and found["formerly"] == "cpu0"
    return found
