"""A service without a GPU: a job waits, records come, a library is published, shown and pulled."""

from __future__ import annotations

import functools
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from made_app import MadeApp, opened, text_of
from made_gpu import ARCH, NAME, gpu_spec, lines_of, made_records
from needs import needs_nvrtc

from dietcode.backends.cuda.backend import CudaBackend
from dietcode.errors import LibraryError, TargetError
from dietcode.runtime.manifest import MANIFEST, read_manifest
from dietcode_server.engine import worker
from dietcode_server.engine.targets import Targets
from dietcode_server.store import libraries, runners, tokens
from dietcode_server.store.runners import AnnouncedDevice
from dietcode_server.store.subjects import utc_now

pytestmark = needs_nvrtc
BUILDER = AnnouncedDevice(
    "cpu0", "A test CPU", {"kind": "llvm", "mcpu": "test", "num_cores": 2}, {"mcpu": "test"}, "rack1", True
)

_ROUND = {"kind": "round", "number": 1, "message": "round 1", "stop": None, "gain": None, "promise": None}
_ROUND |= {"model": None} | {key: [] for key in ("measured", "pruned", "failed", "dropped")}
_ROUND |= {"expansions": [], "added": []}


class Gpus(MadeApp):
    """An application, with a real worker for its jobs."""

    def submit(self, spec: dict[str, Any], **options: Any) -> dict[str, Any]:
        answer = self.client.post("/api/v1/jobs", json={"spec": spec, **options})
        assert answer.status_code in {200, 201}, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def send(self, records: Any, status: int = 200, **options: Any) -> dict[str, Any]:
        answer = self.client.post("/api/v1/records", json={"lines": lines_of(records), **options})
        assert answer.status_code == status, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def announce(self, *devices: AnnouncedDevice) -> None:
        with self.database.write() as session:
            assert runners.announce(
                session,
                name="rack1",
                process="rack1.example/7/1.0",
                engine="local",
                version="0.1.0",
                devices=devices,
                started_at=utc_now(),
                lease_secs=600,
            )

    def run(self, job_id: str) -> dict[str, Any]:
        """What a worker that was started for a job does; the job then."""
        worker.work(self.database, job_id, self.settings.data_dir / "work", 60.0, 600.0, "rack1")
        found: dict[str, Any] = self.client.get(f"/api/v1/jobs/{job_id}").json()
        return found


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gpus]:
    """Machine code is made for one architecture: seven take seven times as long."""
    patch = pytest.MonkeyPatch()
    patch.setattr(CudaBackend, "archs", (ARCH,))
    made = Gpus(tmp_path_factory.mktemp("gpus"), Targets())
    yield made
    made.database.dispose()
    patch.undo()


@pytest.fixture(scope="module")
def published(app: Gpus) -> dict[str, Any]:
    """A job that waited, got records, was built and published; as it is now, with what it said meanwhile."""
    job = app.submit(gpu_spec())
    waiting = {"job": job, "page": app.page(f"/jobs/{job['id']}"), "devices": app.page("/devices")}
    early = app.send(made_records())
    told = app.client.get(f"/api/v1/jobs/{job['id']}").json()
    app.announce(BUILDER)
    again = app.send(made_records())
    return app.run(job["id"]) | {"waiting": waiting, "early": early, "told": told, "again": again}


@pytest.mark.thorough
def test_a_job_waits_and_says_for_what(published: dict[str, Any]) -> None:
    job = published["waiting"]["job"]
    assert (job["state"], job["target"]) == ("waiting_for_runner", {"kind": "cuda", "arch": ARCH})
    assert job["waits_for"] == (
        f"no runner has a GPU of {ARCH}; run `dietcode worker` on a machine with one, or import records "
        "measured on one (`dietcode records import FILE --server URL`)"
    )
    assert job["standing"] == f"experimental: no record from a GPU of {ARCH} yet"
    assert job["standing"] in text_of(published["waiting"]["page"])
    devices = text_of(published["waiting"]["devices"])
    assert f"no runner has a GPU of {ARCH}" in devices and "experimental: no record from one yet" in devices
    assert "not by jobs of this service" not in devices and "`" not in devices


def test_records_alone_want_somebody_who_builds(published: dict[str, Any]) -> None:
    assert (published["early"]["added"], published["early"]["queued"]) == (4, [])
    assert published["told"]["waits_for"].startswith(f"no runner can build for {ARCH}; run `dietcode worker`")
    assert published["told"]["standing"] == f"measured on {NAME}"
    assert (published["again"]["added"], published["again"]["known"]) == (0, 4)
    assert published["again"]["queued"] == [published["id"]]


