"""Submitting a workload in a real browser: typing, mistakes, the keyboard alone, the job that comes of it."""

from __future__ import annotations

import re
from itertools import count
from typing import Any

import pytest
from browsing import check_axe, screenshot
from needs import of_extra
from small_libraries import spec_data

from dietcode.protocol import JobState
from dietcode.runtime.cpu import available_cores
from dietcode_server.dashboard.spec_text import spec_text

expect = pytest.importorskip("playwright.sync_api", reason=of_extra("browser")).expect
expect.set_options(timeout=15_000)
_numbers = count()


def waiting_text(name: str) -> tuple[str, str]:
    """Name and text of a workload that no machine here can measure: its job waits, and nothing is tuned."""
    whole = f"{name}-{next(_numbers)}"
    return whole, spec_text(spec_data(whole, target={"kind": "llvm", "num_cores": available_cores() + 1}))


def until_right(page: Any) -> None:
    """The target of a text may be one that the compiler has to be asked about."""
    expect(page.locator("#checking")).to_have_text("the spec is right", timeout=60_000)


def open_editor(page: Any, path: str = "/submit?example=dense-rows") -> Any:
    page.goto(path)
    editor = page.get_by_label("Spec, in YAML or JSON")
    until_right(page)
    return editor


def select(editor: Any, text: str) -> None:
    """Select the first place of a text, as somebody does who is about to type over it."""
    editor.evaluate(
        "(area, text) => { const at = area.value.indexOf(text); area.focus(); "
        "area.setSelectionRange(at, at + text.length) }",
        text,
    )


def selected(editor: Any) -> str:
    found: str = editor.evaluate("area => area.value.slice(area.selectionStart, area.selectionEnd)")
    return found


def line_of(editor: Any, text: str) -> str:
    value = editor.input_value()
    return str(value[: value.index(text)].count("\n") + 1)


def test_a_mistake_is_shown_at_its_place_and_goes_when_it_is_mended(page: Any, server: Any) -> None:
    editor = open_editor(page)
    send, problems = page.get_by_role("button", name="Submit"), page.locator("#problems")
    expect(send).to_be_enabled()
    expect(editor).to_have_attribute("aria-invalid", "false")
    select(editor, "min: 1,")
    page.keyboard.type("min: 0,")
    expect(page.locator(".editor-paper .wrong")).to_have_text("0")
    expect(page.locator(".editor-gutter .bad")).to_have_text(line_of(editor, "min: 0"))
    expect(problems).to_contain_text("shape_vars.M.min: given 0; allowed: at least 1")
    expect(editor).to_have_attribute("aria-invalid", "true")
    expect(send).to_be_disabled()
    check_axe(page)
    screenshot(page, "submit-wrong")
    problems.get_by_role("link").click()
    assert selected(editor) == "0"
    page.keyboard.type("2")
    until_right(page)
    expect(problems).to_be_empty()
    expect(page.locator(".editor-gutter .bad")).to_have_count(0)
    expect(send).to_be_enabled()
    expect(page.locator("#summary")).to_contain_text("m = M ≤ 2\u202f048")
    check_axe(page)
    screenshot(page, "submit")


def test_what_is_seen_lies_under_what_is_typed(page: Any, server: Any) -> None:
    """The coloured text has the size of the textarea, which itself never scrolls; the frame does."""
    editor = open_editor(page)
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 800})
        for text in (editor.input_value(), "x" * 300 + "\n" * 80 + "🙂 ünïcode\n"):
            editor.fill(text)
            found = page.evaluate(
                """() => {
                const area = document.getElementById("spec");
                const paper = document.querySelector(".editor-paper");
                const [a, b] = [area.getBoundingClientRect(), paper.getBoundingClientRect()];
                const far = [a.x - b.x, a.y - b.y, a.width - b.width].map(Math.abs);
                const over = [area.scrollHeight - area.clientHeight, area.scrollWidth - area.clientWidth];
                const numbers = document.querySelector(".editor-gutter").textContent;
                return {apart: Math.max(...far), hidden: Math.max(...over),
                        lines: numbers.split("\\n").length - 1};
                }"""
            )
            assert found["apart"] < 1 and found["hidden"] <= 1, (width, found)
            assert found["lines"] == text.count("\n") + 1
        editor.press("Control+End")
        seen = page.evaluate("() => document.getElementById('editor').scrollTop")
        assert seen > 0, "the frame follows the caret"
        editor.fill("a: 1")


def test_a_mark_is_at_its_characters_whatever_stands_before_them(page: Any, server: Any) -> None:
    editor = open_editor(page)
    editor.fill(editor.input_value().replace("name: dense-rows", "name: {'🙂🙂 ü': 1, <b>&amp: 2}"))
    expect(page.locator(".editor-gutter .bad")).to_have_text("2")
    editor.fill(editor.input_value().replace("name: {'🙂🙂 ü': 1, <b>&amp: 2}", "name: '🙂<b>'"))
    expect(page.locator(".editor-paper .wrong")).to_have_text("'🙂<b>'")
    page.locator("#problems a").click()
    assert selected(editor) == "'🙂<b>'"


