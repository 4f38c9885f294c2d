"""Results in a real browser: charts of jobs that were really tuned, another choice, and a very large job."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from browsing import check_axe, screenshot
from published import publish_job, report_data

from dietcode.protocol import Job
from dietcode_server.store.database import Database

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOSTILE = "<img src=x onerror=alert(1)>"
FIRST_PAINT_MS = 1000
MAX_BYTES = 1_500_000
# How many different colours a chart has: a blank one has none, a frame with text only a few.
_COLOURS = """(box) => {
  const canvas = box.querySelector('canvas');
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const seen = new Set();
  for (let at = 0; at < data.length; at += 4)
    if (data[at + 3] > 200) seen.add(data[at] << 16 | data[at + 1] << 8 | data[at + 2]);
  return seen.size;
}"""


@pytest.fixture(scope="module")
def made_up(server: Any) -> Iterator[dict[str, str]]:
    """Jobs by name that nobody tuned, in the server's own database."""
    database = Database(f"sqlite:///{server.folder / 'data' / 'dietcode.db'}")
    shapes = [{"T": t} for t in range(1, 41)]
    three = [{"I": i, "H": h, "G": g} for i in (16, 64, 128) for h in (1, 2, 3) for g in (1, 4)]
    hostile = report_data(shapes)
    hostile["micro_kernels"][0]["micro_kernel"] = HOSTILE
    yield {
        "first": publish_job(database, "first", report_data(shapes), measured=(0, 9, 39)),
        "second": publish_job(database, "second", report_data(shapes, seed=5), measured=(9, 20)),
        "three": publish_job(database, "three", report_data(three)),
        "hostile": publish_job(database, "hostile", hostile),
    }
    database.dispose()


def open_result(page: Page, job_id: str) -> dict[str, Any]:
    """The page of a job with its charts drawn; what they are drawn from."""
    page.goto(f"/jobs/{job_id}")
    result = page.locator("[data-result]")
    result.wait_for()
    for name in (
        "assignment" if result.locator("[data-chart=assignment]").count() else "map",
        "trade-off",
        "fit",
    ):
        result.locator(f"[data-chart={name}][data-drawn]").wait_for()
    found: dict[str, Any] = page.request.get(str(result.get_attribute("data-src"))).json()
    return found


def series(page: Page, name: str) -> dict[str, Any]:
    """What a chart has drawn: series by name, each with type and values."""
    text = page.locator(f"[data-chart={name}]").evaluate(
        "(box) => JSON.stringify(Object.fromEntries(box.chart.getOption().series.map("
        "(one) => [one.name, {type: one.type, data: one.data.map((item) => item.value ?? item)}])))"
    )
    return dict(json.loads(text))


def move_to(page: Page, name: str, finder: str, value: list[float], click: bool = False) -> None:
    """Put the mouse on a place of a chart, given in its own coordinates."""
    chart = page.locator(f"[data-chart={name}]")
    chart.scroll_into_view_if_needed()
    x, y = chart.evaluate(f"(box, value) => box.chart.convertToPixel({finder}, value)", value)
    box = chart.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + x + 3, box["y"] + y)
    page.mouse.move(box["x"] + x, box["y"] + y)
    if click:
        page.mouse.click(box["x"] + x, box["y"] + y)


def tip(page: Page, name: str) -> str:
    shown = page.locator(f"[data-chart={name}] .chart-tip")
    shown.locator(".tip").wait_for()
    return shown.inner_text()


