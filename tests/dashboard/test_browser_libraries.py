"""Libraries and devices in a real browser: found, copied, run as pasted, yanked and taken back."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from browsing import check_axe, screenshot
from needs import of_extra

expect = pytest.importorskip("playwright.sync_api", reason=of_extra("browser")).expect
expect.set_options(timeout=15_000)
NAME = "one-variable"


@pytest.fixture
def library(page: Any, one_variable: Any) -> Any:
    """Its page, with the result in it."""
    assert one_variable.library is not None
    page.goto(f"/libraries/{NAME}/{one_variable.library.version}")
    expect(page.get_by_text("Loading the result…")).to_have_count(0)
    return one_variable.library


def copied(page: Any, button: str) -> str:
    page.evaluate("() => navigator.clipboard.writeText('nothing')")
    page.get_by_role("button", name=button).first.click()
    expect(page.get_by_text("copied")).to_be_visible()
    text: str = page.evaluate("() => navigator.clipboard.readText()")
    return text


def test_a_library_is_found_by_its_name(page: Any, one_variable: Any) -> None:
    page.goto("/libraries")
    expect(page.get_by_role("rowheader", name=NAME)).to_be_visible()
    check_axe(page)
    screenshot(page, "libraries")
    page.get_by_label("Name", exact=True).press_sequentially("no-such-thing")
    expect(page.locator("#names")).to_contain_text("No library's name holds “no-such-thing”")
    page.get_by_label("Name", exact=True).fill("E-VARI")
    expect(page.get_by_role("rowheader")).to_have_count(1)
    expect(page).to_have_url(re.compile(r"/libraries\?q=E-VARI"))
    page.get_by_role("link", name=NAME, exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(f"{NAME}@")
    page.go_back()
    expect(page.get_by_label("Name", exact=True)).to_have_value("E-VARI")


def test_what_is_copied_runs_as_pasted(
    page: Any, context: Any, library: Any, server: Any, tmp_path: Path
) -> None:
    """The command pulls it; the Python calls it, for the shape that was chosen, in a fresh process."""
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.url)
    ref = f"{NAME}@{library.version}"
    pull = copied(page, "Copy the command")
    assert pull == f"dietcode pull {ref} -o {NAME} --server {server.url}"
    page.get_by_role("spinbutton", name="T").fill("17")
    expect(page.locator("#snippet")).to_contain_text("T = 17")
    code = copied(page, "Copy the snippet")
    own = os.environ | {"DIETCODE_CACHE": str(tmp_path / "cache"), "DIETCODE_TRUST": str(tmp_path / "trust")}
    options: dict[str, Any] = {
        "cwd": tmp_path,
        "env": own,
        "capture_output": True,
        "text": True,
        "timeout": 120,
    }
    ran = subprocess.run([sys.executable, "-c", code], check=False, **options)
    assert ran.stdout.strip() == "(17, 64) float32", ran.stderr
    command = [sys.executable, "-m", *pull.split()]
    done = subprocess.run(command, check=False, **options)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / NAME / "library.so").is_file()


def test_a_version_has_its_result_and_its_files(page: Any, library: Any) -> None:
    expect(page.get_by_text("Verified now with the server's current key")).to_be_visible()
    expect(page.locator("[data-result]")).to_be_visible()
    page.get_by_text("Its tensors and shape variables").click()
    expect(page.get_by_role("cell", name="[T, 64]").first).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="library.so").click()
    assert Path(download.value.path()).read_bytes()[:4] == b"\x7fELF"
    check_axe(page)
    screenshot(page, "library")


@pytest.mark.thorough
def test_a_yank_is_asked_about_and_can_be_taken_back(page: Any, library: Any) -> None:
    asked = []
    page.once("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    page.get_by_role("button", name="Yank").click()
    expect(page.get_by_role("button", name="Yank", exact=True)).to_be_visible()
    assert len(asked) == 1 and "who names it exactly still gets it" in asked[0]
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Yank").click()
    back = page.get_by_role("button", name="Take the yank back")
    expect(back).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_contain_text("yanked")
    check_axe(page)
    page.goto(f"/libraries?q={NAME}")
    expect(page.get_by_role("rowheader", name=NAME, exact=True)).to_have_count(0)
    page.get_by_label("Yanked ones too").check()
    expect(page.get_by_role("row", name=re.compile(f"{NAME}.*yanked"))).to_be_visible()
    page.get_by_role("link", name=NAME, exact=True).click()
    back.click()
    expect(page.get_by_role("button", name="Yank", exact=True)).to_be_visible()


def test_devices_say_what_is_measured_here(page: Any, one_variable: Any) -> None:
    page.goto("/devices")
    device = page.locator(f"#device-{one_variable.device_id}")
    expect(device).to_contain_text("κ = ")
    expect(device.get_by_role("img", name=re.compile("Throughput of 1 to"))).to_be_visible()
    expect(device.get_by_role("rowheader", name=NAME)).to_be_visible()
    expect(device.get_by_role("link", name=re.compile(f"^{NAME}@"))).to_be_visible()
    expect(page.locator("#runners").get_by_role("row")).to_have_count(2)
    expect(page.locator("#runners")).to_contain_text("local")
    check_axe(page)
    screenshot(page, "devices")