@pytest.mark.long
def test_a_text_that_is_no_yaml_is_marked_too(page: Any, server: Any) -> None:
    editor = open_editor(page)
    editor.fill(editor.input_value().replace("output:", "name: twice\noutput:"))
    expect(page.locator(".editor-paper .wrong")).to_have_text("name")
    expect(page.locator("#problems")).to_contain_text("given twice")
    editor.fill("")
    expect(page.locator("#problems")).to_contain_text("the document is empty")


def test_a_text_survives_a_reload_and_can_be_discarded(page: Any, server: Any) -> None:
    editor = open_editor(page)
    before = editor.input_value()
    select(editor, "dense-rows")
    page.keyboard.type("my-own")
    page.reload()
    expect(editor).to_have_value(before.replace("dense-rows", "my-own", 1))
    expect(page.locator("#restored")).to_be_visible()
    page.goto("/submit?example=two-dims")
    expect(page.locator("#restored")).to_be_hidden()
    page.goto("/submit?example=dense-rows")
    page.get_by_role("button", name="Discard it").click()
    expect(editor).to_have_value(before)
    page.reload()
    expect(editor).to_have_value(before)
    expect(page.locator("#restored")).to_be_hidden()


def test_tab_indents_escape_leaves_and_undo_takes_it_back(page: Any, server: Any) -> None:
    editor = open_editor(page)
    editor.fill("a:\nb: 1\nc: 2")
    select(editor, "b: 1\nc: 2")
    editor.press("Tab")
    expect(editor).to_have_value("a:\n  b: 1\n  c: 2")
    editor.press("Shift+Tab")
    expect(editor).to_have_value("a:\nb: 1\nc: 2")
    editor.press("Control+z")
    expect(editor).to_have_value("a:\n  b: 1\n  c: 2")
    select(editor, "a:")
    editor.press("ArrowRight")
    editor.press("Enter")
    page.keyboard.type("x: 1")
    editor.press("Enter")
    page.keyboard.type("y: 2")
    expect(editor).to_have_value("a:\n  x: 1\n  y: 2\n  b: 1\n  c: 2")
    expect(editor).to_be_focused()
    editor.press("Escape")
    editor.press("Tab")
    expect(editor).not_to_be_focused()


@pytest.mark.thorough
def test_with_the_keyboard_alone(page: Any, server: Any) -> None:
    """From the address to the job, without a mouse and without being caught anywhere."""
    name, text = waiting_text("by-keyboard")
    open_editor(page)
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("() => document.activeElement.id") == "spec":
            break
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)
    until_right(page)
    page.keyboard.press("Escape")
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.evaluate("() => document.activeElement.id") == "send":
            break
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/jobs/[0-9a-f]{16}$"))
    expect(page.get_by_role("heading", level=1)).to_contain_text(name)


def test_submitting_leads_to_the_job(page: Any, server: Any) -> None:
    name, text = waiting_text("submitted")
    editor = open_editor(page)
    editor.fill(text)
    until_right(page)
    expect(page.locator("#summary")).to_contain_text("The job will wait: no runner can measure")
    page.get_by_label("Priority").fill("7")
    page.get_by_label("Fails unless finished within").fill("2")
    page.get_by_label("Unit of the deadline").select_option("hours")
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url(re.compile(r"/jobs/[0-9a-f]{16}$"))
    job = server.client.job(page.url.rsplit("/", 1)[1])
    assert (job.name, job.priority, job.state) == (name, 7, JobState.WAITING_FOR_RUNNER)
    assert job.deadline_at is not None
    assert 7100 < (job.deadline_at - job.created_at).total_seconds() <= 7200

    editor = open_editor(page)
    assert name not in editor.input_value(), "what was submitted is no draft any more"
    editor.fill(text)
    expect(page.locator("#summary")).to_contain_text(f"This is a job already: {job.id}")
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url(f"**/jobs/{job.id}")

    page.goto(f"/submit?from={job.id}")
    expect(page.locator("#summary")).to_contain_text("This is a job already")
    page.get_by_label("Measure everything again").check()
    expect(page.locator("#summary")).not_to_contain_text("This is a job already")
    page.get_by_role("button", name="Submit").dblclick()
    page.wait_for_url(lambda url: "/jobs/" in url and job.id not in url)
    again = server.client.job(page.url.rsplit("/", 1)[1])
    assert again.force and again.spec == job.spec
    assert sum(one.name == name for one in server.client.jobs(limit=500).jobs) == 2, "one click or two"


def test_what_the_server_refuses_is_said_and_the_text_stays(page: Any, server: Any, watch: Any) -> None:
    _, text = waiting_text("refused")
    editor = open_editor(page)
    editor.fill(text)
    until_right(page)
    page.route("**/submit", lambda route: route.abort())
    watch.expect(r"failed|ERR_FAILED")
    watch.expect(r"Failed to load resource")
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_role("alert")).to_have_text("the server does not answer")
    expect(editor).to_have_value(text)
    expect(page.get_by_role("button", name="Submit")).to_be_enabled()


@pytest.mark.long
def test_examples_are_a_click_away(page: Any, server: Any) -> None:
    editor = open_editor(page, "/submit")
    page.get_by_text("Start from an example").click()
    screenshot(page, "submit-examples")
    page.get_by_role("link", name="bert-bmm-qk", exact=True).click()
    expect(editor).to_have_value(re.compile("name: bert-bmm-qk"))
    expect(page.locator("#summary")).to_contain_text("Y[b, t, s] = Σk A[b, t, k] · B[b, s, k]")
