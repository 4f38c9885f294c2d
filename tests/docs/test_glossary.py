"""Every word of the glossary is defined once, in one sentence, and is a word that the pages use."""

from __future__ import annotations

import re

import pytest
from pages import DOCS, PAGES

_HEAD = re.compile(r"^\| (?:word|term) \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", re.MULTILINE)


def words(text: str) -> list[tuple[str, str]]:
    """Each word that a table of a page defines, with its meaning; backticks stay."""
    rows = (row for table in _HEAD.findall(text) for row in table.splitlines())
    cells = ([cell.strip() for cell in row.strip("|").split("|")] for row in rows)
    return [(row[0], row[-1]) for row in cells]


GLOSSARY = words((DOCS / "glossary.md").read_text(encoding="utf-8"))


def test_a_word_has_one_meaning_of_one_sentence() -> None:
    assert len(GLOSSARY) > 40
    assert len({word.lower() for word, _ in GLOSSARY}) == len(GLOSSARY)
    for word, meaning in GLOSSARY:
        assert re.fullmatch(r"[A-Z`]((?!\. ).)*\.", meaning), word


@pytest.mark.parametrize("word", [word for word, _ in GLOSSARY])
def test_a_word_is_used(word: str) -> None:
    pages = [page for page in PAGES if page.name != "glossary.md"]
    plural = {"index": "indices", "category": "categories"}.get(word, f"{word}s")
    pattern = re.compile(rf"(?<!\w)({word}|{plural})(?!\w)".replace(" ", r"\s+"), re.IGNORECASE)
    assert any(pattern.search(page.read_text(encoding="utf-8")) for page in pages)


def test_other_pages_repeat_the_glossary_or_define_nothing() -> None:
    for page in PAGES:
        if page.name != "glossary.md":
            assert set(words(page.read_text(encoding="utf-8"))) <= set(GLOSSARY), page.name


def test_the_method_begins_with_its_words() -> None:
    shown = words((DOCS / "method.md").read_text(encoding="utf-8"))
    assert [word for word, _ in shown][:2] == ["shape variable", "instance"]


def test_the_index_leads_to_it() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    assert "(glossary.md)" in index
