"""Whole models over HTTP: submitted as data, refused as data."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from small_libraries import spec_data
from small_models import BUDGET, mlp, model_data

from dietcode.errors import DietCodeError
from dietcode.graph.model_request import model_from_data, order_from_data
from dietcode.models.planning import ModelPlan, plan_graph
from dietcode.protocol import Job
from dietcode_server.limits import SizeLimits, check_model_limits

JOBS = "/api/v1/jobs"
HOSTILE: list[Any] = [
    None,
    True,
    -1,
    0,
    2**63,
    1e308,
    float("nan"),
    "",
    "x",
    "L",
    "L*L*L*L*L*L*L*L",
    "(" * 500,
    "\0\ud800",
    "__import__('os')",
    [],
    {},
    [[[[]]]],
    {"value": "x"},
    {"value": "v1"},
    {"dict": [["k", "*"]]},
]


def test_a_model_is_a_job_once(service: Any) -> None:
    body = {"model": model_data("once-model")}
    first = service.client.post(JOBS, json=body)
    assert first.status_code == 201, first.text
    job = Job.model_validate_json(first.content)
    assert (job.kind, job.name, job.parts) == ("model", "once-model", [])
    assert job.spec == {
        "name": "once-model",
        "workload": job.workload,
        "target": {"kind": "llvm"},
        "budget": BUDGET,
        "objective": {"max_loss": 0.1},
    }
    again = service.client.post(JOBS, json=body)
    assert again.status_code == 200 and again.json()["id"] == job.id
    listed = service.client.get(JOBS, params={"name": "once-model"}).json()["jobs"]
    assert [one["kind"] for one in listed] == ["model"] and listed[0]["spec"] is None
    renamed = service.client.post(JOBS, json={"model": model_data("another-name")}).json()
    assert renamed["workload"] == job.workload and renamed["id"] != job.id


def test_its_graph_is_kept_whole(service: Any) -> None:
    from dietcode.graph.reading import read_graph
    from dietcode_server.store.tables import Workload

    job = service.client.post(JOBS, json={"model": model_data("kept-model")}).json()
    with service.database.read() as session:
        kept = session.get(Workload, job["workload"]).spec
    graph = mlp("once-model")
    assert {**kept, "name": graph.name} == json.loads(json.dumps(graph.to_json()))
    assert list(read_graph(kept).inputs) == ["x"]


def test_a_key_and_a_resume_know_models(client: Any, problem: Any) -> None:
    key = {"Idempotency-Key": "a model's key"}
    job = client.post(JOBS, json={"model": model_data("keyed")}, headers=key).json()
    assert client.post(JOBS, json={"model": model_data("keyed")}, headers=key).json()["id"] == job["id"]
    problem(client.post(JOBS, json={"model": model_data("other")}, headers=key), 409, "conflict")
    problem(client.post(JOBS, json={"spec": spec_data("other")}, headers=key), 409, "conflict")
    assert client.post(f"{JOBS}/{job['id']}/cancel", json={}).json()["state"] == "cancelled"
    resumed = client.post(f"{JOBS}/{job['id']}/resume", json={}).json()
    assert (resumed["state"], resumed["kind"]) == ("queued", "model")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "spec, a workload, or model"),
        ({"spec": spec_data(), "model": model_data()}, "not both"),
        ({"model": {}}, "given None"),
        ({"model": model_data() | {"weights": {}}}, "unknown field"),
        ({"model": model_data("Not A Name")}, "name: given"),
        ({"model": model_data(target={"kind": "cuda", "arch": "sm_90"})}, "a CPU"),
        ({"model": model_data(target="nvidia/nvidia-a100")}, "a CPU"),
        ({"model": model_data(budget={"trials": 0})}, "budget.trials"),
        ({"model": model_data(budget={"trials": 20_000})}, "DIETCODE_SERVE_MAX_TRIALS"),
        ({"model": model_data(objective={"binary": 1})}, "objective.binary"),
        ({"model": {"graph": mlp("huge", width=1 << 25).to_json()}}, "DIETCODE_SERVE_MAX_EXTENT"),
    ],
)
def test_what_is_refused(client: Any, problem: Any, body: dict[str, Any], said: str) -> None:
    document = problem(client.post(JOBS, json=body), 422, "request")
    assert said in document["detail"]


def test_a_target_that_is_none_names_its_field(client: Any, problem: Any) -> None:
    body = {"model": model_data(target={"kind": "llvm", "cores": 2})}
    assert problem(client.post(JOBS, json=body), 422, "spec")["field"] == "target.cores"


def _paths(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    children = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in children:
        yield from _paths(value, (*path, key))


def _with(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    made = copy.deepcopy(data)
    inner = made
    for key in path[:-1]:
        inner = inner[key]
    if value is KeyError:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return made


def test_hostile_graphs_are_refused_or_planned() -> None:
    """Each field of a graph gone or replaced: an error of DietCode's own, or a plan, and nothing else."""
    data = model_data()
    random.seed(22)
    kept = refused = 0
    limits = SizeLimits(6, 1 << 24, 10**13, 1 << 31, 10_000, 86_400)
    for path in _paths(data):
        for value in (KeyError, *random.sample(HOSTILE, 3)):
            if value is KeyError and not path:
                continue
            try:
                given = _with(data, path, value)
                model = model_from_data(given)
                check_model_limits(model, limits)
                plan = plan_graph(model.content, model.order.options())
            except DietCodeError as error:
                refused += 1
                assert "\n" not in str(error) and len(str(error)) < 1000
            else:
                kept += 1
                text = json.dumps(plan.to_json())
                assert json.dumps(ModelPlan.from_json(json.loads(text)).to_json()) == text
                order = order_from_data(json.loads(json.dumps(model.order.to_json())))
                assert order == model.order
    assert refused > 300 and kept > 10


def test_hostile_graphs_over_http(client: Any) -> None:
    data = model_data("hostile")
    random.seed(7)
    paths = list(_paths(data))
    for path in random.sample(paths, 40):
        body = json.dumps({"model": _with(data, path, random.choice(HOSTILE))})
        found = client.post(JOBS, content=body, headers={"Content-Type": "application/json"})
        assert found.status_code in {200, 201, 400, 422}, (path, found.text)
