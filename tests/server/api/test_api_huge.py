"""Huge sizes, and numbers that name nothing, wherever a model, recursion or program has a value."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest
from hostile_models import HUGE, KINDS, changed, leaves, request_of
from made_gpu import gpu_spec, lines_of, made_records

from dietcode.backends.table import backend_of
from dietcode.errors import DietCodeError
from dietcode.tuner.assembly import assemble
from dietcode.workload.parse import spec_from_data
from dietcode_server.store.exchange import read_lines

_MOST_SECS = 5.0  # on a machine that is busy; each takes a few milliseconds
_TIMES = (5e-324, 1e-300, 1e-30, 1e30, 1e308, 0.0, -1.0, 2**63, "1")


@pytest.mark.parametrize("kind", KINDS)
def test_huge_sizes_are_refused_soon_or_are_jobs(client: Any, kind: str) -> None:
    data = request_of(kind, f"huge-{kind}")
    random.seed(27)
    refused = 0
    for path in random.sample(list(leaves(data)), 50):
        body = json.dumps({"model": changed(data, path, random.choice(HUGE))})
        started = time.monotonic()
        found = client.post("/api/v1/jobs", content=body, headers={"Content-Type": "application/json"})
        assert time.monotonic() - started < _MOST_SECS, path
        assert found.status_code in {200, 201, 413, 422}, (path, found.text)
        assert len(found.text) < 1 << 20
        refused += found.status_code in {413, 422}
        if found.status_code == 201:
            client.post(f"/api/v1/jobs/{found.json()['id']}/cancel", json={})
    assert refused > 30


def test_poisoned_records_of_a_gpu_are_refused_or_fitted() -> None:
    """Whatever an import says was measured: numbers that JSON holds, soon, or an error of DietCode's own."""
    spec = spec_from_data(gpu_spec())
    backend = backend_of(spec)
    task = backend.task(spec)
    lines = json.loads(json.dumps(lines_of(made_records())))
    random.seed(28)
    poisoned = [
        changed(lines, path, random.choice((*HUGE, *_TIMES)))
        for path in random.sample([path for path in leaves(lines) if len(path) > 1], 120)
    ]
    for secs in _TIMES[:5]:
        for kind in ("calibration", "micro_kernel"):
            times = [
                number for number, one in enumerate(lines) if one.get("kind") == kind and one.get("secs")
            ]
            given = lines
            for number in times:
                given = changed(given, (number, "secs"), [secs] * len(lines[number]["secs"]))
            poisoned.append(given)
    fitted = refused = 0
    for given in poisoned:
        started = time.monotonic()
        try:
            records = read_lines(given)
            parts = assemble(task, backend, backend.target_of(records, "the records"), records)
        except DietCodeError as error:
            refused += 1
            assert "\n" not in str(error)
        else:
            fitted += 1
            json.dumps(parts.report, allow_nan=False)
        assert time.monotonic() - started < _MOST_SECS
    assert refused > 50 and fitted > 3
