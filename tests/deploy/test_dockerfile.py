"""`Dockerfile`: hadolint's rules and our own, and that what it copies and starts is there."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from images import DOCKERFILE, ROOT, image, lineage, read_compose, read_dockerfile
from needs import of_extra

STAGES = read_dockerfile()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FINAL = ("client", "full")


def test_hadolint_finds_nothing() -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if hadolint is None:
        pytest.skip(of_extra("dev"))
    done = subprocess.run([hadolint, DOCKERFILE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_bases_are_pinned_to_a_python_that_is_supported() -> None:
    bases = {stage.base for stage in STAGES.values() if stage.base not in STAGES}
    (base,) = bases
    match = re.fullmatch(r"python:(\d+\.\d+)\.\d+-slim-[a-z]+", base)
    assert match
    assert f"Programming Language :: Python :: {match[1]}" in PROJECT["classifiers"]


def test_what_it_copies_is_there_and_reaches_the_engine() -> None:
    """What .dockerignore keeps out cannot be copied; everything that the wheel holds has to be."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sent = {line[1:] for line in lines if line.startswith("!")}
    assert lines.index("*") < min(lines.index(f"!{name}") for name in sent)
    copied: set[str] = set()
    for stage in STAGES.values():
        for rest in stage.all("COPY"):
            words = rest.split()
            if words[0].startswith("--from="):
                assert words[0].removeprefix("--from=") in STAGES
                continue
            copied |= set(words[:-1])
    assert copied == sent
    assert all((ROOT / name).exists() for name in copied)
    built = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    wheel = built["targets"]["wheel"]
    wanted = {path.partition("/")[0] for path in [*wheel["packages"], *wheel["force-include"]]}
    assert wanted | {PROJECT["readme"], *PROJECT["license-files"], "pyproject.toml"} <= copied


def test_it_installs_extras_that_there_are() -> None:
    said = " ".join(stage_line for stage in STAGES.values() for stage_line in stage.all("RUN"))
    installs = re.findall(r"pip install (.*?)(?: &&|$)", said)
    assert len(installs) == 2 and all("-c constraints.txt" in each for each in installs)
    (extras,) = (given.removeprefix("EXTRAS=").split(",") for given in STAGES["build-full"].all("ARG"))
    assert re.findall(r"\.\[([^]]+)\]", said) == ["${EXTRAS}"]
    assert extras == ["server", "postgres", "ray"]
    assert {*extras, "cuda"} <= PROJECT["optional-dependencies"].keys(), "docs/deploy.md adds cuda"
    apt = re.findall(r"apt-get install [^&]*", said)
    assert len(apt) == 2 and all({"gcc", "libc6-dev"} <= set(each.split()) for each in apt)
    assert "apt-get" in " ".join(STAGES["build"].all("RUN")), "the launcher is compiled there"


def test_the_client_has_no_compiler() -> None:
    said = "\n".join(rest for stage in lineage("client") for _, rest in stage.instructions)
    assert "apt-get" not in said and "build-full" not in said


@pytest.mark.parametrize("name", FINAL)
def test_an_image_is_confined(name: str) -> None:
    made = image(name)
    uid, _, gid = made.user.partition(":")
    assert int(uid) >= 1000 and int(gid) >= 1000
    users = [i for i, (kind, _) in enumerate(STAGES[name].instructions) if kind == "USER"]
    assert users, "the last stage itself says who runs"
    assert not [kind for kind, _ in STAGES[name].instructions[users[-1] :] if kind in ("RUN", "COPY", "ADD")]
    assert made.environment["PYTHONDONTWRITEBYTECODE"] == "1"
    assert made.folder == made.environment["HOME"] == "/var/lib/dietcode"
    assert made.environment["DIETCODE_CACHE"].startswith(made.folder)
    assert any(kind == "HEALTHCHECK" for kind, _ in STAGES[name].instructions)
    labels = " ".join(rest for stage in lineage(name) for rest in stage.all("LABEL"))
    assert all(
        f"org.opencontainers.image.{label}=" in labels for label in ("version", "revision", "licenses")
    )


def test_nothing_that_looks_like_a_secret_goes_in() -> None:
    for stage in STAGES.values():
        for kind, rest in stage.instructions:
            assert not (kind in ("ARG", "ENV") and re.search("PASSWORD|TOKEN|SECRET", rest)), rest
            assert kind != "ADD"


def test_its_entry_point_can_be_imported() -> None:
    assert image("full").entrypoint == image("client").entrypoint == ["dietcode"]
    (script,) = entry_points(group="console_scripts", name="dietcode")
    assert PROJECT["scripts"]["dietcode"] == script.value
    module, _, function = script.value.partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_its_health_check_is_the_servers() -> None:
    (check,) = STAGES["full"].all("HEALTHCHECK")
    argv = json.loads(check[check.index("[") :])
    assert ["CMD", *argv] == read_compose()["services"]["server"]["healthcheck"]["test"]
    assert image("full").command == ["serve"]


@pytest.mark.parametrize("target", FINAL)
def test_what_it_runs_while_it_is_built_is_found(target: str) -> None:
    """As `groupadd` and what installs packages, which lie where root's programs do."""
    folders = image(target).environment["PATH"].split(":")
    assert folders[0] == "/opt/dietcode/bin"
    usual = {f"{above}/{name}" for above in ("/usr/local", "/usr", "") for name in ("bin", "sbin")}
    assert usual <= set(folders)