def test_a_field_is_named_once(app: Gpus) -> None:
    answer = app.client.post("/api/v1/jobs", json={"spec": gpu_spec("odd", arch="sm_91")})
    problem = answer.json()
    assert (answer.status_code, problem["field"]) == (422, "target.arch")
    assert problem["detail"].startswith("given 'sm_91'; allowed:") and "did you mean" in problem["detail"]


def test_the_library_is_published_with_machine_code(app: Gpus, published: dict[str, Any]) -> None:
    assert published["state"] == "succeeded", published["error"]
    assert (published["device"], published["device_id"]) == (NAME, "f00d") and published["measured"] == 0
    info = app.client.get("/api/v1/libraries/on-gpu/latest/info").json()
    assert (info["device"], info["standing"]) == (NAME, f"measured on {NAME}")
    events = app.client.get(f"/api/v1/jobs/{published['id']}/events").text
    assert "compared on one, by benchmarks/gpu" in events and f"micro-kernels measured on {NAME}" in events
    assert app.client.get("/api/v1/libraries/on-gpu/latest/comparison").json()["instances"] == []


def test_the_pages_of_a_library_for_gpus(app: Gpus, published: dict[str, Any]) -> None:
    page = text_of(app.page("/libraries/on-gpu/1"))
    for words in (
        f"standing measured on {NAME}",
        "machine code for sm_90a",
        'device="cuda"',
        "target sm_90a",
    ):
        assert words in page
    result = text_of(app.page(f"/jobs/{published['id']}/result"))
    for words in ("thread 4x4", "stages 2", "splits 2", "registers", "f_spatial: fitted and measured", NAME):
        assert words in result
    data = app.client.get("/libraries/on-gpu/1/result.json").json()
    assert len(data["category"]) == 8 and data["slots"] is None and data["fit"]["slots"] == 8
    (kernel,) = [name for name in data["kernels"] if name == "32x64-t4x4-k16"]
    code = text_of(app.page(f"/libraries/on-gpu/1/micro-kernels/{kernel}"))
    assert "as CUDA C++" in code and "__global__" in code
    assert NAME in text_of(app.page("/libraries")) and NAME in text_of(app.page("/libraries/on-gpu"))
    devices = text_of(app.page("/devices"))
    for words in (f"{NAME} sm_90a", "multiprocessors (SMs) 4", "on-gpu@1", "belongs to a workload"):
        assert words in devices
    assert "experimental" not in devices


def test_what_is_typed_is_told_that_nothing_will_be_measured(app: Gpus, published: dict[str, Any]) -> None:
    def told(spec: dict[str, Any], **options: Any) -> str:
        answer = app.client.post("/submit/check", json={"text": json.dumps(spec), **options})
        return text_of(answer.json()["html"])

    other = gpu_spec("other")
    assert f"from records of {NAME}" in told(other) and "nothing will be measured" in told(other)
    assert "experimental: no record yet" not in told(other)
    assert f"The job will wait: no runner has a GPU of {ARCH}" in told(other, force=True)
    assert "experimental: no record yet" in told(gpu_spec("new", dims={"m": "T", "n": 64, "k": 48}))
    assert "did you mean" in told(gpu_spec("odd", arch="sm_91"))


@pytest.mark.long
def test_another_objective_is_selected_from_the_records(app: Gpus, published: dict[str, Any]) -> None:
    spec = published["spec"] | {"objective": {"max_kernels": 1}}
    job = app.submit(spec, measure=False)
    assert (job["state"], job["device"]) == ("queued", None)
    done = app.run(job["id"])
    assert done["state"] == "succeeded" and done["library"] == {"name": "on-gpu", "version": 2}
    assert app.client.get("/api/v1/libraries/on-gpu/2/info").json()["num_micro_kernels"] == 1


def test_records_come_back_as_they_were(app: Gpus, published: dict[str, Any]) -> None:
    given = made_records()
    route = f"/api/v1/records/{given.workload}"
    (found,) = app.client.get(route).json()["devices"]
    assert (found["id"], found["name"], found["num_micro_kernels"]) == ("f00d", NAME, 4)
    lines = app.client.get(f"{route}/f00d").json()["lines"]
    assert lines[0] == lines_of(given)[0]
    key = functools.partial(json.dumps, sort_keys=True)
    assert sorted(lines[1:], key=key) == sorted(json.loads(json.dumps(lines_of(given)[1:])), key=key)
    for missing in (f"{route}/cpu0", "/api/v1/records/sha256:none", f"{route}/%00"):
        assert app.client.get(missing).status_code == 404


