"""What `Dockerfile` and `docker-compose.yml` say, as Docker would read them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "Dockerfile"
COMPOSE_FILE = ROOT / "docker-compose.yml"
IMAGE = "dietcode"  # the name of our own; others are official ones

_VARIABLE = re.compile(r"\$\{(?P<name>[A-Z_]+)(:-(?P<default>[^}]*))?\}")


@dataclass
class Stage:
    """One ``FROM`` and what follows it.

    Attributes
    ----------
    base : str
        An earlier stage, or an image.
    instructions : list of (str, str)
        Name and the rest of the line, continued lines joined.
    """

    name: str
    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def all(self, instruction: str) -> list[str]:
        """What follows each instruction of a kind."""
        return [rest for name, rest in self.instructions if name == instruction]


@dataclass(frozen=True)
class Image:
    """What a container of an image begins with."""

    environment: dict[str, str]
    user: str
    folder: str
    entrypoint: list[str]
    command: list[str]


def read_dockerfile(path: Path = DOCKERFILE) -> dict[str, Stage]:
    """The stages by name, in order."""
    stages: dict[str, Stage] = {}
    arguments: dict[str, str] = {}
    lines = (
        line for line in path.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")
    )
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        name, _, rest = line.strip().partition(" ")
        if name == "ARG" and not stages:
            key, _, value = rest.partition("=")
            arguments[key] = value
        elif name == "FROM":
            base, _, stage = rest.partition(" AS ")
            stages[stage] = Stage(stage, substituted(base, arguments))
        elif name:
            list(stages.values())[-1].instructions.append((name, rest))
    return stages


def lineage(name: str) -> list[Stage]:
    """A stage and those that it is built on, the oldest first."""
    stages, found = read_dockerfile(), []
    while name in stages:
        found.insert(0, stages[name])
        name = stages[name].base
    return found


def image(stage: str) -> Image:
    """What a container of a stage's image begins with."""
    said = [each for part in lineage(stage) for each in part.instructions]

    def last(name: str, default: str) -> str:
        return next((rest for given, rest in reversed(said) if given == name), default)

    pairs = [pair.partition("=") for name, rest in said if name == "ENV" for pair in shlex.split(rest)]
    return Image(
        environment={key: value for key, _, value in pairs},
        user=last("USER", "0:0"),
        folder=last("WORKDIR", "/"),
        entrypoint=json.loads(last("ENTRYPOINT", "[]")),
        command=json.loads(last("CMD", "[]")),
    )


def read_compose(variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The compose file with its variables filled in."""
    plain = yaml.safe_load(COMPOSE_FILE.read_text(encoding="utf-8"))
    found: dict[str, Any] = _filled(plain, variables or {})
    return found


def services(profile: str | None = None) -> dict[str, Any]:
    """The services, those of a profile among them."""
    given: dict[str, Any] = read_compose()["services"]
    return {name: s for name, s in given.items() if profile in s.get("profiles", [profile])}


def own(service: Mapping[str, Any]) -> bool:
    """Whether a service runs this project's image."""
    return str(service["image"]).partition(":")[0] == IMAGE


def substituted(text: str, variables: Mapping[str, str]) -> str:
    """A text with its ``${NAME:-default}`` filled in.

    Raises
    ------
    KeyError
        A variable has no value and no default.
    """

    def value(match: re.Match[str]) -> str:
        found = variables.get(match["name"]) or match["default"]
        if found is None:
            raise KeyError(match["name"])
        return found

    return _VARIABLE.sub(value, text)


def _filled(plain: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(plain, dict):
        return {key: _filled(value, variables) for key, value in plain.items()}
    if isinstance(plain, list):
        return [_filled(value, variables) for value in plain]
    return substituted(plain, variables) if isinstance(plain, str) else plain
