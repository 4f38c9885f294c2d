"""Every route of the REST interface, from its OpenAPI document, and every kind of problem."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dietcode_server.api.examples import FORBIDDEN, PROBLEMS, SPEC_PROBLEM
from dietcode_server.api.problems import TITLES
from dietcode_server.app import create_app
from dietcode_server.settings import Settings
from dietcode_server.store.database import Database
from reference.markdown import code, prose, table


class _Idle:
    """No jobs run where the documentation is built."""

    def wake(self) -> None:
        """Nothing to do."""

    def healthy(self) -> bool:
        """It is."""
        return True


def document() -> dict[str, Any]:
    """The OpenAPI document."""
    with tempfile.TemporaryDirectory() as folder:
        database = Database(f"sqlite:///{Path(folder) / 'none.db'}")
        try:
            described: dict[str, Any] = create_app(
                database, Settings(data_dir=Path(folder)), _Idle()
            ).openapi()
        finally:
            database.dispose()
    return described


def routes() -> str:
    """A section for each part of the interface."""
    by_tag: dict[str, list[str]] = {}
    for method, path, operation in _operations():
        by_tag.setdefault(operation["tags"][0], []).append(_operation(method, path, operation))
    return "\n".join(f"## {tag.capitalize()}\n\n" + "\n".join(parts) for tag, parts in by_tag.items())


def _operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            if method != "head":  # as GET, without a body
                yield method.upper(), path, operation


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    answers = [status for status in operation["responses"] if int(status) < 400]
    refusals = [status for status in operation["responses"] if int(status) >= 400]
    facts = f"Answers {_list(answers)}; problems {_list(refusals)}."
    rows = [
        (code(one["name"]), one["in"], prose(one.get("description", "")))
        for one in operation.get("parameters", ())
        if one["in"] != "path"  # its name says it
    ]
    parts = [f"### `{method} {path}`", f"{operation['summary']}. {prose(operation.get('description', ''))}"]
    parts += [table(("parameter", "in", "meaning"), rows)] if rows else []
    return "\n\n".join([*parts, facts]) + "\n"


def _list(statuses: list[str]) -> str:
    return ", ".join(sorted(statuses)) or "none"


def problems() -> str:
    """A table of the kinds of problem documents."""
    examples = {kind: (status, detail) for status, (kind, detail) in PROBLEMS.items()}
    examples |= {SPEC_PROBLEM[0]: (422, SPEC_PROBLEM[1]), FORBIDDEN[0]: (403, FORBIDDEN[1])}
    rows = [
        (code(f"urn:dietcode:problem:{kind}"), title, *_example(kind, examples))
        for kind, title in TITLES.items()
    ]
    return table(("type", "title", "status", "an example of its detail"), rows)


def _example(kind: str, examples: dict[str, tuple[int, str]]) -> tuple[str, str]:
    status, detail = examples.get(kind, ("", ""))
    return str(status), code(detail)
