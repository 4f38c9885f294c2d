"""The reference has everything that exists: what is in the code and not in the built pages fails here."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from needs import of_extra
from pages import DOCS, ROOT

from dietcode import errors
from dietcode.protocol import JobState
from dietcode.workload.epilogue import EpilogueKind
from dietcode.workload.operators import OPERATORS
from dietcode.workload.spec import Spec
from dietcode_server.api.metrics import Metrics
from dietcode_server.api.problems import TITLES
from dietcode_server.dashboard.job import STAGES
from dietcode_server.settings import ENV_PREFIX, Settings
from dietcode_server.store.tables import Base

_VARIABLE = re.compile(r"[\"'](DIETCODE_[A-Z_]+|RAY_AUTH_[A-Z_]+)[\"']")


@pytest.fixture(scope="module")
def text(built: Path) -> Any:
    """Return a function that gives the words of a page, entities and tags taken out."""

    def read(name: str) -> str:
        raw = (built / f"{name}.html").read_text(encoding="utf-8")
        return html.unescape(re.sub(r"<[^>]+>", "", raw))

    return read


def test_stages_are_those_of_a_job_in_its_order() -> None:
    rows = re.findall(r"^\| ([a-z]+) \| ", (DOCS / "tutorial.md").read_text(), re.MULTILINE)
    assert [row for row in rows if row != "stage"] == list(STAGES)


def test_every_command_and_option(text: Any) -> None:
    from dietcode.cli.app import commands

    page = text("cli")
    num_options = 0

    def look(path: str, command: Any) -> None:
        nonlocal num_options
        if hasattr(command, "commands"):
            for name, inner in command.commands.items():
                look(f"{path} {name}", inner)
            return
        _, found, section = page.partition(f"{path}¶")  # its heading, with the sign for its link
        assert found, f"{path} is missing"
        section = re.split(r"dietcode [a-z -]+¶", section)[0]
        for param in command.params:
            for option in param.opts:
                assert not option.startswith("-") or option in section, f"{path}: {option} is missing"
                num_options += 1
            about = " ".join((param.help or "").partition("[default:")[0].split()).replace("`", "")
            assert about in section, f"{path}: {about}"

    look("dietcode", commands())
    assert num_options > 60


def test_every_setting_with_its_default(text: Any) -> None:
    page = text("settings")
    for name, field in Settings.model_fields.items():
        variable = ENV_PREFIX + name.upper()
        assert variable in page, variable
        if isinstance(field.default, str | int | float) and field.default != "":
            assert re.search(rf"{variable}\s+{re.escape(str(field.default))}\s", page), variable


def test_every_environment_variable(text: Any) -> None:
    page = text("settings")
    files = [path for folder in ("dietcode", "server") for path in (ROOT / folder).rglob("*.py")]
    named = {name for path in files for name in _VARIABLE.findall(path.read_text(encoding="utf-8"))}
    assert {"DIETCODE_SERVER", "DIETCODE_CACHE"} <= named
    assert [name for name in sorted(named) if name != ENV_PREFIX and name not in page] == []


def test_every_metric(text: Any) -> None:
    page = text("metrics")
    families = re.findall(r"^# HELP (\S+) (.+)$", Metrics().render().decode(), re.MULTILINE)
    assert len(families) > 10
    for name, about in families:
        if not name.endswith("_created"):
            assert name in page and about in page, name


def test_every_route(text: Any) -> None:
    from reference.interface import document

    page = text("rest")
    paths = document()["paths"]
    assert len(paths) > 15
    for path, methods in paths.items():
        for method, operation in methods.items():
            if method == "head":
                assert "get" in methods
                continue
            assert f"{method.upper()} {path}¶" in page, f"{method} {path}"
            for parameter in operation.get("parameters", ()):
                assert parameter["name"] in page
    for kind in TITLES:
        assert f"urn:dietcode:problem:{kind}" in page


def test_every_error_and_exit_status(text: Any) -> None:
    page, commands = text("errors"), text("cli")
    found = [
        one for one in vars(errors).values() if isinstance(one, type) and one.__module__ == errors.__name__
    ]
    assert len(found) > 10
    for kind in found:
        assert re.search(rf"{kind.__name__}\s+{kind.__base__.__name__}\s+{kind.exit_status}\s", page), kind
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "dietcode").rglob("*.py"))
    statuses = {int(n) for n in re.findall(r"(?:exit_status|_INTERRUPTED|sys\.exit\() ?=? ?(\d+)", sources)}
    for status in {0, *statuses}:
        assert re.search(rf"^{status}$", commands, re.MULTILINE), status


def test_every_field_of_a_spec(text: Any) -> None:
    page = text("spec") + text("blocks")
    schema = Spec.model_json_schema()
    models = {"Spec": schema, **schema["$defs"]}
    for name, model in models.items():
        if name == "EpilogueStep":
            continue
        for field in model["properties"]:
            assert re.search(rf"^{field}$", page, re.MULTILINE), f"{name}.{field}"


@pytest.mark.parametrize("kind", get_args(EpilogueKind))
def test_every_step_of_an_epilogue(kind: str) -> None:
    assert re.search(rf"^\| .*`\{{?{kind}\b", (DOCS / "spec.md").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("state", list(JobState))
def test_every_state_of_a_job(state: JobState) -> None:
    page = (DOCS / "service.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| `{state.value}` \|", page, re.MULTILINE)


def test_every_table_of_the_database(text: Any) -> None:
    page = text("service")
    assert [name for name in Base.metadata.tables if not re.search(rf"^{name}$", page, re.MULTILINE)] == []


def test_every_package(text: Any) -> None:
    page = text("architecture")
    for folder in ("dietcode", "server/dietcode_server"):
        for package in (ROOT / folder).glob("*/__init__.py"):
            assert f"{folder}/{package.parent.name}" in page


@pytest.mark.usefixtures("built")  # Sphinx is there
def test_a_part_that_there_is_not_is_an_error() -> None:
    from reference import fill
    from sphinx.errors import ExtensionError

    assert "DIETCODE_SERVE_PORT" in fill("<!-- generated: settings -->\n<!-- end: settings -->", "a page")
    name = "figure not-measured: nothing"
    assert "![" not in fill(f"<!-- generated: {name} -->\n<!-- end: {name} -->", "a page")
    with pytest.raises(ExtensionError, match="no generated part 'setings'"):
        fill("<!-- generated: setings -->\n<!-- end: setings -->", "a page")
    with pytest.raises(ExtensionError, match="no <!-- end: NAME --> of the generated part settings"):
        fill("<!-- generated: settings -->\n| a | table |", "a page")


@pytest.mark.parametrize("page", [page.name for page in DOCS.glob("*.md")])
def test_generated_parts_are_committed(page: str) -> None:
    for name in ("sphinx", "docutils"):
        pytest.importorskip(name, reason=of_extra("docs"))
    from reference import parts

    text = (DOCS / page).read_text(encoding="utf-8")
    assert text == parts.fill(text, page), f"docs/{page} is older than the code; make docs-tables writes it"


def test_every_part_is_on_a_page() -> None:
    pytest.importorskip("sphinx", reason=of_extra("docs"))
    from reference.parts import PARTS

    text = "".join(page.read_text(encoding="utf-8") for page in DOCS.glob("*.md"))
    assert [name for name in PARTS if f"<!-- generated: {name} -->" not in text] == ["spec EpilogueStep"]


def test_every_operator_of_a_block(text: Any) -> None:
    page = text("blocks")
    for word, operator in OPERATORS.items():
        assert re.search(rf"\b{word}\b", page), word
        for attribute in operator.attributes:
            assert re.search(rf"\b{attribute}\b", page), f"{word}: {attribute}"
