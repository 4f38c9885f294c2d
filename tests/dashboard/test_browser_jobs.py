"""The list of jobs in a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from browsing import Watch, check_axe, screenshot
from fake_worker import FakeWorker, fake_worker
from served import Served

from dietcode.protocol import JobState

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

MARK = "document.body.dataset.mark = 'not reloaded'"


def expect(what, **options):
    from playwright.sync_api import expect as playwright_expect

    return playwright_expect(what, **options)


@pytest.fixture
def worker(server: Served) -> Iterator[FakeWorker]:
    with fake_worker(server) as made:
        yield made


def name_of(server: Served, worker: FakeWorker) -> str:
    return server.client.job(worker.job_id).name


def test_the_list_is_live(page: Page, worker: FakeWorker) -> None:
    page.goto("/")
    page.evaluate(MARK)
    row = page.get_by_role("row").filter(has=page.locator(f"#job-{worker.job_id}"))
    expect(row).to_contain_text("waiting for runner")
    page.locator(f"#job-{worker.job_id}").focus()
    worker.start()
    worker.tell("measure", "8x16", done=3, total=12, best_gflops=123.4, secs_left=90.0)
    expect(row).to_contain_text("measure 3/12")
    expect(row).to_contain_text("123.4")
    assert row.get_by_role("progressbar").get_attribute("value") == "3"
    worker.tell("measure", "9x16", done=4, total=12, best_gflops=130.0)
    expect(row).to_contain_text("measure 4/12")
    expect(page.locator(f"#job-{worker.job_id}")).to_be_focused()
    worker.finish(JobState.FAILED, "no space is left")
    expect(row).to_contain_text("no space is left")
    assert page.evaluate("document.body.dataset.mark") == "not reloaded"


@pytest.mark.thorough
def test_nothing_is_asked_while_nobody_looks(page: Page, watch: Watch, worker: FakeWorker) -> None:
    page.goto("/")
    page.evaluate(
        "Object.defineProperty(document, 'hidden', {get: () => window.unseen ?? true, configurable: true})"
    )
    page.wait_for_timeout(200)  # an answer may be on its way
    before = len(watch.requests)
    page.wait_for_timeout(4500)
    assert len(watch.requests) == before
    worker.start()
    page.evaluate("window.unseen = false; document.dispatchEvent(new Event('visibilitychange'))")
    row = page.get_by_role("row").filter(has=page.locator(f"#job-{worker.job_id}"))
    expect(row).to_contain_text("running")


def test_typing_filters_and_the_address_says_so(page: Page, server: Served, worker: FakeWorker) -> None:
    name = name_of(server, worker)
    page.goto("/?state=waiting_for_runner")
    page.evaluate(MARK)
    box = page.get_by_role("searchbox", name="Name")
    box.press_sequentially(name)
    expect(page.locator("#jobs [id^=job-]")).to_have_count(1)
    expect(page).to_have_url(re.compile(rf"/\?q={name}&state=waiting_for_runner$"))
    expect(box).to_be_focused()
    expect(box).to_have_value(name)
    page.get_by_label("Order").select_option("finished")
    expect(page.get_by_text("No job fits.")).to_be_visible()
    assert page.evaluate("document.body.dataset.mark") == "not reloaded"
    page.reload()
    expect(page.get_by_role("searchbox", name="Name")).to_have_value(name)
    expect(page.get_by_text("No job fits.")).to_be_visible()


def test_a_row_cancels_and_resumes_by_keyboard(page: Page, worker: FakeWorker) -> None:
    page.goto("/")
    asked: list[str] = []
    page.once("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    page.locator(f"#cancel-{worker.job_id}").press("Enter")
    assert asked and "can be resumed" in asked[0]
    assert worker.state() == JobState.WAITING_FOR_RUNNER
    page.once("dialog", lambda dialog: dialog.accept())
    page.locator(f"#cancel-{worker.job_id}").press("Enter")
    row = page.get_by_role("row").filter(has=page.locator(f"#job-{worker.job_id}"))
    expect(row).to_contain_text("cancelled")
    expect(page.locator("#main")).to_be_focused()  # the button is gone
    page.locator(f"#resume-{worker.job_id}").press("Space")
    expect(row).to_contain_text("waiting for runner")


def test_a_refused_button_says_why(page: Page, watch: Watch, server: Served, worker: FakeWorker) -> None:
    page.goto("/")
    page.evaluate("window.setInterval = null; for (let i = 0; i < 1000; i++) window.clearInterval(i)")
    worker.start()
    worker.finish(JobState.FAILED, "why")
    page.once("dialog", lambda dialog: dialog.accept())
    watch.expect(r"status 409: POST .*/cancel")
    watch.expect(r"error: .*409")
    page.locator(f"#cancel-{worker.job_id}").click()
    expect(page.get_by_role("status")).to_contain_text("there is nothing to cancel")


def test_the_list_works_without_scripts(browser: Browser, server: Served, worker: FakeWorker) -> None:
    name = name_of(server, worker)
    context = browser.new_context(base_url=server.url, java_script_enabled=False)
    page = context.new_page()
    page.goto("/")
    page.get_by_role("searchbox", name="Name").fill(name)
    page.get_by_role("button", name="Show").click()
    assert f"q={name}" in page.url
    assert page.locator("#jobs [id^=job-]").count() == 1
    page.locator("#chip-waiting_for_runner").click()
    assert "state=waiting_for_runner" in page.url and f"q={name}" in page.url
    page.locator(f"#job-{worker.job_id}").click()
    assert page.get_by_role("heading", level=1).inner_text() == name
    context.close()


def test_the_frame_by_keyboard(page: Page) -> None:
    page.goto("/")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Submit a workload")).to_be_focused()


def test_an_error_is_a_page(page: Page, watch: Watch) -> None:
    watch.expect(r"status 404: GET .*/jobs/none")
    watch.expect(r"error: .*404")
    page.goto("/jobs/none")
    expect(page.get_by_role("heading", level=1)).to_have_text("Not found")
    check_axe(page)
    screenshot(page, "error")


def test_the_list_is_accessible_and_fits(page: Page, server: Served) -> None:
    with fake_worker(server, "faked-running") as running, fake_worker(server, "faked-waiting"):
        running.start()
        running.tell("measure", "8x16", done=30, total=64, best_gflops=187.2, secs_left=190.0)
        with fake_worker(server, "faked-failed") as failed:
            failed.start()
            failed.finish(JobState.FAILED, "no micro-kernel worked; the first said: `gcc` ended with 1")
            page.goto("/")
            expect(page.get_by_role("progressbar").first).to_be_visible()
            check_axe(page)
            screenshot(page, "jobs")
