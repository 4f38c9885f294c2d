"""The profile `ray` of the compose file: a cluster of two nodes, and a job beside its head."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from containers import Container, Machine, why_not
from images import services
from needs import of_extra
from test_containers import PASSWORD, SPEC, processes, words_of

TOKEN = "f" * 64
WHY_NOT = why_not() or (None if find_spec("ray") else of_extra("ray"))

# Nodes as processes, in tests/engines, and the compose file's text are tested each time.
pytestmark = [pytest.mark.long, pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    folder = tmp_path_factory.mktemp("ray")
    secrets = {name: folder / name for name in ("postgres_password", "ray_token")}
    for path, content in zip(secrets.values(), (PASSWORD, TOKEN), strict=True):
        path.write_text(content)
        path.chmod(0o444)
    made = Machine(folder, secrets, {})
    yield made
    made.stop()


@pytest.fixture(scope="module")
def nodes(machine: Machine) -> dict[str, Container]:
    found = {}
    for name in ("ray-head", "ray-worker"):
        found[name] = machine.start(name)
        machine.wait_healthy(name, found[name])
    return found


@pytest.mark.timeout(700)  # as long as two cores need that are busy with other tests
def test_a_job_begins_beside_the_head_and_is_measured_by_the_other(
    machine: Machine, nodes: dict[str, Container]
) -> None:
    spec = machine.made("ray-jobs-data", 10001, 0o700) / "spec.json"
    spec.write_text(json.dumps(SPEC))
    spec.chmod(0o444)
    address = services("ray")["ray-jobs"]["environment"]["DIETCODE_SERVE_RAY_ADDRESS"]
    job = machine.start("ray-jobs", ["tune", "spec.json", "-o", "library", "--ray", address])
    assert job.wait(500) == 0, job.said()
    assert (spec.parent / "library" / "library.so").is_file()
    assert all(node.process.poll() is None for node in nodes.values())


def test_the_token_is_in_no_environment(nodes: dict[str, Container]) -> None:
    for container in nodes.values():
        seen = [words_of(process.pid) for process in processes(container)]
        assert any(seen) and not any(TOKEN.encode() in words for words in seen)


def test_without_the_token_nobody_joins(machine: Machine, nodes: dict[str, Container]) -> None:
    del nodes
    stranger = machine.start("ray-worker", aside=True, RAY_AUTH_TOKEN_PATH="/dev/null")
    assert stranger.wait(60) != 0


def test_a_health_check_fails_where_the_head_is_down(machine: Machine, nodes: dict[str, Container]) -> None:
    assert nodes["ray-head"].stop() is not None
    assert not machine.is_healthy("ray-worker", nodes["ray-worker"])
