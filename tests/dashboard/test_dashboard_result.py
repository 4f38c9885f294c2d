"""The pages and the data of a result, as the server gives them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from made_app import text_of
from published import TARGET, publish_job, report_data
from small_libraries import spec_data
from sqlalchemy import select
from starlette.testclient import TestClient

from dietcode.workload.parse import spec_from_data
from dietcode_server.app import create_app
from dietcode_server.dashboard import results
from dietcode_server.dashboard.charts import short
from dietcode_server.dashboard.compare import differences
from dietcode_server.dashboard.curves import fit_of, trade_off
from dietcode_server.dashboard.reports import read_report
from dietcode_server.engine.targets import Targets
from dietcode_server.settings import Settings
from dietcode_server.store import jobs, listings
from dietcode_server.store.database import Database
from dietcode_server.store.tables import ComparisonRow, LibraryRow

HOSTILE = "<script>alert('x')</script>\"&'>{{ 7*7 }}"
URL = "http://127.0.0.1:8000"
HTMX = {"hx-request": "true"}
_ONE = [{"T": t} for t in range(1, 41)]
_TWO = [{"M": m, "N": n} for m in range(1, 9) for n in (16, 32, 64)]


class Idle:
    """An engine that does nothing."""

    def wake(self) -> None:
        """Nothing waits here."""

    def healthy(self) -> bool:
        return True


@dataclass
class Site:
    """A server without an engine, and its jobs by name."""

    database: Database
    client: TestClient
    jobs: dict[str, str]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    settings = Settings(data_dir=tmp_path_factory.mktemp("data"))
    database = Database(settings.database)
    database.upgrade()
    hostile = report_data(_ONE)
    for row in hostile["micro_kernels"]:
        row["provenance"] = HOSTILE
    hostile["micro_kernels"][3]["micro_kernel"] = HOSTILE
    for row in hostile["instances"]:
        for field in ("best_micro_kernel", "other_micro_kernel"):
            row[field] = HOSTILE if row[field] == "4x16" else row[field]
    hostile["selection"] |= {"objective_met": False, "reason": HOSTILE}
    made = {
        "one": publish_job(database, "one", report_data(_ONE), measured=(0, 9, 39)),
        "again": publish_job(database, "again", report_data(_ONE, seed=5), measured=(9, 20)),
        "some": publish_job(database, "some", report_data(_ONE), measured=(0, 9, 20, 39), disturbed=(9,)),
        "spoilt": publish_job(database, "spoilt", report_data(_ONE), measured=(0, 9, 39), disturbed=(0, 9)),
        "two": publish_job(database, "two", report_data(_TWO)),
        "hostile": publish_job(database, "hostile", hostile),
    }
    app = create_app(database, settings, Idle(), Targets())
    yield Site(database, TestClient(app, base_url=URL), made)
    database.dispose()


def read(changes: dict[str, Any] | None = None, **objective: Any) -> Any:
    manifest = {"variable_order": ["T"], "workload": spec_data(objective=objective)}
    return read_report(report_data(_ONE) | (changes or {}), manifest, "sha256:0")


def test_a_result_is_a_fragment_and_a_page(site: Site) -> None:
    path = f"/jobs/{site.jobs['one']}/result"
    fragment, whole = site.client.get(path, headers=HTMX), site.client.get(path)
    assert fragment.status_code == whole.status_code == 200
    assert "<html" not in fragment.text and "<html" in whole.text
    for text in (fragment.text, whole.text):
        assert "dietcode pull one@1 -o build/one" in text
        assert "<strong>3</strong> of 4 measured" in text
        assert "1.90 ×</strong> geometric mean, 1.90–1.90 ×" in text and "3 instances beside onednn<" in text
    same = site.client.get("/libraries/one/1/result", headers=HTMX)
    pull = re.compile(r'<div class="copy"><pre tabindex="0"><code>dietcode pull .*?</div>\s*')
    assert "dietcode pull" not in same.text  # the page around it says that already
    assert re.sub(r"\s+", "", same.text) == re.sub(r"\s+", "", pull.sub("", fragment.text))


def test_disturbed_readings_are_marked_and_in_no_figure(site: Site) -> None:
    some = site.client.get(f"/jobs/{site.jobs['some']}/result").text
    assert "1.90 ×</strong> geometric mean" in some and "1 disturbed, left out" in some
    assert 'role="alert"' not in some
    spoilt = site.client.get(f"/jobs/{site.jobs['spoilt']}/result").text
    assert "geometric mean" not in spoilt and "no figure: disturbed" in spoilt
    assert "The comparison was disturbed, so it has no figure: 2 of 3 instances (other processes" in spoilt
    rows = cells(site.client.get("/libraries/some/1/instances?sort=ratio").text)
    assert {row[0] for row in rows[:3]} == {"1", "21", "40"}  # what is disturbed has no ratio
    lost = site.client.get(f"/jobs/{site.jobs['some']}/result").text.partition('id="result-losses"')[2]
    lost_at = [row[0] for row in cells(lost)]
    assert sorted(lost_at) == ["T = 1", "T = 21", "T = 40"] and "at all 3 instances" in lost
    assert {row[4] for row in cells(lost)} == {"onednn"}, "against what"
    assert 'id="result-losses"' not in spoilt
    rows = cells(site.client.get("/libraries/some/1/instances?sort=var-T").text)
    row = rows[9]
    assert "other processes kept 2.0 of its cores busy" in row
    data = site.client.get("/libraries/some/1/result.json").json()["compared"]
    assert [bool(why) for why in data["disturbed"]] == [False, True, False, False]
    lists = site.client.get("/libraries").text
    assert "1.90 ×" in lists and "190" not in lists


def test_the_roofline_stands_beside_what_was_measured(site: Site) -> None:
    """Of the calm rows; where nobody read it, neither the figure nor the columns are there."""
    text = text_of(site.client.get(f"/jobs/{site.jobs['some']}/result").text)
    assert "50 % geometric mean, 50 % worst peak 400 GFLOP/s of multiply-adds in float32" in text
    table = text_of(site.client.get("/libraries/some/1/instances").text)
    assert "roofline" in table and "of roofline" in table and "50%" in table
    data = site.client.get("/libraries/some/1/result.json").json()["compared"]
    assert data["roof"] == pytest.approx([2 * rate for rate in data["measured"]], rel=1e-3)
    assert "roofline" not in site.client.get(f"/jobs/{site.jobs['two']}/result").text


def test_what_is_not_there_is_not_found(site: Site) -> None:
    for path in (
        "/libraries/none/1/result",
        "/libraries/one/9/result.json",
        "/libraries/one/1/micro-kernels/9x9",
        f"/jobs/{'0' * 16}/result",
        f"/jobs/{'0' * 16}/compare",
        f"/jobs/{site.jobs['one']}/compare?with=none",
    ):
        assert site.client.get(path).status_code == 404, path
    with site.database.write() as session:
        row, _ = jobs.submit(
            session,
            spec=spec_from_data(spec_data("waits")),
            target=TARGET,
            device=None,
            runnable=False,
            force=True,
            idempotency_key=None,
        )
        waits = row.id
    found = site.client.get(f"/jobs/{waits}/result")
    assert found.status_code == 404 and "has published nothing" in found.json()["detail"]


def test_everything_is_escaped_and_nothing_is_inline(site: Site) -> None:
    job = site.jobs["hostile"]
    pages = [f"/jobs/{job}/result", "/libraries/hostile/1/instances", "/libraries/hostile/1/micro-kernels"]
    pages += [f"/jobs/{job}/compare?with={site.jobs['one']}"]
    for path in pages:
        text = site.client.get(path).text
        assert "alert('x')" not in text
        for inline in (" style=", " onclick", "javascript:", "<script>"):
            assert inline not in text, (path, inline)
    text = site.client.get(pages[0]).text
    assert "&lt;script&gt;alert(" in text and "{{ 7*7 }}" in text


def test_the_data_is_columns_that_a_browser_keeps_for_ever(site: Site) -> None:
    page = site.client.get("/libraries/one/1/result").text
    path = page.split('data-src="')[1].split('"')[0].replace("&amp;", "&")
    found = site.client.get(path)
    assert found.headers["content-encoding"] == "gzip"
    assert found.headers["cache-control"] == "private, max-age=31536000, immutable"
    data, report = found.json(), report_data(_ONE)
    assert data["variables"] == ["T"] and data["shapes"] == [[t["T"] for t in _ONE]]
    for at, row in enumerate(report["instances"]):
        assert data["kernels"][data["serves"][data["category"][at]]] == row["micro_kernel"]
        assert data["kernels"][data["runnerUp"][at]] == row["other_micro_kernel"]
        assert data["predicted"][at] == pytest.approx(row["predicted_gflops"], rel=1e-3)
        assert data["waves"][at] == pytest.approx(row["waves"], rel=1e-3)
        assert data["f_local"][at] == pytest.approx(row["f_local"] / 1e9, rel=1e-3)
    assert data["compared"]["position"] == [0, 9, 39]
    assert data["compared"]["vendorName"] == ["onednn"] * 3
    known = site.client.get(path, headers={"if-none-match": found.headers["etag"]})
    assert known.status_code == 304 and not known.content
    old = site.client.get("/libraries/one/1/result.json?v=0", headers={"accept-encoding": "identity"})
    assert old.headers["cache-control"] == "private, no-cache"
    assert "content-encoding" not in old.headers and json.loads(old.content) == data


def cells(text: str) -> list[list[str]]:
    body = text.partition("<tbody>")[2].partition("</tbody>")[0]
    rows = [row for row in body.split("<tr")[1:] if "code-row" not in row.partition(">")[0]]
    return [[cell.partition(">")[2].partition("</t")[0] for cell in row.split("<t")[1:]] for row in rows]


def test_instances_are_paged_sorted_and_filtered_here(site: Site) -> None:
    path = "/libraries/one/1/instances"
    first = site.client.get(path).text
    assert "page 1 of 2, 40 rows" in first and [row[0] for row in cells(first)] == [
        str(t) for t in range(1, 26)
    ]
    last = site.client.get(f"{path}?page=99").text
    assert "page 2 of 2" in last and len(cells(last)) == 15
    down = site.client.get(f"{path}?sort=predicted&order=desc").text
    figures = [float(row[3]) for row in cells(down)]
    assert figures == sorted(figures, reverse=True) and 'aria-sort="descending"' in down
    assert figures[0] == pytest.approx(
        max(r["predicted_gflops"] for r in report_data(_ONE)["instances"]), abs=0.1
    )
    measured = cells(site.client.get(f"{path}?sort=measured&order=asc").text)
    assert [bool(row[4]) for row in measured] == [True] * 3 + [False] * 22, "what is not known comes last"
    one = site.client.get(f"{path}?category=1").text
    assert {row[1] for row in cells(one)} == {"1"} and "Only category 1" in one
    assert cells(site.client.get(f"{path}?sort=none&order=asc").text) == cells(first)
    for bad in ("page=0", "order=up", "category=-1", f"sort={'x' * 99}"):
        assert site.client.get(f"{path}?{bad}").status_code == 422


def test_micro_kernels_come_chosen_first_and_can_be_sorted(site: Site) -> None:
    path = "/libraries/one/1/micro-kernels"
    rows = cells(site.client.get(path).text)
    assert ["</canvas> 0" in rows[0][0], rows[3][0]] == [True, ""]
    waves = [float(row[7]) for row in cells(site.client.get(f"{path}?sort=best_wave&order=desc").text)]
    assert waves == [203.0, 202.0, 201.0, 200.0]


def test_generated_code_unfolds(site: Site) -> None:
    path = "/libraries/one/1/micro-kernels/2x16"
    assert "was not kept" in site.client.get(path).text
    with site.database.write() as session:
        library = jobs.get(session, site.jobs["one"]).library_id
        listings.keep(session, library, {"2x16": ("tir", "for i in range(2):\n    X[i] < W[i]")})
    text = site.client.get(path).text
    assert "    X[i] &lt; W[i]" in text and "data-copy" in text


def test_the_curve_says_which_points_are_best_and_how_to_get_them() -> None:
    points = trade_off(read({}, binary_size=0.05, max_loss=0.02))
    assert [point.num_kernels for point in points] == [1, 2, 3, 4]
    assert [point.is_chosen for point in points] == [False, False, True, False]
    assert all(point.is_best for point in points)
    assert points[0].objective == {
        "binary_size": 0.2,
        "max_loss": 0.8,
        "max_kernels": None,
        "max_bytes": None,
    }
    assert points[3].objective["max_loss"] == 0.03, "never below what the point loses"
    assert trade_off(read({}, binary_size=0.05))[0].objective["max_loss"] is None


def test_a_choice_that_the_curve_leaves_out_is_a_point_all_the_same() -> None:
    report = read()
    report.facts["selection"]["micro_kernels"] = ["1x16", "3x16"]
    (chosen,) = [point for point in trade_off(report) if point.is_chosen]
    assert (chosen.num_kernels, chosen.num_bytes, chosen.loss_mean) == (2, 42_000, 0.01)
    assert not chosen.is_best and chosen.objective == {}


def test_the_fit_finds_the_launch_and_the_full_rate() -> None:
    """The sweep was made from ``t = 0.005 + 0.025 · ((1 − κ)·n + κ·pad(n, 4))``."""
    fit = fit_of(read())
    assert fit is not None and fit.full_gflops == pytest.approx(40.0)
    assert fit.with_launch == pytest.approx(fit.measured)
    assert fit.f_spatial[[3, 7]] == pytest.approx(1.0)
    assert fit.f_spatial[0] == pytest.approx(1 / (0.9 * 4 + 0.1))
    assert fit_of(read({"calibration": {"kappa": 1.0}})) is None


def test_a_sweep_of_a_gpu_is_of_blocks_and_seconds() -> None:
    blocks = [1, 2, 3, 4, 8]
    secs = [1e-5 * -(-n // 4) for n in blocks]
    facts = {"kappa": 1.0, "wave_blocks": 4, "num_blocks": blocks, "secs": secs}
    fit = fit_of(read({"calibration": facts, "target": {"kind": "cuda", "arch": "sm_90a"}}))
    assert fit is not None and fit.full_gflops is None and fit.slots == 4
    assert fit.measured == pytest.approx([0.25, 0.5, 0.75, 1, 1])


def test_reports_of_earlier_versions_have_no_waves_and_no_runner_up() -> None:
    data = report_data(_ONE)
    for row in data["instances"]:
        for field in ("waves", "other_micro_kernel", "other_predicted_gflops"):
            del row[field]
    report = read_report(data, {"variable_order": ["T"], "workload": spec_data()}, "sha256:0")
    assert np.isnan(report.columns["waves"]).all() and (report.runner_up == -1).all()
    assert short(report.columns["waves"]) == [None] * 40


def test_short_numbers() -> None:
    assert short(np.asarray([123456.0, 0.00123456, 0.0, np.nan, -2.00049])) == [
        123500.0,
        0.001235,
        0.0,
        None,
        -2.0,
    ]


def test_two_jobs_are_compared(site: Site) -> None:
    job = site.jobs["one"]
    asked = site.client.get(f"/jobs/{job}/compare").text
    assert "The same workload" in asked and f'value="{site.jobs["again"]}"' in asked
    assert f'value="{job}"' not in asked and "What they chose" not in asked
    text = site.client.get(f"/jobs/{job}/compare?with={site.jobs['again']}").text
    assert "<strong>40</strong>" in text and "<code>name</code></td><td>one</td><td>again</td>" in text
    ours, theirs = report_data(_ONE)["instances"], report_data(_ONE, seed=5)["instances"]
    ratios = [a["predicted_gflops"] / b["predicted_gflops"] for a, b in zip(ours, theirs, strict=True)]
    assert f"<strong>{np.exp(np.mean(np.log(ratios))):.3f} ×</strong>" in text
    assert f"<strong>{ratios[9]:.3f} ×</strong>" in text, "measured: the one instance that both have"
    path = f"/jobs/{job}/compare/instances?with={site.jobs['again']}&sort=predicted_ratio_b&order=desc"
    rows = cells(site.client.get(path).text)
    assert [float(row[5]) for row in rows] == pytest.approx(sorted(ratios, reverse=True)[:25], abs=6e-4)


def test_jobs_of_other_variables_have_no_instance_in_common(site: Site) -> None:
    text = site.client.get(f"/jobs/{site.jobs['one']}/compare?with={site.jobs['two']}").text
    assert "no instance in common" in text and "T in A; M, N in B" in text


def test_differences_of_specs_are_paths() -> None:
    one = {"a": {"b": 1, "c": [1, 2]}, "d": None, "same": {"x": 1}}
    two = {"a": {"b": 1, "c": [1, 3]}, "e": "x" * 500, "same": {"x": 1}}
    assert differences([{"seconds": 60.0}, {"seconds": 0.5}]) == [("seconds", ["60", "0.5"])]
    assert differences([one, two]) == [
        ("a.c", ["[1, 2]", "[1, 3]"]),
        ("d", ["null", "–"]),
        ("e", ["–", "x" * 120 + "…"]),
    ]
    assert differences([one, one, two])[0] == ("a.c", ["[1, 2]", "[1, 2]", "[1, 3]"])


def test_several_jobs_are_compared(site: Site) -> None:
    job, others = site.jobs["one"], [site.jobs["again"], site.jobs["some"]]
    query = "&".join(f"with={other}" for other in others)
    text = site.client.get(f"/jobs/{job}/compare?{query}").text
    for letter, name in zip("ABC", ("one", "again", "some"), strict=True):
        assert re.search(rf'scope="col">{letter}: <a href="/jobs/[0-9a-f]+">{name}@1<', text)
    assert "<code>name</code></td><td>one</td><td>again</td><td>some</td>" in text
    assert "<dt>instances of all</dt><dd><strong>40</strong>" in text and "measured, A over C" in text
    assert f'href="/jobs/{job}/compare?with={others[1]}" aria-label="Leave again' in text
    assert "1.90 × (1.90–1.90) of 3 instances</td>" in text, "no ratio without its worst and best"
    assert "1.90 × (1.90–1.90) of 3 instances, 1 disturbed left out</td>" in text
    assert 'data-sources="/libraries/one/1/result.json?v=' in text and ">Add</button>" in text
    rows = cells(site.client.get(f"/jobs/{job}/compare/instances?{query}&sort=measured_ratio_c").text)
    known = [row for row in rows if row[-1]]
    assert {row[0] for row in known} == {"1", "40"}, "what was disturbed has no ratio"
    assert {row[-1] for row in known} == {"1.000"}
    many = "&".join(f"with={number:016x}" for number in range(8))
    assert site.client.get(f"/jobs/{job}/compare?{many}").status_code == 422


def test_what_was_tried_and_what_was_measured_are_two_counts(site: Site) -> None:
    with site.database.write() as session:
        jobs.get(session, site.jobs["one"]).measured = 6  # two of which were pruned, or failed
    text = text_of(site.client.get(f"/jobs/{site.jobs['one']}").text)
    assert "tried 6 micro-kernels" in text and "measured 6" not in text
    text = text_of(site.client.get(f"/jobs/{site.jobs['one']}/result").text)
    assert "micro-kernels 3 of 4 measured" in text


def test_a_loss_says_against_what(site: Site) -> None:
    text = text_of(site.client.get(f"/jobs/{site.jobs['one']}/result").text)
    assert "predicted loss against the 4 measured 1.00 % mean, 4.00 % worst" in text
    assert "the budget's trials cut the search off" in text


def test_a_loss_of_one_against_itself_is_not_shown(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "uncompared", lambda _: "one was measured")
    text = text_of(site.client.get(f"/jobs/{site.jobs['one']}/result").text)
    assert "measured not known: one was measured the budget's trials" in text


def test_lists_have_worst_and_best_beside_a_speed_up(site: Site) -> None:
    publish_job(site.database, "uneven", report_data(_ONE), measured=(0, 9, 39))
    with site.database.write() as session:
        query = select(ComparisonRow).join(LibraryRow).where(LibraryRow.name == "uneven")
        first = session.scalars(query.order_by(ComparisonRow.position)).first()
        assert first is not None
        first.vendor_gflops = first.measured_gflops / 0.5
    mean = (0.5 * 1.9 * 1.9) ** (1 / 3)
    for path in ("/", "/libraries"):
        assert f"{mean:.2f} × 0.50–1.90" in text_of(site.client.get(path).text)
