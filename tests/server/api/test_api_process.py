"""``dietcode serve`` as a process: how it begins, what it refuses, how it ends."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import httpx2
import psutil
import pytest
from small_libraries import spec_data

from dietcode.errors import DietCodeError, RequestError
from dietcode.protocol import JobEvent, JobState, Progress
from dietcode.workload.parse import spec_from_data
from dietcode_server.run import run
from dietcode_server.settings import Settings
from dietcode_server.store import jobs, tokens
from dietcode_server.store.database import Database

READY = re.compile(r"dietcode: serving (http://\S+), data in (.+)\n")


def start(folder: Path, *options: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "dietcode", "serve", "--port", "0", "--data-dir", str(folder), *options]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | environment)


def wait_ready(process: subprocess.Popen[str], folder: Path) -> str:
    assert process.stderr is not None
    line = process.stderr.readline()
    match = READY.fullmatch(line)
    assert match, line + process.stderr.read()
    assert match[2] == str(folder)
    return match[1]


@contextmanager
def serving(folder: Path, *options: str, **environment: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    with start(folder, *options, **environment) as process:
        try:
            yield wait_ready(process, folder), process
        finally:
            process.kill()


def refused(folder: Path, *options: str, **environment: str) -> tuple[int, str]:
    """Exit status of a server that does not start, and the one line it says."""
    with start(folder, *options, **environment) as process:
        _, said = process.communicate(timeout=30)
    assert said.count("\n") == 1, said
    assert said.startswith("dietcode: ")
    return process.returncode, said


@contextmanager
def database_in(folder: Path) -> Iterator[Database]:
    """The server's database, opened by this process as well."""
    database = Database(Settings(data_dir=folder).database)
    yield database
    database.dispose()


def add_job(database: Database) -> str:
    """A job that the engine leaves alone."""
    spec = spec_from_data(spec_data("followed", target={"kind": "llvm", "num_cores": 4096}))
    with database.write() as session:
        row, _ = jobs.submit(
            session, spec=spec, target={}, device=None, runnable=False, force=True, idempotency_key=None
        )
        return row.id


def add_step(database: Database, job_id: str, step: int) -> None:
    with database.write() as session:
        jobs.add_progress(session, job_id, Progress(stage="measure", message="", done=step))


def end(process: subprocess.Popen[str], number: int) -> tuple[int, float, str]:
    """Send a signal; exit status, seconds until the end, and what was said."""
    begun = time.monotonic()
    process.send_signal(number)
    _, said = process.communicate(timeout=20)
    return process.returncode, time.monotonic() - begun, said


def test_it_serves_and_refuses_what_it_must(tmp_path):
    with serving(tmp_path) as (url, process):
        assert re.fullmatch(r"http://127\.0\.0\.1:[1-9][0-9]*", url)
        assert httpx2.get(f"{url}/readyz").json()["status"] == "ok"
        assert httpx2.get(f"{url}/healthz", headers={"host": "evil.example"}).status_code == 421
        assert "server" not in httpx2.get(f"{url}/").headers
        _raw_paths(url)
        _chunked_body(url)
        _taken(url, tmp_path)
        assert end(process, signal.SIGTERM)[::2] == (0, "")


def _raw_paths(url: str) -> None:
    """Paths that client libraries would tidy up."""
    for path in ("/../etc/passwd", "/api/v1/jobs/../../..", "/api/v1/jobs/%2e%2e", "//evil.example/", "/%00"):
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
        connection.putrequest("GET", path, skip_accept_encoding=True)
        connection.endheaders()
        response = connection.getresponse()
        assert response.status == 404, path
        assert response.getheader("content-type") == "application/problem+json"
        connection.close()


def _chunked_body(url: str) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(17):
            yield b" " * (64 << 10)

    headers = {"content-type": "application/json"}
    response = httpx2.post(f"{url}/api/v1/jobs", content=pieces(), headers=headers)
    assert response.status_code == 413
    assert response.json()["type"] == "urn:dietcode:problem:body-too-large"


def _taken(url: str, folder: Path) -> None:
    """A second server on the same port, or on the same folder."""
    port = url.rpartition(":")[2]
    status, said = refused(folder / "other", "--port", port)
    assert status == 1 and "in use" in said and "--port" in said
    status, said = refused(folder)
    assert status == 1 and "another server" in said and "--data-dir" in said
    assert httpx2.get(f"{url}/readyz").status_code == 200


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.0.2.1", "example.org", "fe80::1", "127.0.0.1:80", "localhost.evil.example"]
)
def test_other_addresses_are_refused(tmp_path, host):
    with pytest.raises(RequestError, match=r"127\.0\.0\.1") as caught:
        run(Settings(host=host, data_dir=tmp_path / "data"))
    assert host in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "data").exists()


def test_data_folders_that_cannot_be_used_are_refused(tmp_path):
    (tmp_path / "file").write_text("")
    folders = [tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nowhere")]
    (tmp_path / "locked").mkdir(mode=0o500)
    if not os.access(tmp_path / "locked", os.W_OK):  # root may write everywhere
        folders.append(tmp_path / "locked")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "work").write_text("")  # where workers keep their files
    folders.append(tmp_path / "odd")
    for folder in folders:
        with pytest.raises(DietCodeError, match="cannot be written") as caught:
            run(Settings(data_dir=folder))
        assert str(folder) in str(caught.value) and caught.value.exit_status == 1


