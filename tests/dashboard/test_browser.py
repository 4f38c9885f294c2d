"""The pages in a real browser, and that the browser would notice what must not happen."""

from __future__ import annotations

import json
from typing import Any

import pytest
from browsing import SCREENSHOTS, SHOTS, axe_faults, check_axe, screenshot


def test_pages_load_without_trouble(page: Any, server: Any, one_variable: Any, two_variables: Any) -> None:
    for path in ("/", f"/jobs/{one_variable.id}", f"/jobs/{two_variables.id}"):
        assert page.goto(path).ok


def test_the_jobs_were_really_tuned(server: Any, one_variable: Any, two_variables: Any) -> None:
    """With what the charts are about: several categories, a prediction for each instance."""
    for job, num_variables in ((one_variable, 1), (two_variables, 2)):
        assert job.measured >= 2 or job.name not in server.tuned
        manifest = json.loads(server.client.manifest(job.library.name, job.library.version).data)
        assert len(manifest["variable_order"]) == num_variables
        assert server.client.library(job.library.name).num_micro_kernels >= 2


def test_screenshots_are_taken(page: Any, server: Any) -> None:
    page.goto("/")
    screenshot(page, "start")
    for width, scheme in SHOTS:
        assert (SCREENSHOTS / f"start-{width}-{scheme}.png").stat().st_size > 1000
    assert page.viewport_size == {"width": 1440, "height": 900}


@pytest.mark.sampled(keep=3)
@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("console.error('oh')", "^error: oh"),
        ("console.warn('oh')", "^warning: oh"),
        ("setTimeout(() => { throw new Error('oh') })", "^uncaught: .*oh"),
        ("location.href = '/none'", "^status 404: GET .*/none"),
        ("location.href = 'http://example.org/'", "^left the origin: http://example.org/"),
        ("fetch('http://127.0.0.1:1/')", "blocked by the policy: connect-src"),
        (
            "document.body.append(Object.assign(new Image(), {src: 'http://example.org/'}))",
            "^left the origin",
        ),
        (
            "document.body.append(Object.assign(new Image(), {src: 'http://127.0.0.1:1/'}))",
            "^left the origin",
        ),
        ("document.body.setAttribute('style', 'color: red')", "blocked by the policy: style-src"),
        (
            "document.body.append(Object.assign(document.createElement('script'), {text: 'a = 1'}))",
            "blocked by the policy: script-src",
        ),
    ],
)
def test_the_browser_notices(script: str, said: str, page: Any, watch: Any) -> None:
    page.goto("/")
    page.evaluate(f"() => {{ {script} }}")
    watch.expect(said)
    watch.expect(".")  # and what comes along with it
    for _ in range(50):  # a busy machine takes its time
        page.wait_for_timeout(100)
        if watch.unexpected() == []:
            break
    page.wait_for_load_state()  # a context that is closed while a page is being left may never be
    assert watch.unexpected() == []
    watch.expect("^never$")
    assert watch.unexpected() == ["did not happen: ^never$"]
    watch._expected.pop()


def test_a_socket_to_elsewhere_is_noticed(page: Any, watch: Any) -> None:
    page.evaluate("() => { new WebSocket('ws://127.0.0.1:1/') }")  # a blank page has no policy
    page.wait_for_timeout(300)
    watch.expect(r"^left the origin: ws://127\.0\.0\.1:1/")
    watch.expect("^error: WebSocket connection")


def test_axe_notices(page: Any, server: Any) -> None:
    page.goto("/")
    page.evaluate("() => { document.documentElement.removeAttribute('lang') }")
    assert any(fault.startswith("html-has-lang (serious)") for fault in axe_faults(page))
    with pytest.raises(AssertionError, match="html-has-lang"):
        check_axe(page)


def test_a_page_wider_than_the_window_is_noticed(page: Any, server: Any) -> None:
    page.goto("/")
    page.evaluate("() => { document.querySelector('main').style.width = '500px' }")
    with pytest.raises(AssertionError, match=r"\{390: \d+\}"):
        screenshot(page, "wide")
