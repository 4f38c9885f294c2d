"""Every operation of the OpenAPI document, with data that fits it and data that does not: what comes back is
what the document says, and never a failure of the server.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from needs import of_extra
from plain_server import NoTargets, plain_files
from small_libraries import spec_data

from dietcode_server.store import jobs, libraries, tokens
from dietcode_server.store.database import Database

schemathesis = pytest.importorskip("schemathesis", reason=of_extra("dev"))
from schemathesis.checks import not_a_server_error  # noqa: E402
from schemathesis.specs.openapi.checks import (  # noqa: E402
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

SEED, NUM_EXAMPLES = 7, 12 if os.environ.get("DIETCODE_TEST_LONG") else 3
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
URL = "http://127.0.0.1:8000"
some = settings(
    max_examples=NUM_EXAMPLES,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@dataclass
class Subject:
    """A server, its document, what there is on it, and headers of callers."""

    schema: Any
    document: dict[str, Any]
    database: Database
    existing: dict[str, list[str]]
    callers: list[dict[str, str]]

    def ask(self, case: Any, data: Any) -> int:
        """Send a request as one of the callers, hold the answer against the document, return its status."""
        headers = dict(data.draw(st.sampled_from(self.callers)))
        response = case.call(base_url=URL, headers=headers)
        case.validate_response(response, checks=CHECKS)
        return int(response.status_code)

    def settle(self) -> None:
        """Cancel what was resumed, so that its events end."""
        with self.database.write() as session:
            for job_id in self.existing["job_id"]:
                jobs.request_cancel(session, job_id)


@pytest.fixture(scope="module", params=["open", "with tokens"])
def subject(request, service, tmp_path_factory) -> Iterator[Subject]:
    database = Database(f"sqlite:///{tmp_path_factory.mktemp('data')}/dietcode.db")
    database.upgrade()
    limits = service.settings.model_copy(update={"max_jobs_per_owner": 5})
    server = replace(service, database=database, settings=limits, targets=NoTargets())
    job_id = server.add_job()
    with database.write() as session:
        row = libraries.publish(session, job=None, device_name="a test", files=plain_files("dense"))
        digest = row.manifest_digest
    schema = schemathesis.openapi.from_dict(server.app.openapi())
    schema.app = server.app
    callers: list[dict[str, str]] = [{}]
    if request.param == "with tokens":
        with database.write() as session:
            for scopes in (["read"], ["submit"], ["submit", "publish"], ["admin"]):
                _, token = tokens.create(session, "local", scopes, timedelta(days=1))
                callers.append({"Authorization": f"Bearer {token}"})
        callers.append({"Authorization": "Bearer dct_unknown"})
    existing = {"job_id": [job_id], "name": ["dense"], "version": ["1", "latest"], "digest": [digest]}
    yield Subject(schema, server.app.openapi(), database, existing, callers)
    database.dispose()


def operations(subject: Subject, mode: str) -> list[Any]:
    """All of them; for data that does not fit, those with more than a path, where every text fits."""
    found = [result.ok() for result in subject.schema.get_all_operations()]
    assert len(found) == 29
    raw = [(operation, subject.document["paths"][operation.path][operation.method]) for operation in found]
    return [
        operation
        for operation, described in raw
        if mode == "positive"
        or "requestBody" in described
        or any(parameter["in"] != "path" for parameter in described.get("parameters", []))
    ]


@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_answers_are_those_of_the_document(subject: Subject, mode: str) -> None:
    seen: set[int] = set()
    for operation in operations(subject, mode):
        cases = operation.as_strategy(generation_mode=schemathesis.GenerationMode(mode))

        @seed(SEED)
        @some
        @given(case=cases, data=st.data())
        def ask(case: Any, data: Any) -> None:
            for name in case.path_parameters or {}:
                if name in subject.existing and data.draw(st.integers(0, 3)):
                    case.path_parameters[name] = data.draw(st.sampled_from(subject.existing[name]))
            seen.add(subject.ask(case, data))

        subject.settle()
        ask()
    expected = {200, 404} if mode == "positive" else {422}
    expected |= {401, 403} if len(subject.callers) > 1 else set()
    assert expected <= seen, seen


def test_specs_that_nearly_fit(subject: Subject) -> None:
    """Bodies made from a good one: each field in turn is something else."""
    operation = subject.schema["/api/v1/jobs"]["POST"]
    odd = (
        st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=2)
    )
    paths = [(name,) for name in spec_data()] + [("shape_vars", "T"), ("dims", "m"), ("tensors", "X")]
    seen: set[int] = set()

    @seed(SEED)
    @settings(some, max_examples=4 * NUM_EXAMPLES)
    @given(path=st.sampled_from(paths), value=odd, data=st.data())
    def ask(path: tuple[str, ...], value: Any, data: Any) -> None:
        spec = spec_data()
        node: Any = spec
        for part in path[:-1]:
            node = node[part]
        node[path[-1]] = value
        body = {"spec": spec, "force": data.draw(st.booleans())}
        case = operation.Case(body=body, media_type="application/json")
        seen.add(subject.ask(case, data))

    ask()
    assert 422 in seen