def test_what_is_refused_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    status, said = refused(tmp_path / "file" / "below")
    assert status == 1 and str(tmp_path) in said and "--data-dir" in said


@pytest.mark.long  # as above, each from a process of its own
def test_options_and_variables_that_are_refused_are_one_line(tmp_path):
    status, said = refused(tmp_path / "data", "--host", "0.0.0.0")
    assert status == 2 and "tokens" in said
    status, said = refused(tmp_path, DIETCODE_SERVE_MAX_BODY_BYTES="x")
    assert status == 2 and "DIETCODE_SERVE_MAX_BODY_BYTES" in said


@pytest.mark.long
def test_with_a_token_others_may_reach_it(tmp_path):
    from datetime import timedelta

    from dietcode_server.store import tokens

    with database_in(tmp_path) as database:
        database.upgrade()
        with database.write() as session:
            tokens.create(session, "erin", ["read"], timedelta(seconds=-1))
        status, said = refused(tmp_path, "--host", "0.0.0.0")
        assert status == 2 and "dietcode token create" in said
        with database.write() as session:
            _, token = tokens.create(session, "alice", ["read"], None)
    with serving(tmp_path, "--host", "0.0.0.0") as (url, process):
        port = url.rpartition(":")[2]
        address = f"http://127.0.0.1:{port}/api/v1/jobs"
        assert httpx2.get(address).status_code == 401
        headers = {"Authorization": f"Bearer {token}"}
        assert httpx2.get(address, headers=headers).json()["jobs"] == []
        assert httpx2.get(f"http://127.0.0.1:{port}/", headers=headers).status_code == 200
        assert httpx2.get(address, headers=headers | {"host": f"0.0.0.0:{port}"}).status_code == 421
        status, _, said = end(process, signal.SIGTERM)
        assert status == 0 and token not in said


@pytest.mark.long
def test_another_loopback_address(tmp_path):
    host, shown = ("::1", "[::1]") if _has_ipv6() else ("127.0.0.2", "127.0.0.2")
    with serving(tmp_path, "--host", host) as (url, process):
        assert url.startswith(f"http://{shown}:")
        assert httpx2.get(f"{url}/healthz").status_code == 200
        assert end(process, signal.SIGINT)[0] == 0


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.thorough
def test_streams_across_processes_resume_and_end_with_the_server(tmp_path):
    with serving(tmp_path) as (url, process), database_in(tmp_path) as database:
        job_id = add_job(database)
        address = f"{url}/api/v1/jobs/{job_id}/events"
        delays, found = _follow(address, database, job_id)
        assert [event.id for event in found] == list(range(1, 22))
        assert sorted(delays)[len(delays) // 2] < 1.0

        # the connection broke after event 5: the next one goes on where it ended
        with httpx2.stream("GET", address, headers={"Last-Event-ID": "5"}) as response:
            again = _read(response.iter_lines(), 16)
        assert [event.id for event in again] == list(range(6, 22))

        with httpx2.stream("GET", address, timeout=20) as response:
            lines = response.iter_lines()
            _read(lines, 21)
            status, secs, said = end(process, signal.SIGTERM)
            # a proper end, not a broken connection
            assert not [line for line in lines if line.startswith("data:")]
        assert (status, said) == (0, "")
        assert secs < 5

    with serving(tmp_path) as (url, process), database_in(tmp_path) as database:
        with database.write() as session:
            jobs.request_cancel(session, job_id)
        address = f"{url}/api/v1/jobs/{job_id}/events"
        with httpx2.stream("GET", address, headers={"Last-Event-ID": "21"}) as response:
            (last,) = [
                JobEvent.model_validate_json(line[6:])
                for line in response.iter_lines()
                if line[:5] == "data:"
            ]
        assert (last.id, last.state) == (22, JobState.CANCELLED)
        assert httpx2.get(address, headers={"Last-Event-ID": "22"}).status_code == 204
        assert end(process, signal.SIGINT)[::2] == (0, "")


def _follow(address: str, database: Database, job_id: str) -> tuple[list[float], list[JobEvent]]:
    """Events as they arrive while another process adds 20, and how long each took, in seconds."""
    added: dict[int, float] = {1: time.monotonic()}
    delays, found = [], []

    def add() -> None:
        for step in range(20):
            time.sleep(0.02)
            added[step + 2] = time.monotonic()
            add_step(database, job_id, step)

    worker = threading.Thread(target=add)
    with httpx2.stream("GET", address, timeout=20) as response:
        assert response.status_code == 200
        worker.start()
        lines = response.iter_lines()
        for _ in range(21):
            (event,) = _read(lines, 1)
            delays.append(time.monotonic() - added[event.id])
            found.append(event)
    worker.join()
    return delays, found


def _read(lines: Iterator[str], num: int) -> list[JobEvent]:
    found: list[JobEvent] = []
    while len(found) < num:
        line = next(lines)
        if line.startswith("data: "):
            found.append(JobEvent.model_validate_json(line.removeprefix("data: ")))
    return found


@pytest.mark.thorough
def test_a_client_that_leaves_leaves_nothing_behind(tmp_path):
    with serving(tmp_path) as (url, process), database_in(tmp_path) as database:
        job_id = add_job(database)
        assert _num_sockets(process.pid) == 1  # it listens
        for _ in range(5):
            with httpx2.stream("GET", f"{url}/api/v1/jobs/{job_id}/events") as response:
                _read(response.iter_lines(), 1)
        deadline = time.monotonic() + 10
        while _num_sockets(process.pid) > 1 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert _num_sockets(process.pid) == 1
        assert end(process, signal.SIGTERM)[::2] == (0, "")


def _num_sockets(pid: int) -> int:
    return len(psutil.Process(pid).net_connections("tcp"))


@pytest.mark.long  # a server starts again above, kills are in engine/test_kills.py
def test_a_killed_server_starts_again_on_its_folder(tmp_path):
    with serving(tmp_path) as (url, process), database_in(tmp_path) as database:
        job_id = add_job(database)
        assert httpx2.get(f"{url}/api/v1/jobs/{job_id}").status_code == 200
        add_step(database, job_id, 1)
        assert end(process, signal.SIGKILL)[0] == -signal.SIGKILL
    with serving(tmp_path) as (url, process):
        assert httpx2.get(f"{url}/readyz").status_code == 200
        job = httpx2.get(f"{url}/api/v1/jobs/{job_id}").json()
        assert (job["state"], job["progress"]["done"]) == ("waiting_for_runner", 1)
        assert end(process, signal.SIGTERM)[0] == 0


@pytest.mark.long
def test_a_signal_during_the_start_ends_it_in_order(tmp_path):
    """The lock file appears before the database does: from then on nothing is cut short."""
    with start(tmp_path) as process:
        while not (tmp_path / "dietcode.db").exists():
            time.sleep(0.005)
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=20)
    assert process.returncode == 0, said
    assert "Traceback" not in said