def _renamed(lines: list[Any]) -> None:
    lines[0]["device"]["name"] = "another GPU"


@pytest.mark.parametrize(
    ("change", "status", "says"),
    [
        (lambda lines: lines[0]["device"].update(synthetic=True), 422, "synthetic"),
        (
            lambda lines: lines[0]["device"].pop("num_sms"),
            422,
            "lines.0: no record of a GPU: num_sms is missing",
        ),
        (lambda lines: lines[0]["device"].update(target={"kind": "llvm"}), 422, "names no GPU"),
        (lambda lines: lines[0]["device"].update(id="../x"), 422, "device.id"),
        (lambda lines: lines[0].update(format="dietcode-records/9"), 422, "this version reads"),
        (lambda lines: lines[-1].update(rows=101), 422, "lines.5: no record of a GPU"),
        (lambda lines: lines[2]["secs"].append(1.0), 422, "times for 4 points"),
        (lambda lines: lines[2].update(rows=10**40, thread_rows=10**39), 422, "lines.2: no record of a GPU"),
        (lambda lines: lines[2].update(splits=1000), 422, "up to 16 splits"),
        (lambda lines: lines[1].update(num_blocks=[1] * 1025, secs=[1.0] * 1025), 422, "1025 times"),
        (lambda lines: lines[2]["secs"].__setitem__(0, 5e-324), 422, "at least 1e-12"),
        (lambda lines: lines[2]["points"][0].update(m=10**30), 422, "extent of 'm'"),
        (lambda lines: lines[2]["facts"].update(code_bytes=10**30), 422, "code_bytes"),
        (lambda lines: lines[1]["num_blocks"].__setitem__(0, 10**400), 422, "num_blocks"),
        (lambda lines: lines[0]["device"].update(name="\x1b[2J"), 422, "printable"),
        (lambda lines: lines[0].update(workload={"a": 1}), 422, "workload"),
        (lambda lines: lines[2].update(provenance="a\0b"), 422, "NUL"),
        (lambda lines: lines[1].update(more="\ud800"), 422, "lines.1: no record of a GPU"),
        (lambda lines: lines.__delitem__(slice(1, None)), 422, "no micro-kernel"),
        (_renamed, 409, "that is 'No GPU at all, invented by a test' here"),
        (lambda lines: lines[0].update(workload="sha256:" + "00" * 32), 404, "--spec SPEC"),
    ],
)
def test_bad_records_are_refused_and_nothing_is_lost(
    app: Gpus, published: dict[str, Any], change: Callable[[Any], Any], status: int, says: str
) -> None:
    route = f"/api/v1/records/{made_records().workload}/f00d"
    before = app.client.get(route).json()
    lines = json.loads(json.dumps(lines_of(made_records())))
    change(lines)
    body = json.dumps({"lines": lines})  # in ASCII: half a character cannot be sent otherwise
    answer = app.client.post("/api/v1/records", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status and says in answer.json()["detail"], answer.text
    assert app.client.get(route).json() == before


def test_records_of_a_new_workload_need_its_spec(app: Gpus, published: dict[str, Any]) -> None:
    changes = {"dims": {"m": "16*T", "n": 64, "k": 96}}
    records = made_records(**changes)
    assert "its workload is" in app.send(records, 422, spec=gpu_spec())["detail"]
    assert app.send(records, spec=gpu_spec(**changes))["added"] == 4


def test_importing_takes_an_admin_where_tokens_are_asked_for(tmp_path: Path) -> None:
    with opened(tmp_path) as closed:
        answers = {}
        for scopes in (["read", "submit", "publish"], ["admin"]):
            with closed.database.write() as session:
                _, token = tokens.create(session, "somebody", scopes, timedelta(days=1))
            headers = {"Authorization": f"Bearer {token}"}
            body = {"lines": lines_of(made_records()), "spec": gpu_spec()}
            answers[scopes[0]] = closed.client.post("/api/v1/records", json=body, headers=headers)
        assert answers["read"].status_code == 403 and "scope admin" in answers["read"].json()["detail"]
        assert answers["admin"].json()["added"] == 4


def _files(app: Gpus) -> dict[str, bytes]:
    with app.database.read() as session:
        manifest = json.loads(libraries.manifest_bytes(session, libraries.get(session, "on-gpu", 1)))
    files = {name: app.client.get(f"/api/v1/blobs/{facts['sha256']}").content
             for name, facts in manifest["files"].items()}  # fmt: skip
    return {**files, MANIFEST: json.dumps(manifest | {"name": "spoiled"}).encode()}


def _spoiled(app: Gpus, code: Callable[[bytes], bytes], report: Callable[[Any], Any]) -> dict[str, bytes]:
    from small_libraries import facts

    files = _files(app)
    content = json.loads(files["report.json"])
    report(content)
    files["report.json"], files["library.so"] = json.dumps(content).encode(), code(files["library.so"])
    manifest = json.loads(files[MANIFEST])
    manifest["files"] = {name: facts(files[name]) for name in manifest["files"]}
    return {**files, MANIFEST: json.dumps(manifest).encode()}


@pytest.mark.parametrize(
    ("code", "report", "says"),
    [
        (lambda code: code, lambda report: report["device"].update(synthetic=True), "synthetic"),
        (lambda code: code[:1] + code[1:].replace(b"\x7fELF", b"\x7fFLE"), lambda _: None, "no machine code"),
        (
            lambda code: code,
            lambda report: report["machine_code"]["sm_90a"].update(more={}),
            "lacks functions",
        ),
        (lambda code: code, lambda report: report.pop("machine_code"), "'machine_code' is missing"),
    ],
)
def test_what_is_no_measured_machine_code_is_not_published(
    app: Gpus,
    published: dict[str, Any],
    code: Callable[[bytes], bytes],
    report: Callable[[Any], Any],
    says: str,
) -> None:
    files = _spoiled(app, code, report)
    with pytest.raises(LibraryError, match=says), app.database.write() as session:
        libraries.publish(session, job=None, device_name=NAME, files=files)
    assert app.client.get("/api/v1/libraries/spoiled").status_code == 404
    fine = _spoiled(app, lambda code: code, lambda _: None)
    with app.database.write() as session:
        assert libraries.publish(session, job=None, device_name=NAME, files=fine).version == 1
        session.rollback()


@pytest.fixture(scope="module")
def url(app: Gpus) -> Iterator[str]:
    """The same application over real HTTP."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app.client.app, log_level="warning", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join(20)


@pytest.mark.thorough
def test_a_machine_without_a_gpu_pulls_it_and_says_so_when_it_loads(
    url: str, published: dict[str, Any], tmp_path: Path, inside: Callable[..., Any]
) -> None:
    root = tmp_path / "on-gpu"
    done = inside("pull", "on-gpu@1", "-o", root, "--lock", tmp_path / "lock", "--server", url)
    assert done.returncode == 0, done.stderr
    assert read_manifest(root)["target"]["arch"] == ARCH and not (root / "blobs").exists()
    (locked,) = json.loads((tmp_path / "lock").read_text())["libraries"].values()
    assert locked["runtime"] is None
    again = inside("pull", "--lock", tmp_path / "lock", "--server", url)
    assert again.returncode == 0, again.stderr
    shown = inside("inspect", root)
    assert shown.returncode == 0 and f"measured on {NAME}" in shown.stdout
    program = "import sys, dietcode; dietcode.load(sys.argv[1])"
    load = subprocess.run([sys.executable, "-c", program, root], capture_output=True, text=True, check=False)
    last = load.stderr.splitlines()[-1]
    if load.returncode == 0 or "no NVIDIA driver" not in last:
        pytest.skip(f"this machine has a driver: {last}")
    assert last.startswith(f"{TargetError.__module__}.TargetError")


def test_records_go_by_the_command_line(
    url: str, published: dict[str, Any], tmp_path: Path, inside: Callable[..., Any]
) -> None:
    spec, file, other = tmp_path / "spec.json", tmp_path / "records.jsonl", tmp_path / "other.jsonl"
    changes = {"dims": {"m": "16*T", "n": 64, "k": 112}}
    spec.write_text(json.dumps(gpu_spec(**changes)))
    lines = lines_of(made_records(**changes))
    file.write_text("".join(json.dumps(line) + "\n" for line in [*lines, *[_ROUND] * 1500]))
    missing = inside("records", "import", file, "--server", url)
    assert missing.returncode == 2 and "--spec SPEC" in missing.stderr
    done = inside("records", "import", file, "--spec", spec, "--server", url)
    assert done.stdout == f"{file}: 4 micro-kernels added, 4 known of {NAME}\n", done.stderr
    back = inside("records", "export", other, "--spec", spec, "--server", url)
    assert back.returncode == 0, back.stderr
    assert f"4 micro-kernels measured on {NAME}" in back.stdout
    assert sorted(other.read_text().splitlines()) == sorted(
        json.dumps(json.loads(json.dumps(line)), sort_keys=True) for line in lines
    ), "rounds, more than one request takes, are not sent"
    none = inside("records", "export", other, "--spec", spec, "--device", "cpu0", "--server", url)
    assert none.returncode == 2 and "f00d" in none.stderr
