"""Programs over HTTP: submitted as data, refused at the door, cancelled and resumed."""

from __future__ import annotations

from typing import Any

import pytest
from small_programs import pair_program, program_data

JOBS = "/api/v1/jobs"


def test_a_program_is_a_job_once(client: Any) -> None:
    body = {"model": program_data("once-program")}
    first = client.post(JOBS, json=body)
    assert first.status_code == 201, first.text
    job = first.json()
    assert (job["kind"], job["name"]) == ("model", "once-program")
    assert job["spec"]["program"] == {"max_rows": 1 << 20} and "form" not in job["spec"]
    again = client.post(JOBS, json=body)
    assert again.status_code == 200 and again.json()["id"] == job["id"]
    assert client.post(f"{JOBS}/{job['id']}/cancel", json={}).json()["state"] == "cancelled"
    assert client.post(f"{JOBS}/{job['id']}/resume", json={}).json()["state"] == "queued"


def _with(**form: Any) -> dict[str, Any]:
    data = pair_program("hostile-program").to_json()
    data["form"] |= form
    return {"program": data}


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (_with(entry=3), "form.entry: given 3; allowed: 0 to 0"),
        (_with(functions=[{"name": "f", "file": "f.py", "parameters": 1, "registers": 1}]), "'code'"),
        (
            _with(functions=[pair_program().form["functions"][0] | {"code": [["jump", 10**9]] * 12}]),
            "pc 1000000000; allowed: 0…11",
        ),
        ({"program": program_data()["program"], "graph": {}}, "all are given; allowed: one of them"),
        ({"program": "def f(): ..."}, "program: given 'def f(): ...'"),
    ],
)
def test_programs_that_the_door_refuses(client: Any, problem: Any, model: Any, said: str) -> None:
    assert said in problem(client.post(JOBS, json={"model": model}), 422, "request")["detail"]
