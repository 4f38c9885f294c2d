"""The documentation as pages of the server: all of it, with links that lead somewhere."""

import re
from posixpath import dirname

import pytest
from made_app import MadeApp, opened, text_of
from small_libraries import ROOT

DOCS = ROOT / "docs"
NAMES = sorted(path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md"))


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    with opened(tmp_path_factory.mktemp("manual")) as made:
        yield made


def _links(text: str) -> set[str]:
    return set(re.findall(r'(?:href|src)="(/(?:help|submit)[^"]*)"', text))


def test_every_page_is_there_and_every_link_leads_somewhere(app: MadeApp) -> None:
    pages = {f"/help/{name}": app.page(f"/help/{name}") for name in NAMES}
    anchors = {path: set(re.findall(r' id="([^"]+)"', text)) for path, text in pages.items()}
    for path, text in pages.items():
        assert "<!--" not in text.partition("<article")[2]
        assert "toctree" not in text and "eval-rst" not in text
        for link in _links(text) - {"/help"}:
            target, _, anchor = link.partition("#")
            if target in pages:
                assert not anchor or anchor in anchors[target], f"{path}: {link}"
            else:
                assert app.client.get(target).status_code == 200, f"{path}: {link}"


def test_contents_are_those_of_the_first_page(app: MadeApp) -> None:
    text = app.page("/help")
    assert text.partition("<main")[2] == app.page("/help/index").partition("<main")[2]
    listed = re.findall(r'<li><a href="/help/([^"#]+)"', text.partition("<article")[0])
    first = [name for name in NAMES if not dirname(name)]
    assert sorted({*listed, "index"}) == sorted([*first, "evidence/index"])
    assert "Begin here" in text_of(text) and "Understand" in text_of(text)


def test_a_page_shows_code_and_tables_and_files(app: MadeApp) -> None:
    text = app.page("/help/cpp")
    assert "#include" in text and "literalinclude" not in text
    assert "<table>" in app.page("/help/errors")


def test_every_page_leads_to_it(app: MadeApp) -> None:
    assert '<a href="/help"' in app.page("/")


@pytest.mark.parametrize(
    "name", ["none", "../pyproject", "../LICENSE", "conf.py", "../tests/durations.txt", "evidence"]
)
def test_nothing_else_is_sent(name: str, app: MadeApp) -> None:
    assert app.client.get(f"/help/{name}").status_code == 404
    assert app.client.get("/help/" + name.replace("/", "%2F")).status_code == 404
