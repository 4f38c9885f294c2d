"""Every command and health check of the compose file, run as its containers would run them."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from containers import HOME, Container, Machine, why_not
from containers_postgres import start_postgres
from images import ROOT
from small_libraries import spec_data

PASSWORD = "0123456789abcdef" * 4  # as `make secrets` writes it
SPEC = spec_data(
    "contained",
    shape_vars={"T": {"min": 1, "max": 4}},
    dims={"m": "4*T", "n": 32, "k": 24},
    budget={"trials": 2, "seconds": 10},
)
LOOK = """
import json, os
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
def writes(place):
    try:
        open(f"{place}/x", "w").close()
        os.unlink(f"{place}/x")
    except OSError:
        return False
    return True
print(json.dumps({
    "ids": [os.getuid(), os.getgid(), os.getgroups()],
    "rights": [status[name].strip() for name in ("CapEff", "CapPrm", "CapBnd", "NoNewPrivs")],
    "folder": os.getcwd(),
    "writes": [p for p in ("/", "/etc", "/opt/dietcode", "/usr", "/run/secrets", ".", "/tmp") if writes(p)],
}))
"""
ASK = """
import sys, urllib.error, urllib.request
headers = {"Authorization": f"Bearer {sys.argv[2]}"} if sys.argv[2] else {}
try:
    print(urllib.request.urlopen(urllib.request.Request(sys.argv[1], headers=headers), timeout=10).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    folder = tmp_path_factory.mktemp("machine")
    secrets = {}
    for name, content in (("postgres_password", PASSWORD), ("ray_token", "f" * 64)):
        secrets[name] = folder / name
        secrets[name].write_text(content)
        secrets[name].chmod(0o444)
    made = Machine(folder, secrets, {})
    yield made
    made.stop()


@pytest.fixture(scope="module")
def postgres(machine: Machine) -> Container:
    container = start_postgres(machine)
    machine.wait_healthy("postgres", container)
    return container


@pytest.fixture(scope="module")
def token(machine: Machine, postgres: Container) -> str:
    """The first steps of docs/deploy.md: a server without a token does not start, and says what to do."""
    del postgres
    refused = machine.start("server", aside=True)
    assert refused.wait() == 2
    assert "dietcode token create" in refused.said() and refused.said().count("\n") == 1
    made = machine.start("server", documented("token create"), aside=True)
    assert made.wait() == 0, made.said()
    found = made.said().splitlines()[-1]
    assert re.fullmatch(r"dct_\S{40,}", found)
    return found


@pytest.fixture(scope="module")
def server(machine: Machine, token: str) -> Container:
    del token
    container = machine.start("server")
    machine.wait_healthy("server", container)
    return container


@pytest.fixture(scope="module")
def worker(machine: Machine, server: Container) -> Container:
    del server
    container = machine.start("worker")
    machine.wait_healthy("worker", container)
    return container


def documented(command: str) -> list[str]:
    """The arguments of a `docker compose run --rm server …` in docs/deploy.md."""
    text = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    (line,) = re.findall(rf"^ *docker compose run --rm server ({command}.*?)(?: +#.*)?$", text, re.MULTILINE)
    found: list[str] = line.split()
    return found


def idle(machine: Machine, name: str) -> Container:
    """A container of a service in which nothing runs."""
    container = machine.start(name, ["60"], entrypoint=["/bin/sleep"], aside=True)
    while container.process.poll() is None and not container.is_up():
        time.sleep(0.02)
    return container


def seconds(machine: Machine, name: str) -> float:
    grace: str = machine.compose["services"][name]["stop_grace_period"]
    return float(grace.removesuffix("s"))


def test_a_container_is_confined(machine: Machine, server: Container, postgres: Container) -> None:
    """What is written is on its volume or in /tmp; nothing is left of root's rights."""
    found = json.loads(server.run(["python", "-c", LOOK]).stdout)
    assert found["ids"] == [10001, 10001, []]
    assert found["rights"] == ["0" * 16, "0" * 16, "0" * 16, "1"]
    assert found["folder"] == HOME
    assert found["writes"] == [".", "/tmp"]
    status = Path(f"/proc/{postgres.pid}/status").read_text()
    assert re.search(r"^Uid:\t999\t999\t999\t999$", status, re.MULTILINE)


def words_of(pid: int) -> bytes:
    """Environment and command line; nothing of a process that ended meanwhile."""
    try:
        return b"".join(Path(f"/proc/{pid}/{name}").read_bytes() for name in ("environ", "cmdline"))
    except (FileNotFoundError, ProcessLookupError):
        return b""


@pytest.mark.thorough
def test_no_password_is_in_an_environment_or_a_log(server: Container, worker: Container) -> None:
    for container in (server, worker):
        seen = [words_of(process.pid) for process in processes(container)]
        assert any(seen) and not any(PASSWORD.encode() in words for words in seen)
        assert PASSWORD not in container.said()


def test_the_server_asks_for_the_token(server: Container, token: str) -> None:
    for given, wanted in (("", 401), (token, 200)):
        done = server.run(["python", "-c", ASK, "http://127.0.0.1:8000/api/v1/jobs", given])
        assert int(done.stdout) == wanted
    assert token not in server.said()


@pytest.mark.thorough
def test_a_job_is_done_on_a_read_only_root(
    machine: Machine, server: Container, worker: Container, token: str
) -> None:
    """Submitted to a server that measures nothing, measured by the worker, pulled."""
    spec = machine.folder / "server-data" / "spec.json"
    spec.write_text(json.dumps(SPEC))
    spec.chmod(0o444)
    known = {"DIETCODE_SERVER": "http://127.0.0.1:8000", "DIETCODE_TOKEN": token}
    done = server.run(["dietcode", "submit", "spec.json", "--wait"], 150, **known)
    assert done.returncode == 0, done.stdout + done.stderr + worker.said()
    pulled = server.run(["dietcode", "pull", "contained@1", "-o", "library"], **known)
    assert pulled.returncode == 0, pulled.stderr
    assert (machine.folder / "server-data" / "library" / "library.so").is_file()


def test_health_checks_fail_where_the_database_hangs(
    machine: Machine, postgres: Container, server: Container
) -> None:
    hung = list(processes(postgres))
    for process in hung:
        process.suspend()
    try:
        for name, container in (("server", server), ("postgres", postgres)):
            assert not machine.is_healthy(name, container), name
    finally:
        for process in hung:
            process.resume()
    for name, container in (("server", server), ("postgres", postgres)):
        machine.wait_healthy(name, container)


def processes(container: Container) -> Iterator[Any]:
    first = psutil.Process(container.pid)
    yield first
    yield from first.children(recursive=True)


@pytest.mark.long
def test_they_stop_in_time_and_come_back(
    machine: Machine, postgres: Container, server: Container, worker: Container
) -> None:
    """In the order of `docker compose down`; the last test of the file, since it ends what the others use."""
    for name, container, number in (
        ("worker", worker, signal.SIGTERM),
        ("server", server, signal.SIGTERM),
        ("postgres", postgres, signal.SIGINT),  # as its image asks to be stopped
    ):
        begun = time.monotonic()
        assert container.stop(number) == 0, container.said()
        assert time.monotonic() - begun < seconds(machine, name) / 2
        empty = idle(machine, name)
        assert not machine.is_healthy(name, empty), name
        empty.kill()
    again = start_postgres(machine)
    machine.wait_healthy("postgres", again)
    for name in ("server", "worker"):
        machine.wait_healthy(name, machine.start(name))
