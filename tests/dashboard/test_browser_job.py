"""The live part of a job's page in a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from browsing import Watch, check_axe, screenshot
from fake_worker import FakeWorker, fake_worker
from served import ONE_VARIABLE, Served

from dietcode.protocol import JobState

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

MARK = "document.body.dataset.mark = 'not reloaded'"
_HIDE = (
    "Object.defineProperty(document, 'hidden', {get: () => window.unseen, configurable: true});"
    "window.unseen = "
)
_SEEN = "; document.dispatchEvent(new Event('visibilitychange'))"
# Whether something was drawn on the chart: pixels of the accent's colour, whatever else is there.
_DRAWN = """() => {
  const canvas = document.querySelector('#best-chart canvas');
  if (!canvas) return 0;
  const accent = getComputedStyle(document.documentElement).getPropertyValue('--accent').trim();
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(accent.slice(at, at + 2), 16));
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', {willReadFrequently: true});
  copy.drawImage(canvas, 0, 0);
  const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
  let found = 0;
  for (let at = 0; at < data.length; at += 4)
    if (data[at] === r && data[at + 1] === g && data[at + 2] === b) found++;
  return found;
}"""


def expect(what, **options):
    from playwright.sync_api import expect as playwright_expect

    return playwright_expect(what, **options)


@pytest.fixture
def worker(server: Served) -> Iterator[FakeWorker]:
    with fake_worker(server) as made:
        yield made


@pytest.mark.timeout(700)  # as long as two cores need that are busy with something else
def test_a_real_job_is_followed_to_its_library(page: Page, watch: Watch, server: Served) -> None:
    """From wherever it is when the page opens: it begins when the server does."""
    job = server.submit(ONE_VARIABLE)
    page.goto(f"/jobs/{job.id}")
    page.evaluate(MARK)
    expect(page.locator("#state")).to_have_attribute("data-state", "succeeded", timeout=600_000)
    stages = ["seed", "measure", "select", "build", "verify", "publish"]
    expect(page.locator(".stages .done")).to_contain_text(stages)
    library = server.reach(job).library
    assert library is not None
    expect(page.get_by_role("link", name=f"one-variable@{library.version}").first).to_be_visible()
    expect(page.locator("#log-rows")).to_contain_text("Round 1")
    expect(page.locator("#result")).not_to_be_empty()
    assert page.evaluate("document.body.dataset.mark") == "not reloaded"
    assert any(request.endswith(f"/jobs/{job.id}/result") for request in watch.requests)
    page.wait_for_function(_DRAWN)


def test_what_a_worker_tells_appears_without_a_reload(page: Page, watch: Watch, worker: FakeWorker) -> None:
    page.goto(f"/jobs/{worker.job_id}")
    page.evaluate(MARK)
    expect(page.get_by_text("no runner can measure")).to_have_count(2)  # at the top, and in the log
    worker.start()
    expect(page.locator("#state")).to_have_attribute("data-state", "running")
    expect(page.get_by_role("status")).to_have_text("The job is running.")
    expect(page).to_have_title(re.compile("running"))
    worker.tell(
        "seed", "MetaSchedule on the largest instance", done=2, total=8, best_gflops=41.0, secs_left=75.0
    )
    stage = page.locator(".stages [aria-current=step]")
    expect(stage).to_contain_text("seed: working")
    expect(page.locator("#live")).to_contain_text("up to 1 min 15 s left in this stage")
    expect(page.locator("#best-text")).to_contain_text("Best so far 41.0 GFLOP/s")
    page.wait_for_function(_DRAWN)
    page.locator("#best-table summary").click()
    worker.tell("measure", "8x16: 97 GFLOP/s", done=1, total=40, best_gflops=97.25)
    expect(page.locator("#best-table")).to_contain_text("97.2")  # it stays unfolded
    expect(stage).to_contain_text("measure: working")
    worker.decide(1)
    newest = page.locator("#log-rows > li").first
    expect(newest).to_contain_text("Round 1")
    newest.get_by_text("what was tried").click()
    expect(newest).to_contain_text("added for m=37, where padding leaves 57%")
    worker.decide(2, "the trials of the budget are used up")
    expect(newest).to_contain_text("Round 2")
    expect(page.locator("#log-rows > li").nth(1).get_by_text("added for m=37")).to_be_visible()
    worker.finish(JobState.FAILED, "no space is left")
    expect(page.get_by_role("alert")).to_contain_text("no space is left")
    expect(page.get_by_role("status")).to_have_text("The job has failed.")
    expect(page.get_by_role("button", name="Resume")).to_be_enabled()
    assert page.evaluate("document.body.dataset.mark") == "not reloaded"
    assert len([request for request in watch.requests if "/events" in request]) == 1


@pytest.mark.thorough
def test_a_hidden_page_rests_and_catches_up(page: Page, watch: Watch, worker: FakeWorker) -> None:
    worker.start()
    page.goto(f"/jobs/{worker.job_id}")
    worker.tell("build", "one")
    expect(page.locator("#log-rows")).to_contain_text("one")
    page.evaluate(_HIDE + "true" + _SEEN)
    page.wait_for_timeout(1200)  # what was on its way
    before = len(watch.requests)
    worker.tell("verify", "two")
    page.wait_for_timeout(2500)
    assert len(watch.requests) == before
    page.evaluate(_HIDE + "false" + _SEEN)
    expect(page.locator("#log-rows")).to_contain_text("two")
    events = [request for request in watch.requests if "/events" in request]
    assert len(events) == 2 and re.search(r"after=[1-9]\d*$", events[1])


@pytest.mark.thorough
def test_a_page_without_a_stream_asks_again(
    page: Page, context: BrowserContext, watch: Watch, worker: FakeWorker
) -> None:
    context.route("**/events?*", lambda route: route.fulfill(status=502, body="a proxy says no"))
    watch.expect(r"status 502")
    watch.expect(r"error: .*502")
    worker.start()
    page.goto(f"/jobs/{worker.job_id}")
    worker.tell("build", "seen by asking")
    expect(page.locator("#log-rows")).to_contain_text("seen by asking")
    worker.finish(JobState.FAILED, "the end")
    expect(page.get_by_role("alert")).to_contain_text("the end")


def test_a_job_is_cancelled_and_resumed_by_keyboard(page: Page, worker: FakeWorker) -> None:
    page.goto(f"/jobs/{worker.job_id}")
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Cancel").press("Enter")
    expect(page.locator("#state")).to_have_attribute("data-state", "cancelled")
    page.get_by_role("button", name="Resume").press("Enter")
    expect(page.locator("#state")).to_have_attribute("data-state", "waiting_for_runner")
    worker.start()  # the page follows again
    expect(page.locator("#state")).to_have_attribute("data-state", "running")


def test_older_entries_come_below_and_the_log_is_filtered(page: Page, worker: FakeWorker) -> None:
    worker.start()
    for step in range(60):
        worker.tell("build", f"step no {step}.")
    worker.tell("measure", "8x16: 97 GFLOP/s", done=1, total=2, best_gflops=97.0)
    page.goto(f"/jobs/{worker.job_id}")
    rows = page.locator("#log-rows > li[data-seq]")
    expect(rows).to_have_count(50)
    page.get_by_role("link", name="Older").click()
    expect(page.locator("#log-rows")).to_contain_text("step no 0.")
    worker.tell("verify", "newer")
    expect(rows.first).to_contain_text("newer")
    page.get_by_role("link", name="measurements").click()
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("8x16: 97 GFLOP/s")


@pytest.mark.long
def test_the_chart_takes_the_colours_of_the_scheme(page: Page, worker: FakeWorker) -> None:
    worker.start()
    worker.tell("measure", "8x16: 97 GFLOP/s", done=1, total=2, best_gflops=97.0)
    page.goto(f"/jobs/{worker.job_id}")
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_function(_DRAWN)


def test_the_chart_tells_a_point_without_breaking_the_policy(page: Page, worker: FakeWorker) -> None:
    worker.start()
    worker.tell("measure", "<b>8x16</b>: 97 GFLOP/s", done=1, total=2, best_gflops=97.0)
    page.goto(f"/jobs/{worker.job_id}")
    page.wait_for_function(_DRAWN)
    box = page.locator("#best-chart")
    size = box.bounding_box()
    tip = page.locator(".chart-tip")
    for share in (0.4, 0.5):
        page.mouse.move(size["x"] + share * size["width"], size["y"] + size["height"] / 2)
    expect(tip.first).to_contain_text("97.0 GFLOP/s")
    expect(tip.first).to_contain_text("<b>8x16</b>")


def test_each_trial_is_a_point_and_times_are_the_readers(
    browser: Browser, server: Served, worker: FakeWorker
) -> None:
    worker.start()
    for rate in (97.0, 61.0):
        worker.tell("measure", f"8x16: {rate:.0f} GFLOP/s", {"gflops": rate}, done=1, best_gflops=97.0)
    context = browser.new_context(base_url=server.url, timezone_id="Asia/Tokyo")
    try:
        page = context.new_page()
        page.goto(f"/jobs/{worker.job_id}?log=all")
        page.wait_for_function(_DRAWN)
        drawn = page.evaluate(
            "() => echarts.getInstanceByDom(document.getElementById('best-chart')).getOption().series"
        )
        (trials,) = (one["data"] for one in drawn if one["name"] == "trials")
        assert [point["value"][1] for point in trials] == [97.0, 61.0]
        at = page.locator("#log-rows time").first
        moment = datetime.fromisoformat(str(at.get_attribute("datetime")))
        assert at.inner_text() == (moment + timedelta(hours=9)).strftime("%H:%M:%S")
        facts = page.get_by_label("Facts", exact=True)
        submitted = facts.locator("time").first
        moment = datetime.fromisoformat(str(submitted.get_attribute("datetime")))
        assert submitted.inner_text() == (moment + timedelta(hours=9)).strftime("%Y-%m-%d %H:%M:%S")
        assert "UTC" not in facts.inner_text(), "a local time says no other zone"
    finally:
        context.close()


def test_the_page_is_accessible_and_fits(page: Page, worker: FakeWorker) -> None:
    worker.start()
    worker.tell("calibrate", "κ = 0.02 on 2 cores, full waves 197 GFLOP/s, measured now", done=1, total=1)
    worker.tell("seed", "T0 = 8x32, 99 GFLOP/s after 8 trials", done=8, total=8, best_gflops=99.0)
    for number in range(1, 4):
        worker.tell("measure", f"{number}x16", done=4 * number, total=40, best_gflops=100.0 + 20 * number)
        worker.decide(number)
    worker.tell("measure", "9x32: 171 GFLOP/s", done=13, total=40, best_gflops=171.0, secs_left=95.0)
    page.goto(f"/jobs/{worker.job_id}")
    page.wait_for_function(_DRAWN)
    check_axe(page)
    screenshot(page, "job-running")
