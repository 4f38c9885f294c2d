"""Jobs over HTTP."""

from __future__ import annotations

import time

import pytest
from small_libraries import spec_data

from dietcode.protocol import Job, JobPage, JobState
from dietcode_server.store import jobs


def test_a_new_job_is_created_once(service):
    wakes = service.supervisor.wakes
    first = service.client.post("/api/v1/jobs", json={"spec": spec_data("once")})
    job = Job.model_validate_json(first.content)
    assert first.status_code == 201
    assert first.headers["location"] == f"/api/v1/jobs/{job.id}"
    assert (job.name, job.state, job.attempt, job.error) == ("once", JobState.QUEUED, 0, None)
    assert job.device and job.target["mcpu"]
    assert service.supervisor.wakes == wakes + 1

    again = service.client.post("/api/v1/jobs", json={"spec": spec_data("once")})
    assert again.status_code == 200
    assert "location" not in again.headers
    assert again.json() == first.json()
    assert service.supervisor.wakes == wakes + 1
    assert service.client.get(first.headers["location"]).json() == first.json()


def test_defaults_written_out_are_the_same_job(client):
    data = spec_data("defaults", dims={"m": "16 * T", "n": 64, "k": 48})
    first = client.post("/api/v1/jobs", json={"spec": spec_data("defaults")}).json()
    assert client.post("/api/v1/jobs", json={"spec": data}).json()["id"] == first["id"]


def test_force_makes_another_job(client):
    body = {"spec": spec_data("forced"), "force": True}
    first, second = (client.post("/api/v1/jobs", json=body) for _ in range(2))
    assert first.status_code == second.status_code == 201
    assert first.json()["id"] != second.json()["id"]


def test_a_job_that_measures_nothing(client, problem):
    body = {"spec": spec_data("reselected"), "measure": False}
    found = client.post("/api/v1/jobs", json=body)
    assert found.status_code == 201 and found.json()["measure"] is False
    assert client.post("/api/v1/jobs", json=body).status_code == 200
    both = problem(client.post("/api/v1/jobs", json=body | {"force": True}), 422, "request")
    assert "give one of them" in both["detail"]


def test_priority_and_deadline_are_the_jobs_own(client):
    body = {"spec": spec_data("urgent"), "priority": 10, "deadline": 60}
    job = Job.model_validate_json(client.post("/api/v1/jobs", json=body).content)
    assert job.priority == 10 and job.deadline_at is not None
    assert abs((job.deadline_at - job.created_at).total_seconds() - 60) < 1
    again = client.post("/api/v1/jobs", json={"spec": spec_data("urgent"), "priority": -3})
    assert again.status_code == 200 and again.json()["priority"] == 10
    at = {"spec": spec_data("by-then"), "deadline": "2126-01-05T18:00:00+01:00"}
    assert client.post("/api/v1/jobs", json=at).json()["deadline_at"] == "2126-01-05T17:00:00Z"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("priority", 101),
        ("priority", "high"),
        ("deadline", 0),
        ("deadline", -1),
        ("deadline", 1e300),
        ("deadline", True),
        ("deadline", "soon"),
        ("deadline", "2126-01-05T18:00:00"),
        ("deadline", "2020-01-05T18:00:00Z"),
        ("deadline", [1]),
    ],
)
def test_a_priority_or_deadline_that_is_refused(client, problem, field, value):
    response = client.post("/api/v1/jobs", json={"spec": spec_data("refused"), field: value})
    assert field in problem(response, 422, "request")["detail"]


def test_an_idempotency_key_belongs_to_one_request(client, problem):
    body = {"spec": spec_data("keyed"), "force": True}
    key = {"Idempotency-Key": "k 1"}
    first = client.post("/api/v1/jobs", json=body, headers=key)
    again = client.post("/api/v1/jobs", json=body, headers=key)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    other = client.post("/api/v1/jobs", json={"spec": spec_data("keyed")}, headers=key)
    assert "k 1" in problem(other, 409, "conflict")["detail"]


@pytest.mark.parametrize("key", ["", "a" * 256, "a\tb", "é"])
def test_odd_idempotency_keys_are_refused(client, problem, key):
    headers = [(b"idempotency-key", key.encode("latin-1"))]
    response = client.post("/api/v1/jobs", json={"spec": spec_data()}, headers=headers)
    problem(response, 422, "request")


