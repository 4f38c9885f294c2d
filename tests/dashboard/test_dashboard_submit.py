"""The page that submits a workload: what it says of a text, and the job that comes of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from made_app import HOSTILE, URL, MadeApp, opened, text_of
from small_libraries import ROOT, spec_data
from sqlalchemy import update

from dietcode.workload.parse import parse_spec, spec_from_data
from dietcode.workload.summary import summarise
from dietcode_server.dashboard.spec_examples import spec_examples
from dietcode_server.dashboard.spec_text import spec_text
from dietcode_server.engine.targets import Resolved, Targets
from dietcode_server.store.subjects import utc_now
from dietcode_server.store.tables import JobRow, TuningRecord
from dietcode_server.store.tokens import create

EXAMPLE = spec_examples()["bert-dense"].text
DEVICE = ("cpu0", "A test CPU", {"kind": "llvm", "mcpu": "test", "num_cores": 2})


class OneDevice(Targets):
    """Every target is that of one device; counts how often it was asked for."""

    num_asked = 0

    def resolve(self, spec: Any) -> Resolved:
        self.num_asked += 1
        return Resolved(DEVICE[2], DEVICE, True)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MadeApp]:
    with opened(tmp_path_factory.mktemp("data"), OneDevice(), max_trials=500, max_body_bytes=200_000) as made:
        yield made


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MadeApp]:
    """Where nothing can be measured."""
    with opened(tmp_path_factory.mktemp("data")) as made:
        yield made


def check(app: MadeApp, text: str, **options: Any) -> Any:
    found = app.client.post("/submit/check", json={"text": text, **options})
    assert found.status_code == 200, found.text
    return found.json()


def said(app: MadeApp, text: str, **options: Any) -> str:
    found = check(app, text, **options)
    assert found["problems"] == []
    return text_of(found["html"])


def text_for(name: str, **changes: Any) -> str:
    return spec_text(spec_data(name, **changes))


def test_it_begins_with_an_example_and_shows_them_all(app):
    page = app.page("/submit")
    shown = text_of(page.split("<textarea")[1].split(">", 1)[1].split("</textarea>")[0])
    assert shown == " ".join(EXAMPLE.split())
    for name, example in spec_examples().items():
        assert f'href="/submit?example={name}"' in page
        assert example.about and example.about in text_of(page)
    assert "dense-rows" in app.page("/submit?example=dense-rows").split("<textarea")[1]
    first = ", ".join(list(spec_examples())[:3])
    assert f"no such example; allowed: {first}" in text_of(app.page("/submit?example=none", 404))


@pytest.mark.parametrize("name", spec_examples())
def test_every_example_is_right(name, app):
    assert "instances" in said(app, spec_examples()[name].text, settled=False)


def test_a_wheel_has_examples_and_documentation_where_they_are_looked_for():
    built = PROJECT.partition("[tool.hatch.build.targets.wheel.force-include]")[2].partition("\n[")[0]
    for folder in ("examples", "docs"):
        assert f'"{folder}" = "dietcode_server/dashboard/{folder}"\n' in built
    assert set(spec_examples()) == {path.stem for path in (ROOT / "examples").glob("*.yaml")}


PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("old", "new", "field", "shown"),
    [
        ("min: 1", "min: 0", "shape_vars.T.min", "0"),
        ("dtype: float32, constant", "dtype: float33, constant", "tensors.W.dtype", "float33"),
        ("budget:", "budgt:", "budgt", "budgt"),
        ("mk,nk->mn", "mk,nk->mz", "op.einsum", '"mk,nk->mz"'),
        ("n: 2304", "n: 2304*S", "dims.n", "2304*S"),
        ("trials: 128", "trials: 501", "budget.trials", "501"),  # more than this server allows
        ("output:", "name: other\noutput:", None, "name"),  # no YAML that is allowed
        ("name: bert-dense", "name: 'Ünïcode 🙂'", "name", "'Ünïcode 🙂'"),
    ],
)
def test_errors_are_at_the_field(old, new, field, shown, app):
    text = EXAMPLE.replace(old, new)
    assert text != EXAMPLE
    found = check(app, text)
    problem = found["problems"][0]
    line = text.split("\n")[problem["line"] - 1]
    assert line[problem["column"] - 1 : problem["end_column"] - 1] == shown
    assert problem["field"] == field
    assert f'data-line="{problem["line"]}"' in found["html"]
    answer = app.client.post("/submit", json={"text": text})
    assert answer.status_code == 422 and (answer.json()["field"] or None) == field
    if field is not None:
        plain = app.client.post("/api/v1/jobs", json={"spec": yaml.safe_load(text)}).json()
        assert (plain["field"], plain["detail"]) == (field, problem["message"]), "as the API says it"


def test_several_problems_are_shown_at_once(app):
    text = EXAMPLE.replace("min: 1", "min: 0").replace("budget:", "budgt:")
    assert {one["field"] for one in check(app, text)["problems"]} == {"budgt", "shape_vars.T.min"}


def test_the_compiler_says_what_is_wrong_with_a_target(tmp_path):
    text = EXAMPLE.replace("{kind: llvm}", "{kind: llvm, mcpu: zen99}")
    with opened(tmp_path, Targets()) as app:
        (problem,) = check(app, text)["problems"]
    line = text.split("\n")[problem["line"] - 1]
    assert line[problem["column"] - 1 : problem["end_column"] - 1] == "zen99"
    assert problem["field"] == "target.mcpu" and "unknown to LLVM" in problem["message"]


def test_the_target_is_looked_up_only_when_the_text_is_settled(tmp_path):
    targets = OneDevice()
    with opened(tmp_path, targets) as app:
        assert "Looking up the target" in said(app, EXAMPLE, settled=False)
        assert targets.num_asked == 0
        assert "A test CPU" in said(app, EXAMPLE)
        assert targets.num_asked == 1


def test_a_right_spec_is_put_into_words(app):
    page = said(app, EXAMPLE)
    for words in (
        "Y[m, n] = Σk X[m, k] · W[n, k]",
        "rows (of X) m = 16*T ≤ 2 048",
        "columns (of W) n = 2304",
        "reduction k = 768",
        "instances 128",
        "largest T = 128",
        "its FLOPs 7.25 G",
        "target test, 2 cores",
        "Nothing is known yet",
    ):
        assert words in page


def test_convolutions_epilogues_and_arguments_by_name_are_put_into_words(app):
    conv = said(app, spec_examples()["resnet50-conv3x3"].text)
    assert "conv2d of NHWC and OIHW: X[n, h, w, c], W[o, c, r, s]" in conv and "instances 17" in conv
    fused = said(app, spec_examples()["bert-dense-proj-residual"].text)
    assert "then bias, residual R" in fused
    by_name = text_for(
        "k", shape_vars={v: {"min": 1, "max": 4} for v in "AB"}, dims={"m": "A*B", "n": 8, "k": 4}
    )
    assert "given by name in a call A" in said(app, by_name)
    many = text_for("s", shape_vars={"T": {"min": 1, "max": 100_000}})
    assert "instances 4 096 for 100 000 shapes" in said(app, many)


def test_a_summary_has_the_figures_of_the_largest_instance():
    found = summarise(spec_from_data(spec_data("x", shape_vars={"T": {"values": [2, 8]}})))
    assert found.largest == {"T": 8} and found.num_instances == found.num_shapes == 2
    assert found.flops == 2.0 * 128 * 64 * 48
    assert found.tensor_bytes == 4.0 * (128 * 48 + 64 * 48 + 128 * 64)


def test_it_says_what_is_known_and_what_is_before(app):
    text = text_for("known", dims={"m": "16*T", "n": 80, "k": 48})
    assert "Nothing is known yet" in said(app, text)
    assert "there is nothing to select from" in said(app, text, measure=False)
    job = app.client.post("/submit", json={"text": text}).json()
    with app.database.write() as session:
        for number in range(34):
            for error in (None, "wrong") if number == 0 else (None, None):
                session.add(
                    TuningRecord(
                        workload=job["workload"],
                        device_id=DEVICE[0],
                        kind="micro_kernel",
                        micro_kernel=f"{number + 1}x16",
                        error=error,
                        line={},
                        created_at=utc_now(),
                    )
                )
        session.add(
            TuningRecord(
                workload=job["workload"],
                device_id=DEVICE[0],
                kind="calibration",
                line={},
                created_at=utc_now(),
            )
        )
    page = said(app, text.replace("known", "other"))
    assert "Known: 34 micro-kernels of this workload on this device; this will take less time." in page
    assert re.search(r"before it [1-9]\d* job", page)
    assert "all will be measured again" in said(app, text, force=True)


def test_it_says_which_job_is_there_already(app):
    text = text_for("again", dims={"m": "16*T", "n": 96, "k": 48})
    assert "This is a job already" not in said(app, text)
    job = app.client.post("/submit", json={"text": text}).json()
    assert f"This is a job already: {job['id']} queued" in said(app, text)
    assert "This is a job already" not in said(app, text, force=True)
    assert "This is a job already" not in said(app, text, measure=False), "another job"


def test_it_says_that_a_job_will_wait(waiting):
    page = said(waiting, EXAMPLE)
    assert "The job will wait: no runner can measure mcpu test; run dietcode worker" in page
    assert "none that is here" in page


def test_submitting_is_what_the_api_does(app):
    text = text_for("same", dims={"m": "16*T", "n": 112, "k": 48})
    first = app.client.post("/submit", json={"text": text, "priority": 7, "deadline": 3600})
    job = first.json()
    assert first.status_code == 201 and (job["name"], job["priority"]) == ("same", 7) and job["deadline_at"]
    again = app.client.post("/submit", json={"text": "# another comment\n" + text})
    assert (again.status_code, again.json()["id"]) == (200, job["id"])
    plain = app.client.post("/api/v1/jobs", json={"spec": yaml.safe_load(text)})
    assert (plain.status_code, plain.json()["id"]) == (200, job["id"])


def test_a_second_click_makes_no_second_job(app):
    body = {"text": text_for("forced"), "force": True}
    made = [app.client.post("/submit", json=body, headers={"Idempotency-Key": "page-1"}).json() for _ in "12"]
    assert made[0]["id"] == made[1]["id"] and made[0]["force"]
    assert (
        app.client.post("/submit", json=body, headers={"Idempotency-Key": "page-2"}).json()["id"]
        != made[0]["id"]
    )


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"text": EXAMPLE, "force": True, "measure": False}, 422, "give one of them"),
        ({"text": EXAMPLE, "priority": 101}, 422, "priority"),
        ({"text": EXAMPLE, "deadline": -1}, 422, "deadline"),
        ({"text": "x" * 66_000}, 422, "64 KiB"),
        ({"text": "x" * 300_000}, 413, "larger than 200000 bytes"),
        ({"text": ""}, 422, "empty"),
        ({"text": "a: &x 1\nb: *x"}, 422, "anchors"),
        ({"spec": {}}, 422, "text: missing"),
    ],
)
def test_what_is_refused(body, status, words, app):
    answer = app.client.post("/submit", json=body)
    assert answer.status_code == status and words in answer.json()["detail"], answer.text


def test_pages_of_other_origins_cannot_submit(app):
    for headers in ({"origin": "https://example.org"}, {"sec-fetch-site": "cross-site"}):
        for path in ("/submit", "/submit/check"):
            assert app.client.post(path, json={"text": EXAMPLE}, headers=headers).status_code == 403
    form = app.client.post("/submit", data={"text": EXAMPLE})
    assert form.status_code == 415


def test_a_job_can_be_cloned(app):
    text = text_for(
        "cloned",
        op={"einsum": "mk,nk->mn", "epilogue": ["bias", {"gelu": "erf"}]},
        shape_vars={"T": {"min": 1, "max": 9, "weights": {1: 0.5, 9: 0.5}}},
        objective={"binary_size": 0.0, "max_loss": 0.25},
    )
    job = app.client.post("/submit", json={"text": text}).json()
    page = app.page(f"/submit?from={job['id']}")
    shown = page.split("<textarea")[1].split(">\n", 1)[1].split("</textarea>")[0]
    assert f'href="/jobs/{job["id"]}"' in page
    again = app.client.post("/submit", json={"text": shown.replace("&#39;", "'").replace("&gt;", ">")})
    assert (again.status_code, again.json()["id"]) == (200, job["id"])
    assert app.client.get("/submit?from=0123456789abcdef").status_code == 404


def test_a_model_has_no_spec_to_clone(app):
    job = app.client.post("/submit", json={"text": text_for("a-model", dims={"m": "16*T", "n": 16, "k": 8})})
    with app.database.write() as session:
        changes = {"kind": "model", "spec": {"name": "a-model", "graph": {}}}
        session.execute(update(JobRow).where(JobRow.id == job.json()["id"]).values(**changes))
    page = app.page(f"/submit?from={job.json()['id']}")
    assert page.split("<textarea")[1].split(">\n", 1)[1].split("</textarea>")[0].strip() == ""
    assert "is a model, which has no spec" in text_of(page) and "dietcode submit MODEL" in text_of(page)
    assert "This is the spec of" not in page


def test_a_spec_is_written_as_a_person_would():
    spec = parse_spec(EXAMPLE)
    text = spec_text(spec.to_json())
    assert parse_spec(text) == spec
    assert "constant: false" not in text and "null" not in text and "tensors:\n  X: {dims: mk" in text
    large = spec_data(
        "large", shape_vars={"T": {"min": 1, "max": 5000, "weights": dict.fromkeys(range(1, 5000), 1.0)}}
    )
    long = spec_text(spec_from_data(large).to_json())
    assert json.loads(long)["name"] == "large" and parse_spec(long) == spec_from_data(large)


def test_a_spec_that_is_too_long_for_the_editor_says_so(app):
    weights = dict.fromkeys(range(1, 8000), 1.0)
    spec = spec_data("long", shape_vars={"T": {"min": 1, "max": 8000, "weights": weights}})
    job = app.client.post("/api/v1/jobs", json={"spec": spec}).json()
    page = app.page(f"/submit?from={job['id']}")
    assert "longer than the 64.0 KiB that fit here" in text_of(page) and f"/api/v1/jobs/{job['id']}" in page


def test_everything_is_escaped(app):
    found = check(app, f"name: {json.dumps(HOSTILE)}\n{json.dumps(HOSTILE)}: 1\n")
    assert "<script>" not in found["html"] and "&lt;script&gt;" in found["html"]
    job = app.client.post(
        "/submit", json={"text": text_for("hostile", dims={"m": "16*T", "n": 8, "k": 8})}
    ).json()
    with app.database.write() as session:
        changes = {"name": HOSTILE, "spec": spec_data() | {"name": HOSTILE + "</textarea>"}}
        session.execute(update(JobRow).where(JobRow.id == job["id"]).values(**changes))
    page = app.page(f"/submit?from={job['id']}")
    assert "<script>alert" not in page and page.count("</textarea>") == 1


def test_a_token_that_only_reads_sees_the_page_and_submits_nothing(tmp_path):
    with opened(tmp_path, OneDevice()) as app:
        with app.database.write() as session:
            _, secret = create(session, "alice", ["read"], None)
        assert app.client.get("/submit").status_code == 401
        app.client.headers["authorization"] = f"Bearer {secret}"
        page = app.page("/submit")
        assert "To submit needs a token with" in text_of(page) or "needs a token with submit" in text_of(page)
        assert re.search(r'id="send"\s+disabled', page)
        for path in ("/submit", "/submit/check"):
            assert app.client.post(path, json={"text": EXAMPLE}).status_code == 403


def test_checks_are_quick(app):
    """Somebody types: no check may wait for the compiler, or read a text for long."""
    weights = ", ".join(f"{n}: 1" for n in range(1, 5000))
    text = EXAMPLE.replace("max: 128", f"max: 5000, weights: {{{weights}}}")
    assert len(text) < 64 << 10
    assert "instances 4 096" in said(app, text, settled=False)


def test_links_lead_here_from_anywhere(app):
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert app.client.get(f"{URL}/submit?example=dense-odd", headers=headers).status_code == 200
