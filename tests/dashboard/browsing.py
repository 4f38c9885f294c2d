"""What a real browser shows of a real server: trouble that it noticed, axe's findings, screenshots."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from needs import of_extra
from small_libraries import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, ConsoleMessage, Page, Request, Response

CHROMIUM = os.environ.get("DIETCODE_TEST_CHROMIUM") or shutil.which("chromium")
SCREENSHOTS = ROOT / "build" / "screenshots"
WIDTHS = {390: 844, 820: 1180, 1440: 900}  # of a phone, a tablet, a desk; with their heights
_ALL = bool(os.environ.get("DIETCODE_TEST_LONG"))
SCHEMES = ("light", "dark") if _ALL else ("dark",)
SHOTS = [*((width, "light") for width in WIDTHS), (max(WIDTHS), "dark")] if _ALL else [(min(WIDTHS), "dark")]
# Names lead nowhere but to this machine: what a page asks of elsewhere is noted, and fails.
CHROMIUM_ARGS = ("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--disable-gpu")
_INLINE = ("about", "blob", "data")  # URLs that are no requests
_REPORT_VIOLATIONS = """
document.addEventListener('securitypolicyviolation', e => console.error(
  `blocked by the policy: ${e.violatedDirective} ${e.blockedURI} ${e.sourceFile}:${e.lineNumber}`));
"""


def what_lacks() -> str | None:
    """Why no browser can be driven here; None where one can."""
    if find_spec("playwright") is None or find_spec("axe_playwright_python") is None:
        return of_extra("browser")
    return None if CHROMIUM else "needs Chromium: apt-get install chromium, or DIETCODE_TEST_CHROMIUM=PATH"


@dataclass
class Watch:
    """Collects what must not happen on pages of one origin.

    Attributes
    ----------
    requests : list of str
        ``METHOD URL`` of every request, in the order in which they began.
    trouble : list of str
        Errors and warnings of the console, uncaught errors, violations of the Content-Security-Policy,
        answers of 400 and above, failed requests, and requests to anywhere but the origin, one line each.
    """

    origin: str
    requests: list[str] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    _expected: list[re.Pattern[str]] = field(default_factory=list)

    def expect(self, pattern: str) -> None:
        """Trouble that is meant: a regular expression that some line has to match, else the test fails."""
        self._expected.append(re.compile(pattern))

    def follow(self, context: BrowserContext) -> None:
        """Note what happens on all pages of a context."""
        context.add_init_script(_REPORT_VIOLATIONS)
        context.on("console", self._console)
        context.on("weberror", lambda error: self.trouble.append(f"uncaught: {error.error}"))
        context.on("request", self._request)
        context.on("requestfailed", self._failed)
        context.on("response", self._response)
        context.on("page", lambda page: page.on("websocket", lambda socket: self._visit(socket.url)))

    def unexpected(self) -> list[str]:
        """Trouble that nobody expected, and expected trouble that did not come."""
        others = [line for line in self.trouble if not any(p.search(line) for p in self._expected)]
        absent = [p.pattern for p in self._expected if not any(p.search(line) for line in self.trouble)]
        return [*others, *(f"did not happen: {pattern}" for pattern in absent)]

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning", "assert"}:
            self.trouble.append(f"{message.type}: {message.text} ({message.location['url']})")

    def _request(self, request: Request) -> None:
        self.requests.append(f"{request.method} {request.url}")
        self._visit(request.url)

    def _visit(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in _INLINE and f"{parts.scheme}://{parts.netloc}" != self.origin:
            self.trouble.append(f"left the origin: {url}")

    def _failed(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # a page that was left while it streamed
            self.trouble.append(f"failed: {request.failure} {request.method} {request.url}")

    def _response(self, response: Response) -> None:
        if response.status >= 400:
            self.trouble.append(f"status {response.status}: {response.request.method} {response.url}")


@cache
def _axe() -> str:
    return (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


def axe_faults(page: Page, impacts: tuple[str, ...] = ("serious", "critical")) -> list[str]:
    """What axe finds wrong with the page as it stands, of these impacts: a line for each rule."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(_axe())  # by the debugger, which the page's policy does not bind
    found: dict[str, Any] = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{rule['id']} ({rule['impact']}): {rule['help']}: "
        + "; ".join(str(node["html"])[:200] for node in rule["nodes"][:4])
        for rule in found["violations"]
        if rule["impact"] in impacts
    ]


def check_axe(page: Page) -> None:
    """Fail where axe finds a serious or critical fault, in the light or the dark scheme."""
    faults = []
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        settle(page)
        faults += [f"{scheme}: {line}" for line in axe_faults(page)]
    page.emulate_media(color_scheme="null")
    assert not faults, "\n".join([page.url, *faults])


def settle(page: Page) -> None:
    """Until fonts are there and two frames were drawn since."""
    page.evaluate(
        "() => document.fonts.ready.then(() => "
        "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))))"
    )


def screenshot(page: Page, name: str) -> None:
    """Write ``build/screenshots/NAME-WIDTH-SCHEME.png`` of the whole page, as `SHOTS` has them.

    Fails where the page is wider than the window: nobody should have to scroll sideways. Afterwards the
    window is as it was.
    """
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    before = page.viewport_size
    too_wide = Counter[int]()
    for width, scheme in SHOTS:
        page.set_viewport_size({"width": width, "height": WIDTHS[width]})
        page.emulate_media(color_scheme=scheme)
        settle(page)
        page.screenshot(path=SCREENSHOTS / f"{name}-{width}-{scheme}.png", full_page=True)
        too_wide[width] = page.evaluate("() => document.documentElement.scrollWidth - window.innerWidth")
    page.emulate_media(color_scheme="null")
    if before is not None:
        page.set_viewport_size(before)
    assert not +too_wide, f"{page.url}: pixels beyond windows of some widths: {dict(+too_wide)}"
