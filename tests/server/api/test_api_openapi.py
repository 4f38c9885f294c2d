"""The OpenAPI document is complete, and its examples are true."""

from __future__ import annotations

import json

import pytest

from dietcode.protocol import (
    ComparedInstance,
    Job,
    JobEvent,
    JobPage,
    KeyList,
    LibraryComparison,
    LibraryInfo,
    LibraryPage,
    ProblemDetails,
    RecordsExport,
    RecordsImport,
    RecordsImported,
    RecordsList,
    Runner,
    RunnerList,
    SubmitRequest,
    TokenList,
    TokenMade,
    TokenRequest,
)
from dietcode.workload.parse import spec_from_data
from dietcode_server.api import examples


@pytest.fixture(scope="module")
def document(client) -> dict:
    return client.get("/openapi.json").json()


@pytest.fixture(scope="module")
def operations(document) -> list:
    return [
        (f"{method.upper()} {path}", operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


def shown(content: dict) -> list:
    """Examples of one body."""
    return (
        [content["example"]]
        if "example" in content
        else [e["value"] for e in content.get("examples", {}).values()]
    )


def test_the_documented_operations(operations):
    assert {name for name, _ in operations} == {
        "POST /api/v1/jobs",
        "GET /api/v1/jobs",
        "GET /api/v1/jobs/{job_id}",
        "POST /api/v1/jobs/{job_id}/cancel",
        "POST /api/v1/jobs/{job_id}/resume",
        "GET /api/v1/jobs/{job_id}/events",
        "GET /api/v1/runners",
        "POST /api/v1/records",
        "GET /api/v1/records/{workload}",
        "GET /api/v1/records/{workload}/{device}",
        "GET /api/v1/libraries",
        "GET /api/v1/libraries/{name}",
        "GET /api/v1/libraries/{name}/{version}",
        "GET /api/v1/libraries/{name}/{version}/info",
        "GET /api/v1/libraries/{name}/{version}/comparison",
        "GET /api/v1/libraries/{name}/{version}/provenance",
        "GET /api/v1/libraries/{name}/{version}/signature",
        "GET /api/v1/libraries/{name}/head",
        "GET /api/v1/keys",
        "GET /api/v1/tokens",
        "POST /api/v1/tokens",
        "DELETE /api/v1/tokens/{token_id}",
        "POST /api/v1/libraries/{name}/{version}/yank",
        "POST /api/v1/libraries/{name}/{version}/unyank",
        "GET /api/v1/blobs/{digest}",
        "HEAD /api/v1/blobs/{digest}",
        "GET /healthz",
        "GET /readyz",
        "GET /metrics",
    }


def test_every_operation_is_described(operations):
    for name, operation in operations:
        assert operation["summary"] and operation["description"], name
        for parameter in operation.get("parameters", []):
            assert parameter["in"] == "path" or parameter.get("description"), (name, parameter["name"])
        success = operation["responses"]["201" if "201" in operation["responses"] else "200"]
        assert all(shown(content) for content in success["content"].values()), name
    assert len({operation["operationId"] for _, operation in operations}) == len(operations)


def test_every_operation_documents_its_problems(operations):
    for name, operation in operations:
        statuses = {int(status) for status in operation["responses"]}
        assert {403, 421, 500, 503} <= statuses, name
        if "{" in name:
            assert 404 in statuses, name
        if operation.get("parameters"):
            assert 422 in statuses, name
        if name.startswith("POST"):
            assert {413, 415} <= statuses, name
        if name.startswith("POST /api/v1/jobs"):
            assert 409 in statuses, name
        for of_tokens in (401, 429):
            assert (of_tokens in statuses) == (name not in {"GET /healthz", "GET /readyz"}), name
        for status, response in operation["responses"].items():
            if int(status) < 400:
                continue
            content = response["content"]
            assert list(content) == ["application/problem+json"], (name, status)
            body = content["application/problem+json"]
            assert body["schema"] == {"$ref": "#/components/schemas/ProblemDetails"}
            for example in shown(body):
                assert ProblemDetails.model_validate(example).status == int(status)


def test_references_lead_somewhere(document):
    text = json.dumps(document)
    named = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert named <= set(document["components"]["schemas"])
    assert "HTTPValidationError" not in text


def test_the_examples_fit_the_models():
    for model, example in (
        (Job, examples.JOB),
        (JobPage, examples.JOB_PAGE),
        (JobEvent, examples.EVENT),
        (LibraryInfo, examples.LIBRARY),
        (LibraryPage, examples.LIBRARY_PAGE),
        (LibraryComparison, examples.COMPARISON),
        (ComparedInstance, examples.COMPARISON["instances"][0]),
        (KeyList, examples.KEYS),
        (RecordsExport, examples.RECORDS_FILE),
        (RecordsImport, examples.RECORDS_IMPORT),
        (RecordsImported, examples.RECORDS_IMPORTED),
        (RecordsList, examples.RECORDS_LIST),
        (RunnerList, examples.RUNNERS),
        (Runner, examples.RUNNERS["runners"][0]),
        (SubmitRequest, examples.SUBMIT),
        (TokenList, examples.TOKENS),
        (TokenRequest, examples.TOKEN_REQUEST),
        (TokenMade, examples.TOKEN_MADE),
    ):
        assert set(example) == set(model.model_fields)
        assert model.model_validate(example)
    assert spec_from_data(examples.SPEC).name == "bert-dense"
    for line in examples.EVENTS.splitlines():
        if line.startswith("data: "):
            assert {"id", "job", "kind", "state"} <= set(json.loads(line.removeprefix("data: ")))


def test_real_answers_have_the_fields_of_the_examples(service):
    job_id = service.add_job()
    assert set(service.client.get(f"/api/v1/jobs/{job_id}").json()) == set(examples.JOB)