def test_help_imports_no_server(tmp_path):
    heavy = ("fastapi", "sqlalchemy", "pydantic", "uvicorn")
    code = f"import sys, dietcode.cli.app; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_the_extra_it_says_what_to_install(tmp_path):
    hidden = "import sys; sys.modules.update(fastapi=None, uvicorn=None); sys.argv = ['dietcode', 'serve']; "
    code = hidden + "from dietcode.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("dietcode: this command needs fastapi, uvicorn: pip install ")


@pytest.mark.thorough
def test_what_a_proxy_would_forward_is_believed_from_nobody(tmp_path: Path) -> None:
    """Who is asked, from where and by which scheme: a client that forges these headers gains nothing."""
    database = Database(f"sqlite:///{tmp_path / 'dietcode.db'}")
    database.upgrade()
    with database.write() as session:
        _, token = tokens.create(session, "alice", ["read", "submit"], timedelta(days=1))
    database.dispose()
    limits = {
        "DIETCODE_SERVE_MAX_WRONG_TOKENS_PER_MINUTE": "3",
        "DIETCODE_SERVE_ALLOWED_HOSTS": "lab.example",
    }
    with serving(tmp_path, "--no-jobs", **limits) as (url, _), httpx2.Client(base_url=url) as client:
        forged = {"host": "evil.example", "x-forwarded-host": "lab.example", "forwarded": "host=lab.example"}
        assert client.get("/healthz", headers=forged).status_code in {400, 403, 421}
        basic = httpx2.BasicAuth("alice", token)
        cancel = f"/api/v1/jobs/{'0' * 16}/cancel"
        browser = {
            "origin": "https://evil.example",
            "x-forwarded-host": "evil.example",
            "x-forwarded-proto": "https",
        }
        assert client.post(cancel, json={}, auth=basic, headers=browser).status_code == 403
        proxied = {"origin": "https://lab.example", "host": "lab.example"}
        assert client.post(cancel, json={}, auth=basic, headers=proxied).status_code == 404  # and comes in
        plain = {"origin": url.replace("http:", "https:"), "x-forwarded-proto": "https"}
        assert client.post(cancel, json={}, auth=basic, headers=plain).status_code == 403  # of loopback
        statuses = []
        for number in range(5):
            wrong = {"authorization": "Bearer dct_wrong", "x-forwarded-for": f"192.0.2.{number}"}
            wrong |= {"forwarded": f"for=192.0.2.{number}", "x-real-ip": f"192.0.2.{number}"}
            statuses.append(client.get("/api/v1/jobs", headers=wrong).status_code)
        assert statuses == [401, 401, 401, 429, 429]


@pytest.mark.thorough
def test_the_database_may_lie_elsewhere(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'other.db'}"
    with serving(tmp_path / "data", "--no-jobs", "--database-url", url):
        assert (tmp_path / "other.db").is_file() and not (tmp_path / "data" / "dietcode.db").exists()
