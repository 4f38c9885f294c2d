"""Recursions over HTTP: submitted as data, steered, and refused as data at no cost."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from small_recursions import recursion_data
from sqlalchemy import func, select

from dietcode_server.store.tables import JobRow, Workload

JOBS = "/api/v1/jobs"


def test_a_recursion_is_a_job_once_and_is_steered(client: Any) -> None:
    body = {"model": recursion_data("once-tree")}
    first = client.post(JOBS, json=body)
    assert first.status_code == 201, first.text
    job = first.json()
    assert (job["kind"], job["spec"]["recursion"]) == ("model", {"max_nodes": 64, "max_level": 16})
    again = client.post(JOBS, json=body)
    assert again.status_code == 200 and again.json()["id"] == job["id"]
    assert client.post(f"{JOBS}/{job['id']}/cancel", json={}).json()["state"] == "cancelled"
    resumed = client.post(f"{JOBS}/{job['id']}/resume", json={}).json()
    assert (resumed["state"], resumed["id"]) == ("queued", job["id"])


def _cycle(data: dict[str, Any]) -> None:
    """The first node reads what the last one computes."""
    nodes = data["cell"]["nodes"]
    nodes[0]["operands"][0] = {"value": nodes[-1]["results"][0]}


def _set(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        inner: Any = data
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (_cycle, "cell.nodes.0"),
        (_set("cell", "nodes", 0, "operator", value="exec"), "cell.nodes.0"),
        (_set("states", value=[[16, 1]]), "cell.inputs"),
        (_set("states", value=[[17]]), "cell.inputs"),
        (_set("states", value=[[16], [16]]), "cell.inputs"),
        (_set("states", value=[[2**62]]), "states.0"),
        (_set("children", value=10**9), "children"),
        (_set("max_nodes", value=10**12), "max-nodes"),
        (_set("samples", "nodes", value={"5": 2**63}), "samples.nodes.5"),
        (_set("samples", "shown", value=[[0]]), "samples.shown.0"),
        (_set("cell", "outputs", value=[]), "cell.outputs"),
        (_set("cell", value=None), "cell"),
    ],
)
def test_hostile_recursions_cost_nothing(
    service: Any, problem: Any, change: Callable[[dict[str, Any]], None], path: str
) -> None:
    def rows() -> tuple[Any, ...]:
        with service.database.read() as session:
            counted = (session.scalar(select(func.count()).select_from(one)) for one in (JobRow, Workload))
            return *counted, service.supervisor.wakes

    body = json.loads(json.dumps({"model": recursion_data("hostile-tree")}))
    wrong = copy.deepcopy(body)
    change(wrong["model"]["recursion"])
    assert wrong != body
    before = rows()
    document = problem(service.client.post(JOBS, json=wrong), 422, "request")
    assert path in document["detail"] and len(document["detail"]) < 1000
    assert rows() == before
