"""The documentation as pages of this server: help that needs no network and is of this version.

The same Markdown that `make docs` builds (`docs/`), in the order of the lists of pages in its ``index.md``.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request, Response
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from dietcode_server.api.problems import Refusal
from dietcode_server.dashboard.render import page

_HERE = Path(__file__).parent
# A wheel has them beside this file, a checkout at its root.
_FOLDERS = (_HERE / "docs", _HERE.parents[2] / "docs")
_FILES = {".svg": "image/svg+xml", ".png": "image/png", ".json": "application/json", ".py": "text/plain"}
_HEADING = re.compile(r"^## (.+)\n", re.MULTILINE)
_LISTED = re.compile(r"^- \[[^\]]+\]\(([\w./-]+)\.md\)", re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
PREFIX = "/help"

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class Section:
    """A caption of the table of contents, and its pages: names and titles."""

    caption: str
    pages: tuple[tuple[str, str], ...]


@router.get(PREFIX)
@router.get(PREFIX + "/{name:path}")
def show_manual(request: Request, name: str = "index") -> Response:
    """A page by its path below ``docs/`` without the suffix, or a figure or table of one."""
    if name in _pages():
        title, text = _rendered(name)
        return page(request, "manual.html", name=name, title=title, text=text, contents=_contents())
    if name in _files():
        path = _files()[name]
        return Response(path.read_bytes(), media_type=_FILES[path.suffix])
    raise Refusal("not-found", 404, f"{request.url.path}: no such page of the documentation")


@cache
def _folder() -> Path:
    return next(folder for folder in _FOLDERS if folder.is_dir()).resolve()


@cache
def _pages() -> frozenset[str]:
    folder = _folder()
    return frozenset(path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.md"))


def _examples(folder: Path) -> Iterator[Path]:
    return (folder.parent / "examples").rglob("*.py")


@cache
def _files() -> dict[str, Path]:
    """Return what pages show or lead to, by the path that follows `PREFIX`."""
    folder = _folder()
    found = {path.relative_to(folder).as_posix(): path for path in (folder / "evidence").rglob("*")}
    found |= {path.relative_to(folder.parent).as_posix(): path for path in _examples(folder)}
    return {name: path for name, path in found.items() if path.suffix in _FILES}


def _source(name: str) -> str:
    return (_folder() / f"{name}.md").read_text(encoding="utf-8")


@cache
def _contents() -> tuple[Section, ...]:
    """Return the lists of pages that the first page has, by their headings."""
    _, *rest = _HEADING.split(_source("index"))
    return tuple(
        Section(caption, tuple((name, _rendered(name)[0]) for name in _LISTED.findall(part)))
        for caption, part in zip(rest[::2], rest[1::2], strict=True)
    )


@cache
def _rendered(name: str) -> tuple[str, Markup]:
    """Return the title of a page, and its HTML."""
    markdown = MarkdownIt("commonmark").enable("table")
    tokens = list(_adapted(markdown.parse(_source(name)), posixpath.dirname(name)))
    return _title(tokens) or name, Markup(markdown.renderer.render(tokens, markdown.options, {}))


def _title(tokens: Sequence[Token]) -> str:
    return next((tokens[at + 1].content for at, one in enumerate(tokens) if one.type == "heading_open"), "")


def _adapted(tokens: Sequence[Token], folder: str) -> Iterator[Token]:
    """Give headings their anchors and links their addresses; leave out comments.

    Parameters
    ----------
    folder : str
        Of the page, below ``docs/``: links are relative to it.
    """
    seen: set[str] = set()
    for at, token in enumerate(tokens):
        if token.type == "heading_open":
            token.attrs["id"] = _anchor(tokens[at + 1].content, seen)
        if "right" in str(token.attrs.pop("style", "")):  # pages have no inline styles
            token.attrs["class"] = "number"
        if token.type == "html_block":
            token.content = _COMMENT.sub("", token.content)
        for child in token.children or ():
            for attribute in ("href", "src"):
                if attribute in child.attrs:
                    child.attrs[attribute] = _address(str(child.attrs[attribute]), folder)
            if child.type == "html_inline":
                child.content = _COMMENT.sub("", child.content)
        yield token


def _anchor(heading: str, seen: set[str]) -> str:
    """Return the anchor of a heading as renderers make it: ``the-spec-file`` of ``The `spec` file``."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    first = re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")
    name, number = first, 0
    while name in seen:
        number += 1
        name = f"{first}-{number}"
    seen.add(name)
    return name


def _address(url: str, folder: str) -> str:
    """Return the address here of a link to another page or to a figure; others stay as they are."""
    path, mark, anchor = url.partition("#")
    if not path or "://" in path or path.startswith(("/", "mailto:")):
        return url
    found = posixpath.normpath(posixpath.join(folder, path)).removeprefix("../")
    if found.startswith("examples/") and found.endswith(".yaml"):
        return f"/submit?example={posixpath.basename(found).removesuffix('.yaml')}"
    return f"{PREFIX}/{found.removesuffix('.md')}{mark}{anchor}"