def test_charts_of_one_variable(page: Page, one_variable: Job) -> None:
    data = open_result(page, one_variable.id)
    drawn = series(page, "assignment")
    assert drawn["predicted"]["data"] == [
        [t, g] for t, g in zip(data["shapes"][0], data["predicted"], strict=True)
    ]
    strip = drawn["category"]["data"]
    for t, category in zip(data["shapes"][0], data["category"], strict=True):
        assert [run[2] for run in strip if run[0] < t < run[1]] == [category], t
    compared = data["compared"]
    # Other tests may have run beside the job's comparison: what they disturbed is drawn apart.
    calm = [rate for rate, why in zip(compared["measured"], compared["disturbed"], strict=True) if not why]
    assert [value for _, value in drawn["measured"]["data"]] == calm
    others = [rate for rate, why in zip(compared["measured"], compared["disturbed"], strict=True) if why]
    assert [value for _, value in drawn["disturbed"]["data"]][: len(others)] == others
    sizes = series(page, "trade-off")
    assert len(sizes["best of its size"]["data"]) == sum(point["best"] for point in data["tradeOff"]) > 1
    assert len(sizes["chosen"]["data"]) == 1
    fit = series(page, "fit")
    assert [value for _, value in fit["measured"]["data"]] == data["fit"]["measured"]
    x = [-(-n // data["fit"]["slots"]) * data["fit"]["slots"] / n for n in data["fit"]["tiles"]]
    kappa = data["fit"]["kappa"]
    assert [v for _, v in fit["f_spatial"]["data"]] == pytest.approx(
        [1 / (kappa * v + 1 - kappa) for v in x], rel=1e-3
    )
    for name in ("assignment", "trade-off", "fit"):
        assert page.locator(f"[data-chart={name}]").evaluate(_COLOURS) > 9


def test_hover_says_what_why_and_what_else(page: Page, one_variable: Job) -> None:
    data = open_result(page, one_variable.id)
    for at in (0, 17, 39):
        page.mouse.move(0, 0)
        move_to(
            page,
            "assignment",
            "{xAxisIndex: 0, yAxisIndex: 0}",
            [data["shapes"][0][at], data["predicted"][at]],
        )
        page.locator(".chart-tip strong", has_text=re.compile(rf"^T = {at + 1}$")).wait_for()
        text = tip(page, "assignment")
        kernel = data["kernels"][data["serves"][data["category"][at]]]
        assert f"category {data['category'][at]} · {kernel}" in text
        for word in (
            "predicted",
            "f_local",
            "f_spatial",
            "f_pad",
            "padding ratio",
            "waves",
            "tiles on P =",
            "Why:",
        ):
            assert word in text, (word, text)
        if data["predicted"][at] >= data["best"][at]:
            assert data["kernels"][data["runnerUp"][at]] in text


def test_the_slider_goes_through_the_instances_by_keyboard(page: Page, one_variable: Job) -> None:
    open_result(page, one_variable.id)
    slider, said = page.locator("[data-pin]"), page.locator("[data-pinned] strong")
    slider.focus()
    page.keyboard.press("Home")
    assert said.inner_text() == "T = 1"
    page.keyboard.press("ArrowRight")
    assert said.inner_text() == "T = 2" and slider.get_attribute("aria-valuetext") == "T 2"
    move_to(page, "assignment", "{xAxisIndex: 1, yAxisIndex: 1}", [30, 0.5], click=True)
    assert said.inner_text() == "T = 30" and slider.input_value() == "29"


def test_a_map_of_two_variables(page: Page, two_variables: Job) -> None:
    data = open_result(page, two_variables.id)
    drawn = series(page, "map")["instances"]
    assert drawn["type"] == "heatmap" and len(drawn["data"]) == len(data["category"]) == 144
    assert page.locator("[data-chart=map]").evaluate(_COLOURS) > 9
    at = 100
    assert [value[2] for value in drawn["data"]][at] == data["category"][at]
    move_to(page, "map", "{seriesIndex: 0}", drawn["data"][at][:2])
    shape = f"B = {data['shapes'][0][at]}, T = {data['shapes'][1][at]}"
    page.locator(".chart-tip strong", has_text=re.compile(f"^{shape}$")).wait_for()
    assert "f_pad" in tip(page, "map")
    page.mouse.move(0, 0)
    for colour, figure in (("predicted", "predicted"), ("f_pad", "f_pad")):
        page.locator("[data-colour]").select_option(colour)
        shown = series(page, "map")["instances"]
        assert [value[2] for value in shown["data"]] == data[figure]


def test_what_is_chosen_before_the_data_came_is_drawn(page: Page, two_variables: Job) -> None:
    held: list[Any] = []

    def hold(route: Any) -> None:
        held.append(route)

    page.route("**/result.json*", hold)
    with page.expect_request("**/result.json*"):
        page.goto(f"/jobs/{two_variables.id}")
    page.locator("[data-colour]").select_option("f_pad")
    held[0].continue_()
    page.locator("[data-chart=map][data-drawn]").wait_for()
    data = page.request.get(str(page.locator("[data-result]").get_attribute("data-src"))).json()
    assert [value[2] for value in series(page, "map")["instances"]["data"]] == data["f_pad"]


def test_a_category_can_be_looked_at_alone(page: Page, two_variables: Job) -> None:
    data = open_result(page, two_variables.id)
    page.get_by_text("Instances as a table").click()
    chip = page.locator("[data-legend] button").first
    chip.click()
    page.get_by_text("Only category 0.").wait_for()
    assert chip.get_attribute("aria-pressed") == "true"
    faded = page.locator("[data-chart=map]").evaluate(
        "(box) => box.chart.getOption().series[0].data.map((item) => item.itemStyle.opacity < 1)"
    )
    assert faded == [category != 0 for category in data["category"]]
    chip.click()
    page.get_by_text("Only category 0.").wait_for(state="detached")


def test_tables_are_sorted_and_code_unfolds_by_keyboard(page: Page, one_variable: Job) -> None:
    open_result(page, one_variable.id)
    page.get_by_text("Instances as a table").click()
    page.locator("#instances-predicted").focus()
    page.keyboard.press("Enter")
    page.locator("#instances th[aria-sort=descending]").wait_for()
    assert page.evaluate("() => document.activeElement.id") == "instances-predicted"
    page.keyboard.press("Enter")
    page.locator("#instances th[aria-sort=ascending]").wait_for()
    code = page.locator("button.code-of").first
    code.focus()
    page.keyboard.press("Enter")
    page.locator(".code-row:visible .copy, .code-row:visible p").first.wait_for()
    assert code.get_attribute("aria-expanded") == "true"
    page.keyboard.press("Enter")
    assert code.get_attribute("aria-expanded") == "false"


@pytest.mark.thorough
def test_another_point_is_selected_and_published_and_compared(
    page: Page, server: Any, one_variable: Job
) -> None:
    data = open_result(page, one_variable.id)
    chosen = next(at for at, point in enumerate(data["tradeOff"]) if point["chosen"])
    at = next(at for at, point in enumerate(data["tradeOff"]) if point["best"] and at != chosen)
    point = data["tradeOff"][at]
    position = [point["bytes"] / 1024, 100 * (1 - point["mean"])]
    move_to(page, "trade-off", "{seriesIndex: 0}", position)
    assert f"{point['kernels']} micro-kernel" in tip(page, "trade-off")
    move_to(page, "trade-off", "{seriesIndex: 0}", position, click=True)
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Leave it").click()
    dialog.wait_for(state="hidden")
    page.get_by_text("Points as a table").click()
    page.locator(f"button[data-point='{at}']").click()
    dialog.get_by_role("button", name="Select and publish").click()
    page.wait_for_url(re.compile(r"/jobs/(?!" + one_variable.id + r")[0-9a-f]{16}$"))
    job = server.reach(server.client.job(page.url.rsplit("/", 1)[1]))
    assert not job.measure and job.measured == 0
    assert job.library is not None and one_variable.library is not None
    assert (
        job.library.name == one_variable.library.name and job.library.version > one_variable.library.version
    )
    other = open_result(page, job.id)
    (mine,) = (found for found in other["tradeOff"] if found["chosen"])
    assert mine["bytes"] <= point["bytes"] and mine["mean"] <= point["mean"] + 1e-6

    page.get_by_role("link", name="Compare with another job").click()
    page.get_by_label(f"{job.name} {job.id} with").select_option(one_variable.id)
    page.get_by_role("button", name="Compare").click()
    page.locator("[data-chart=compare][data-drawn]").wait_for()
    drawn = series(page, "compare")
    ratios = [a / b for a, b in zip(other["predicted"], data["predicted"], strict=True)]
    assert [value for _, value in drawn["predicted"]["data"]] == pytest.approx(ratios)
    assert page.get_by_text("objective.binary_size").is_visible()
    assert page.locator("[data-chart=compare]").evaluate(_COLOURS) > 9


def test_compared_jobs_hover(page: Page, made_up: dict[str, str]) -> None:
    page.goto(f"/jobs/{made_up['first']}/compare?with={made_up['second']}")
    page.locator("[data-chart=compare][data-drawn]").wait_for()
    drawn = series(page, "compare")
    assert [t for t, _ in drawn["measured"]["data"]] == [10]
    move_to(page, "compare", "{xAxisIndex: 0, yAxisIndex: 0}", drawn["measured"]["data"][0])
    page.locator(".chart-tip strong", has_text=re.compile("^T = 10$")).wait_for()
    assert "measured" in tip(page, "compare")
    texts = page.locator("main, option").all_text_contents()
    assert "UTC" not in "".join(texts), "times are the reader's own"
    screenshot(page, "compare")
    check_axe(page)


@pytest.mark.thorough
def test_three_variables_are_seen_two_at_a_time(page: Page, made_up: dict[str, str]) -> None:
    data = open_result(page, made_up["three"])
    drawn = series(page, "map")["instances"]
    assert len(drawn["data"]) == 9, "of 18 instances two are in each place"
    page.locator("[data-axis=y]").select_option(label="G")
    drawn = series(page, "map")["instances"]
    assert len(drawn["data"]) == 6
    page.locator("[data-axis=x]").select_option(label="G")
    assert page.locator("[data-axis=y]").input_value() == str(data["variables"].index("I"))


def test_names_are_text_and_never_markup(page: Page, made_up: dict[str, str]) -> None:
    data = open_result(page, made_up["hostile"])
    assert HOSTILE in data["kernels"]
    at = next(at for at, category in enumerate(data["category"]) if category == 0)
    move_to(page, "assignment", "{xAxisIndex: 1, yAxisIndex: 1}", [at + 1, 0.5], click=True)
    assert HOSTILE in page.locator("[data-pinned]").inner_text()
    page.locator(".chart-tip strong", has_text=re.compile(rf"^T = {at + 1}$")).wait_for()
    assert HOSTILE in tip(page, "assignment")
    assert page.locator("img[src=x]").count() == 0


@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize("which", ["one_variable", "two_variables"])
def test_results_are_accessible_and_look_well(which: str, page: Page, request: pytest.FixtureRequest) -> None:
    open_result(page, request.getfixturevalue(which).id)
    screenshot(page, f"result-{which}")
    for summary in page.locator("[data-result] summary").all():
        summary.click()
    page.locator("button.code-of").first.click()
    check_axe(page)
    screenshot(page, f"result-{which}-open")


@pytest.mark.thorough
def test_colours_follow_the_scheme(page: Page, made_up: dict[str, str]) -> None:
    open_result(page, made_up["first"])
    colour = "(box) => box.chart.getOption().series[0].lineStyle.color"
    page.emulate_media(color_scheme="light")
    light = page.locator("[data-chart=assignment]").evaluate(colour)
    page.emulate_media(color_scheme="dark")
    page.locator("[data-chart=assignment]").evaluate("() => new Promise(requestAnimationFrame)")
    assert page.locator("[data-chart=assignment]").evaluate(colour) != light


@pytest.mark.long
def test_a_job_of_ten_thousand_instances_and_two_hundred_micro_kernels(page: Page, server: Any) -> None:
    """The first paint, all bytes of the page, and how long a drawing takes there."""
    database = Database(f"sqlite:///{server.folder / 'data' / 'dietcode.db'}")
    report = report_data([{"T": t} for t in range(1, 10_001)], num_kernels=200, num_chosen=200)
    big = publish_job(database, "big", report, measured=range(0, 10_000, 667))
    database.dispose()
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    session.send("Network.setCacheDisabled", {"cacheDisabled": True})
    sizes: list[float] = []
    session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    paints, weights = [], []
    for _ in range(3):
        sizes.clear()
        data = open_result(page, big)
        weights.append(sum(sizes))
        paints.append(
            page.evaluate("() => performance.getEntriesByName('first-contentful-paint')[0].startTime")
        )
    assert len(data["category"]) == 10_000 and len(data["kernels"]) == 200
    assert statistics.median(paints) <= FIRST_PAINT_MS, paints
    assert max(weights) <= MAX_BYTES, weights
    took = page.locator("[data-chart=assignment]").evaluate(
        "async (box) => { const times = []; const slider = document.querySelector('[data-pin]');"
        " for (let at = 0; at < 5; at += 1) { slider.value = 2000 * at; const start = performance.now();"
        " slider.dispatchEvent(new Event('input')); box.chart.getZr().flush();"
        " times.push(performance.now() - start); }"
        " return times.sort((a, b) => a - b)[2]; }"
    )
    assert took < 300, took
    assert page.locator("[data-chart=assignment]").evaluate(_COLOURS) > 9
    screenshot(page, "result-big")