def test_a_refused_spec_names_its_field(client, problem):
    spec = spec_data(shape_vars={"T": {"min": 0, "max": 8}})
    found = problem(client.post("/api/v1/jobs", json={"spec": spec}), 422, "spec")
    assert found["field"] == "shape_vars.T.min"
    assert not found["detail"].startswith("shape_vars")


def test_an_unknown_target_is_a_field_of_the_spec(client, problem):
    spec = spec_data("elsewhere", target={"kind": "llvm", "mcpu": "no-such-processor"})
    found = problem(client.post("/api/v1/jobs", json={"spec": spec}), 422, "spec")
    assert found["field"].startswith("target")


def test_pages_hold_each_job_once_newest_first(service, problem):
    ids = [service.add_job("paged") for _ in range(5)]
    seen, cursor = [], None
    for _ in range(3):
        query = {"name": "paged", "limit": 2} | ({"cursor": cursor} if cursor else {})
        page = JobPage.model_validate_json(service.client.get("/api/v1/jobs", params=query).content)
        seen += [job.id for job in page.jobs]
        cursor = page.next
    assert seen == ids[::-1]
    assert cursor is None


def test_states_select(service):
    waiting, running = service.add_job("states"), service.add_job("states")
    service.run_job(running)

    def ids(query: str) -> set[str]:
        return {job["id"] for job in service.client.get(f"/api/v1/jobs?name=states&{query}").json()["jobs"]}

    assert ids("state=running") == {running}
    assert ids("state=waiting_for_runner") == {waiting}
    assert ids("state=running&state=waiting_for_runner") == ids("") == {waiting, running}
    assert ids("state=failed") == set()


def test_cancel_and_resume(service, problem):
    job_id, wakes = service.add_job(), service.supervisor.wakes
    url = f"/api/v1/jobs/{job_id}"
    assert service.client.post(f"{url}/cancel").json()["state"] == "cancelled"
    assert service.client.post(f"{url}/cancel").json()["state"] == "cancelled"
    resumed = service.client.post(f"{url}/resume").json()
    assert (resumed["state"], resumed["error"], resumed["finished_at"]) == ("queued", None, None)
    assert service.client.post(f"{url}/resume").json()["state"] == "queued"
    assert service.supervisor.wakes == wakes + 4


def test_a_running_job_is_asked_to_end(service):
    job_id = service.add_job()
    service.run_job(job_id)
    job = service.client.post(f"/api/v1/jobs/{job_id}/cancel").json()
    assert (job["state"], job["cancel_requested"]) == ("running", True)


def test_what_does_not_fit_the_state_is_a_conflict(service, problem):
    job_id = service.add_job()
    service.run_job(job_id)
    with service.database.write() as session:
        assert jobs.finish(session, job_id, JobState.SUCCEEDED)
    for action in ("cancel", "resume"):
        response = service.client.post(f"/api/v1/jobs/{job_id}/{action}")
        assert job_id in problem(response, 409, "conflict")["detail"]


@pytest.mark.parametrize("action", ["cancel", "resume"])
@pytest.mark.parametrize("job_id", ["0" * 16, "x", "%00", "9" * 400])
def test_no_such_job(client, problem, job_id, action):
    problem(client.post(f"/api/v1/jobs/{job_id}/{action}"), 404, "not-found")


def test_lists_leave_specs_out(service):
    job_id = service.add_job("large")
    page = JobPage.model_validate_json(service.client.get("/api/v1/jobs?name=large").content)
    assert [job.spec for job in page.jobs] == [None]
    assert service.client.get(f"/api/v1/jobs/{job_id}").json()["spec"]["name"] == "large"


def test_jobs_are_found_by_the_beginning_of_their_ids(service, problem):
    job_id = service.add_job()
    for given in (job_id, job_id[:6]):
        page = JobPage.model_validate_json(service.client.get(f"/api/v1/jobs?id={given}").content)
        assert job_id in [job.id for job in page.jobs] and all(job.id.startswith(given) for job in page.jobs)
    for wrong in ("abc", "ABCD", "a%25", "0" * 17):
        problem(service.client.get(f"/api/v1/jobs?id={wrong}"), 422, "request")


def test_many_dimensions_cost_no_time(client, problem):
    long = "(" + "+".join("abcdefgh") + ")" + "*1" * 49
    spec = spec_data() | {"dims": {f"k{number}": long for number in range(500)}}
    began = time.process_time()
    found = problem(client.post("/api/v1/jobs", json={"spec": spec}), 422, "spec")
    assert found["field"] == "dims" and "at most 52" in found["detail"]
    assert time.process_time() - began < 2
