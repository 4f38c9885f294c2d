"""What the pages have beside their text: parts written from the code, plots, links by title.

`reference.parts` writes the generated parts into the pages' sources, where they can be read without a build;
while pages are built they are written once more, so that a page is never older than the code.

A line ``<!-- figure: NAME: what it shows -->`` becomes the plot ``docs/evidence/DEVICE/NAME.svg`` of the
first device that it was measured on, and nothing where that was on none.

A link that shows a file's name, ``[method.md](method.md)``, shows the page's title.
"""

from __future__ import annotations

import re
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError

from reference import parts

_EVIDENCE = Path(__file__).resolve().parents[2] / "evidence"
_FIGURE = re.compile(r"^<!-- figure: ([a-z0-9-]+): (.+?) -->$", re.MULTILINE)
_BY_FILE = re.compile(r"\[[a-z-]+\.md\]\((?=[a-z-]+\.md\b)")


def fill(text: str, page: str) -> str:
    """A page with its generated parts.

    Raises
    ------
    ExtensionError
        It names a part that does not exist.
    """

    try:
        filled = parts.fill(text, page)
    except ValueError as error:
        raise ExtensionError(str(error)) from None
    return _BY_FILE.sub("[](", _FIGURE.sub(_figure, filled))


def _figure(match: re.Match[str]) -> str:
    name, caption = match.groups()
    found = sorted(_EVIDENCE.glob(f"*/{name}.svg"))
    if not found:
        return ""
    return f"```{{figure}} evidence/{found[0].parent.name}/{name}.svg\n:alt: {caption}\n\n{caption}\n```"


def _read(_: Sphinx, page: str, source: list[str]) -> None:
    source[0] = fill(source[0], page)


def _error(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, contents: nodes.TextElement
) -> nodes.reference | None:
    """The exceptions by their names alone, as docstrings write them under Raises."""
    if node.get("reftype") != "exc" or "." in node["reftarget"]:
        return None
    name = f"dietcode.errors.{node['reftarget']}"
    domain = env.domains.python_domain
    return domain.resolve_xref(env, node["refdoc"], app.builder, "exc", name, node, contents)


def setup(app: Sphinx) -> dict[str, bool]:
    """Fill pages as they are read."""
    app.connect("source-read", _read)
    app.connect("missing-reference", _error)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
