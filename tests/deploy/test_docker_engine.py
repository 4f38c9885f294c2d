"""What only a registry and an engine can tell: that the images named here are there, and that ours are built.

Both are asked through `docker`; where it, its engine or the registry is not there, these are skipped.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence

import pytest
from images import ROOT, read_compose, read_dockerfile

_SECS = 60.0
# What the registry says of a name or a tag that it does not have; anything else is said of the way there.
_MISSING = re.compile(r"no such manifest|manifest unknown|manifest for \S+ not found", re.IGNORECASE)
STAGES = read_dockerfile()


def named_images() -> list[str]:
    """Images of others that the Dockerfile and the compose file name, with their tags."""
    bases = {stage.base for stage in STAGES.values() if stage.base not in STAGES}
    services = read_compose()["services"].values()
    return sorted(bases | {service["image"] for service in services if "build" not in service})


def docker(arguments: Sequence[str], secs: float = _SECS) -> subprocess.CompletedProcess[str]:
    if shutil.which("docker") is None:
        pytest.skip("needs docker")
    try:
        return subprocess.run(
            ["docker", *arguments], capture_output=True, text=True, check=False, timeout=secs, cwd=ROOT
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"docker {arguments[0]} did not answer within {secs:.0f} s")


@pytest.mark.long
@pytest.mark.parametrize("name", named_images())
def test_the_registry_has_the_tag(name: str) -> None:
    done = docker(["manifest", "inspect", name])
    if done.returncode and not _MISSING.search(done.stderr):
        pytest.skip(f"the registry cannot be asked: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, f"{name}: {done.stderr}"


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("target", ["client", "full"])
def test_the_image_is_built(target: str) -> None:
    if docker(["info"]).returncode:
        pytest.skip("needs a Docker engine")
    tag = f"dietcode-test:{target}"
    done = docker(["build", "--target", target, "--tag", tag, "."], secs=1700.0)
    assert done.returncode == 0, done.stderr[-2000:]
    try:
        run = docker(["run", "--rm", "--entrypoint", "dietcode", tag, "--version"])
        assert run.returncode == 0 and "dietcode" in run.stdout.lower(), run.stderr
    finally:
        docker(["image", "rm", tag])
