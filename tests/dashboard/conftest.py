"""Fixtures for tests in a real browser on a real server; `browsing` has what they check with.

``server`` : `served.Served`, one for the session
    ``dietcode serve`` as a process, on a loopback port and a data folder of its own: ``server.url``,
    ``server.client``, ``server.submit(spec)``, ``server.reach(job)``. Tests share it, so count on nothing
    that another test may add; look for your own job by its id.
``one_variable``, ``two_variables`` : `dietcode.protocol.Job`, one each for the session
    Jobs with libraries of several categories, over one and over two shape variables. The first was really
    tuned on it, and in `make test-long` the second too; else its report is made up.
``page`` : `playwright.sync_api.Page`
    A new page in a context of its own; ``page.goto("/jobs/ID")`` is relative to the server. Motion is
    reduced, the window is 1440 pixels wide. The test fails at its end where the browser noticed any trouble:
    see `Watch`.
``watch`` : `browsing.Watch`
    Of that page: ``watch.expect(r"status 404: GET .*/jobs/none")`` for trouble that the test means,
    ``watch.requests`` for what was asked of the server.
``context`` : `playwright.sync_api.BrowserContext`
    That page's, for cookies, a second page, or permissions.

From `browsing` import ``check_axe(page)``, ``screenshot(page, NAME)``, and ``settle(page)``.

    def test_a_page(page, one_variable):
        page.goto(f"/jobs/{one_variable.id}")
        expect(page.get_by_role("heading", level=1)).to_contain_text("one-variable")
        check_axe(page)
        screenshot(page, "job")

Where Chromium or Playwright is missing these tests are skipped with the reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from browsing import CHROMIUM, CHROMIUM_ARGS, Watch, what_lacks
from published import publish_job, report_data
from served import ONE_VARIABLE, TWO_VARIABLES, Served

from dietcode.protocol import Job
from dietcode_server.store.database import Database

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

_TIMEOUT_SECS = 15.0
_TUNED = (ONE_VARIABLE, TWO_VARIABLES) if os.environ.get("DIETCODE_TEST_LONG") else (ONE_VARIABLE,)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without a browser nothing is tuned for it; `docs/test_tutorial.py` tunes on a server in any case.

    What is tuned has deadlines of its own, and counts for no test: it takes minutes on a slow machine.
    """
    lacks = what_lacks()
    for item in items:
        wanted = {"browser", "server"} & set(getattr(item, "fixturenames", ()))
        if "dashboard" not in item.path.parts or not wanted:
            continue
        item.add_marker(pytest.mark.timeout(func_only=True))
        if lacks:
            item.add_marker(pytest.mark.skip(reason=lacks))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("served"))
    made.tune(*_TUNED)
    yield made
    made.close()


@pytest.fixture(scope="session")
def one_variable(server: Served) -> Job:
    return server.tuned[ONE_VARIABLE["name"]]


@pytest.fixture(scope="session")
def two_variables(server: Served) -> Job:
    name = TWO_VARIABLES["name"]
    if name in server.tuned:
        return server.tuned[name]
    database = Database(f"sqlite:///{server.folder / 'data' / 'dietcode.db'}")
    shapes = [{"B": b, "T": t} for b in range(1, 7) for t in range(1, 25)]
    job_id = publish_job(database, name, report_data(shapes))
    database.dispose()
    return server.client.job(job_id)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not for the session: while Playwright runs, nothing else in this process can use asyncio."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Root cannot have Chromium's sandbox; the pages here are our own.
        sandbox = os.geteuid() != 0
        made = playwright.chromium.launch(
            executable_path=CHROMIUM, args=list(CHROMIUM_ARGS), chromium_sandbox=sandbox
        )
        yield made
        made.close()


@pytest.fixture
def watch(server: Served) -> Watch:
    return Watch(server.url)


@pytest.fixture
def context(browser: Browser, server: Served, watch: Watch) -> Iterator[BrowserContext]:
    settings: dict[str, Any] = {"viewport": {"width": 1440, "height": 900}, "reduced_motion": "reduce"}
    made = browser.new_context(base_url=server.url, **settings)
    made.set_default_timeout(_TIMEOUT_SECS * 1000)
    watch.follow(made)
    yield made
    made.close()
    assert not watch.unexpected(), "\n".join(watch.unexpected())


@pytest.fixture
def page(context: BrowserContext) -> Page:
    return context.new_page()
