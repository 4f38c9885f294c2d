"""Health, readiness and the figures for Prometheus."""

from __future__ import annotations

import time

from small_libraries import spec_data

from dietcode.protocol import JobState
from dietcode_server.api import work_figures
from dietcode_server.api.work_figures import RESULTS
from dietcode_server.store import jobs
from dietcode_server.store.subjects import remember_device, utc_now
from dietcode_server.store.tables import TuningRecord


def test_health_and_readiness(service, problem):
    assert service.client.get("/healthz").json() == {"status": "ok"}
    assert service.client.get("/readyz").json()["status"] == "ok"
    service.supervisor.works = False
    try:
        said = problem(service.client.get("/readyz"), 503, "unavailable")["detail"]
        assert said == "the engine waits for a disk"
        assert service.client.get("/healthz").status_code == 200
    finally:
        service.supervisor.works = True


def test_a_database_without_its_schema_is_not_ready(tmp_path, service, problem):
    from dataclasses import replace

    from dietcode_server.store.database import Database

    database = Database(f"sqlite:///{tmp_path}/bare.db")
    bare = replace(service, database=database)
    assert "schema" in problem(bare.client.get("/readyz"), 503, "unavailable")["detail"]
    database.dispose()


def figures(client) -> dict[str, float]:
    response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain"), response.text
    lines = [line for line in response.text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_jobs_are_counted_by_state(service):
    before = figures(service.client)
    assert {name for name in before if name.startswith("dietcode_jobs{")} == {
        f'dietcode_jobs{{state="{state.value}"}}' for state in JobState
    }
    name = 'dietcode_jobs{state="waiting_for_runner"}'
    job_id = service.add_job()
    assert figures(service.client)[name] == before[name] + 1
    service.run_job(job_id)
    assert figures(service.client)[name] == before[name]
    end(service, job_id)
    failed = 'dietcode_jobs{state="failed"}'
    assert figures(service.client)[failed] == before[failed] + 1


def end(service, job_id: str) -> None:
    with service.database.write() as session:
        jobs.finish(session, job_id, JobState.FAILED, error="why", runner="a test")


def test_ended_jobs_are_counted_once_a_minute_and_added_to_in_between(service, monkeypatch):
    done = 'dietcode_jobs{state="failed"}'
    before = figures(service.client)[done]
    monkeypatch.setattr(work_figures, "_ENDED", ("nothing",))  # a whole count would find none
    job_id = service.add_job()
    service.run_job(job_id)
    end(service, job_id)
    assert figures(service.client)[done] == before + 1
    now = time.monotonic()
    monkeypatch.setattr(work_figures.time, "monotonic", lambda: now + 61.0)
    assert figures(service.client)[done] == 0
    monkeypatch.undo()


def test_what_waits_what_ended_and_what_was_tried(service):
    before = figures(service.client)
    job_id = service.add_job()
    service.run_job(job_id)
    with service.database.write() as session:
        row = jobs.get(session, job_id)
        remember_device(session, "cpu0", "A test CPU", {}, utc_now())
        for line, error in (({}, None), ({"pruned": True}, None), ({}, "wrong"), ({}, "wrong")):
            session.add(
                TuningRecord(
                    workload=row.workload,
                    device_id="cpu0",
                    kind="micro_kernel",
                    error=error,
                    line=line,
                    created_at=utc_now(),
                )
            )
        jobs.finish(session, job_id, JobState.FAILED, error="why", runner="a test")
    after, again = figures(service.client), figures(service.client)

    def grown(name: str, since: dict[str, float] = before) -> float:
        return again[name] - since.get(name, 0.0)

    assert [grown(f'dietcode_candidates_total{{result="{r}"}}') for r in RESULTS] == [1, 1, 2]
    assert grown('dietcode_job_seconds_count{state="failed"}') == 1
    assert grown("dietcode_job_wait_seconds_count") == 1
    assert grown("dietcode_job_wait_seconds_count", after) == 0, "nothing is counted twice"
    assert again["dietcode_queue_oldest_seconds"] == 0
    with service.database.write() as session:
        jobs.resume(session, job_id)
    assert figures(service.client)["dietcode_queue_oldest_seconds"] > 0
    with service.database.write() as session:
        jobs.request_cancel(session, job_id)


def test_requests_are_counted_by_route_and_not_by_path(service):
    client = service.client
    client.get("/api/v1/jobs/x")
    client.get("/nowhere/0")
    client.request("ODD0", "/healthz")
    client.get("/healthz", headers={"host": "evil.example"})
    before = figures(client)
    for number in range(20):
        client.get(f"/api/v1/jobs/{number:016x}")
        client.get(f"/nowhere/{number}")
        client.request(f"ODD{number}", "/healthz")
    after = figures(client)
    assert before.keys() == after.keys()

    def grown(labels: str) -> float:
        return sum(
            after[name] - before[name]
            for name in after
            if name.startswith(f"dietcode_http_requests_total{{{labels}")
        )

    assert grown('method="GET",route="/api/v1/jobs/{job_id}",status="404"') == 20
    assert grown('method="GET",route="unmatched",status="404"') == 20
    assert grown('method="other",route="/healthz",status="405"') == 20


def test_failures_are_counted(service):
    def fail() -> None:
        raise RuntimeError

    service.supervisor.wake, kept = fail, service.supervisor.wake
    try:
        service.client.post("/api/v1/jobs", json={"spec": spec_data("fails-too")})
    finally:
        service.supervisor.wake = kept
    name = 'dietcode_http_requests_total{method="POST",route="/api/v1/jobs",status="500"}'
    assert figures(service.client)[name] == 1
