"""The pages: every link leads somewhere, nothing is loaded from elsewhere, what is shown is right."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from pages import DOCS, PAGES, ROOT, blocks

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CALL = re.compile(r"(?:^\s*(?:\$ )?|[(] *|&& |server |[A-Z_]+=\S+ )dietcode ((?:[a-z]|-).*)")
_LOADS = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}


class Page(HTMLParser):
    """The anchors of a page, its links, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = {""}
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif (tag, name) in _LOADS and value:
                self.loads.append(value)
            elif tag == "a" and name == "href" and value:
                self.links.append(value)


@pytest.fixture(scope="module")
def pages(built: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in built.rglob("*.html") if "_static" not in path.parts}


def test_every_page_is_built(built: Path) -> None:
    assert {path.stem for path in built.glob("*.html")} >= {page.stem for page in DOCS.glob("*.md")}


def test_every_link_leads_somewhere(pages: dict[Path, Page]) -> None:
    wrong = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            known = pages.get(target)
            if not target.exists() or (known is not None and unquote(parts.fragment) not in known.anchors):
                wrong.append(f"{path.name}: {link}")
    assert wrong == []


def test_nothing_comes_from_elsewhere(built: Path, pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        assert page.loads, path
        for loaded in page.loads:
            assert not urlsplit(loaded).scheme and not loaded.startswith("//"), f"{path.name}: {loaded}"
            target = urlsplit(loaded).path  # empty where a page links to itself
            assert not target or (path.parent / target).is_file(), f"{path.name}: {loaded}"
    for style in built.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", style.read_text(encoding="utf-8")), (
            style
        )


def test_formulas_are_drawn_by_the_browser_itself(built: Path, pages: dict[Path, Page]) -> None:
    text = (built / "method.html").read_text(encoding="utf-8")
    assert text.count("<math") >= 5 and "<mfrac>" in text and "$$" not in text
    assert not any("mathjax" in loaded.lower() for page in pages.values() for loaded in page.loads)


def test_pages_fit_a_telephone(pages: dict[Path, Page], built: Path) -> None:
    text = (built / "index.html").read_text(encoding="utf-8")
    assert 'name="viewport"' in text and "width=device-width" in text
    assert "prefers-color-scheme" in (built / "_static/styles/furo.css").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_of_the_sources_lead_to_files(page: Path) -> None:
    for target in _LINK.findall(page.read_text(encoding="utf-8")):
        if not urlsplit(target).scheme and not target.startswith("#"):
            assert (page.parent / target.partition("#")[0]).exists(), target


def shown_commands(page: Path) -> Iterator[str]:
    """Every call of ``dietcode`` in the code of a page."""
    text = page.read_text(encoding="utf-8")
    code = [block.text for block in blocks(page) if block.language in {"console", "sh"}]
    indented = re.findall(r"^ {4}.*(?:\n {4}.*)*", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M)
    for piece in [*code, *indented]:
        joined = re.sub(r"\\\n\s*", " ", piece)
        for line in joined.splitlines():
            for found in _CALL.finditer(line):
                yield found[1]
    for found in re.finditer(r"`dietcode ([a-z][^`\n]*)`", text):
        yield found[1]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_that_are_shown_exist(page: Path) -> None:
    from dietcode.cli.app import commands

    for shown in shown_commands(page):
        words = shlex.split(re.sub(r"[|)].*|&&.*| > .*|…", " ", shown.replace("'", "")), comments=True)
        command = commands()
        while words and hasattr(command, "commands"):
            name = words.pop(0).rstrip(",;")
            if not re.fullmatch("[a-z][a-z-]+", name):
                break
            assert name in command.commands, f"dietcode {shown}"
            command = command.commands[name]
        known = {option for param in getattr(command, "params", ()) for option in param.opts}
        given = {word.partition("=")[0].rstrip(",.;]") for word in words if re.match(r"\[?--?[a-z]", word)}
        assert {word.lstrip("[") for word in given} <= known | {"--help"}, f"dietcode {shown}"


def test_commands_are_found() -> None:
    assert sum(1 for page in PAGES for _ in shown_commands(page)) > 100
    assert "pull bert-dense -o build/bert-dense    # checked by digest, cached, locked in dietcode.lock" in {
        shown.replace("        ", "") for shown in shown_commands(ROOT / "README.md")
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_that_is_shown_compiles(page: Path) -> None:
    for block in blocks(page):
        if block.language == "python":
            compile(block.text, f"{page}:{block.line}", "exec")


def test_files_that_are_named_are_there() -> None:
    """Paths of modules and tests in the pages for those who change the code."""
    for name in ("adding-an-operator", "adding-a-target", "architecture", "method"):
        text = (DOCS / f"{name}.md").read_text(encoding="utf-8")
        named = re.findall(r"`((?:dietcode|server|tests|examples|benchmarks|docs)/[\w/.-]+)`", text)
        for path in named:
            if "NAME" not in path:
                assert (ROOT / path).exists(), f"{name}.md: {path}"
