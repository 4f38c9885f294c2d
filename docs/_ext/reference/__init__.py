"""What the pages have beside their text: parts written from the code, tables of contents, links by title.

`reference.parts` writes the generated parts into the pages' sources, where they can be read without a build;
while pages are built they are written once more, so that a page is never older than the code.

The lists of pages in a folder's ``index.md``, each under its heading, are the table of contents: Sphinx gets
them as a hidden ``toctree``, so that the sources have none, which only Sphinx could show.

A link that shows a file's name, ``[method.md](method.md)``, shows the page's title.
"""

from __future__ import annotations

import re

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

from reference import parts

_HEADING = re.compile(r"^## (.+)\n", re.MULTILINE)
_LISTED = re.compile(r"^- \[[^\]]+\]\(([\w./-]+)\.md\)", re.MULTILINE)
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
    return _BY_FILE.sub("[](", filled)


def contents(text: str) -> str:
    """The lists of pages of an index, as hidden tables of contents with the headings above them."""
    first, *rest = _HEADING.split(text)
    blocks = []
    for caption, part in [("", first), *zip(rest[::2], rest[1::2], strict=True)]:
        if names := _LISTED.findall(part):
            options = [f":caption: {caption}"] if caption else []
            blocks.append("\n".join(["```{toctree}", *options, ":hidden:", "", *names, "```"]))
    return "\n\n".join(blocks)


def _read(_: Sphinx, page: str, source: list[str]) -> None:
    source[0] = fill(source[0], page)
    if page == "index" or page.endswith("/index"):
        source[0] += f"\n\n{contents(source[0])}\n"


def setup(app: Sphinx) -> dict[str, bool]:
    """Fill pages as they are read."""
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
