"""Descriptions of recursions that are wrong: each is one sentence, and nothing runs."""

from __future__ import annotations

import copy
import hashlib
import json
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hand_recursions import H, bundle, chain, gated, tree_lstm, words, write_recursion
from safetensors.numpy import save

import dietcode
from dietcode.cli.app import run
from dietcode.errors import LibraryError
from dietcode.runtime import manifest
from dietcode.runtime.loading import LoadOptions
from dietcode.runtime.manifest import is_bundle, is_recursion, pretty_json
from dietcode.runtime.recursion.loading import load_recursion
from dietcode.runtime.recursion.plan import linear, read_recursion


def changed(make: Any, path: str, value: Any) -> dict[str, Any]:
    """A description with what lies at a path replaced, or deleted for None in a list's place."""
    data = copy.deepcopy(make().description)
    *way, last = path.split("/")
    at: Any = data
    for key in way:
        at = at[int(key) if isinstance(at, list) else key]
    at[int(last) if isinstance(at, list) else last] = value
    return data


@pytest.mark.parametrize(
    ("make", "path", "value", "problem"),
    [
        (gated, "format", "dietcode-recursion/9", "format 'dietcode-recursion/9'; this version reads"),
        (gated, "max_level", 0, "max_level 0, max_nodes 200"),
        (gated, "max_nodes", 2**31, "max_level 24, max_nodes 2147483648"),
        (gated, "max_children", -1, "max_level 24"),
        (gated, "states", [], "states are one or several"),
        (gated, "states/0/dtype", "float64", "states are one or several of float32"),
        (gated, "states/0/shape", ["N"], "N is no constant"),
        (gated, "x/shape", [-4], "an extent of -4"),
        (tree_lstm, "single_output", True, "2 states as a single output"),
        (gated, "cell", [], "no step of the cell"),
        (gated, "cell/0/results", [], "cell does not write next0"),
        (gated, "cell/0/results/0/value", "state0", "writes 'state0', which is there already"),
        (gated, "cell/0/results/0/value", "unknown", "writes 'unknown', which is no value"),
        (gated, "before/0/results/0/value", "x", "KeyError: 'x'"),
        (gated, "before/0/arguments/X", {"value": "state0", "shape": ["N", H]}, "reads 'state0' before it"),
        (gated, "before/0/arguments/order", {"value": "child0", "shape": ["B"]}, "reads 'child0' before it"),
        (gated, "cell/0/arguments/P", {"value": "Q", "shape": ["B", 2, H]}, "reads 'Q' before it"),
        (gated, "cell/0/arguments/left", {"value": "child2", "shape": ["B"]}, "reads 'child2' before it"),
        # Of more than there is: it would be read beyond its end.
        (gated, "cell/0/arguments/H/shape", ["T + 1", H], "'state0' as ['T + 1', '16']"),
        (gated, "cell/0/arguments/P/shape", ["N", 2, H], "'P' as ['N', '2', '16']"),
        (gated, "cell/0/arguments/left/shape", ["N"], "'child0' as ['N']"),
        (gated, "before/0/results/0/shape", ["B", 3, H], "'P' as ['B', '3', '16']"),
        (gated, "cell/0/arguments/V/shape", [H, H + 1], "'V' as [16, 17]"),
        (gated, "cell/0/arguments/V/shape", [-H, -H], "'V' as [-16, -16]"),
        (gated, "cell/0/arguments/V/shape", [], "'V' as []"),
        (gated, "cell/0/arguments/V/shape", ["B", H], "B is no constant"),
        (words, "first/0/arguments/L/shape", [10, -1], "'L' as [10, -1]"),
        (gated, "values/P/shape", [2 * H, "N"], "'P' is float32[32, N], which has no row for each node"),
        (gated, "cell/0/arguments/H/shape", ["T//2", H], "of N, B and T"),
        (gated, "cell/0/variables/M", "L", "an extent L; allowed: of N, B and T"),
        (gated, "cell/0/variables/M", "B*N", "allowed: a sum of multiples of N, B and T"),
        (gated, "x", 7, "describes no recursion"),
        (gated, "load", [{"host": "neg"}], "describes no recursion"),
        (words, "leaf_rows", 0, "leaf_rows 0, and 1 steps of first"),
        (words, "first", [], "leaf_rows 9, and 0 steps of first"),
        (words, "leaf", [], "leaf_rows 9, and 1 steps of first"),
        (words, "cell/0/arguments/left/value", "leaf0", "reads 'leaf0' before it"),
        (words, "first/0/arguments/left/value", "child0", "reads 'child0' before it"),
        (words, "first/0/arguments/L", {"value": "state0", "shape": ["T", H]}, "reads 'state0' before it"),
        (chain, "cell/0/arguments/ids", {"value": "x", "shape": ["N"]}, "reads 'x' before it"),
    ],
)
def test_what_is_no_recursion(make: Any, path: str, value: Any, problem: str) -> None:
    with pytest.raises(LibraryError, match=rf"^recursion.json: .*{re.escape(problem)}"):
        read_recursion(changed(make, path, value))


def test_what_before_may_not_write() -> None:
    data = changed(gated, "before/0/results/0/value", "order")
    data["values"]["order"] = data["values"]["P"]
    with pytest.raises(LibraryError, match="before writes 'order', which is there already"):
        read_recursion(data)


def test_what_is_missing() -> None:
    for name in tree_lstm().description:
        data = {key: value for key, value in tree_lstm().description.items() if key != name}
        with pytest.raises(LibraryError, match=r"^recursion.json: (format|describes no recursion)"):
            read_recursion(data)


def test_extents_of_ranges() -> None:
    from dietcode.graph.extent import parse_extent

    assert linear(parse_extent("2*T + 3*B + N - 1")) == (1, 3, 3)


def test_bundles_are_told_apart_and_checked(tmp_path: Path) -> None:
    folder = bundle(chain)
    assert is_recursion(folder) and not is_bundle(folder)
    own = tmp_path / "altered"
    shutil.copytree(folder, own)
    text = (own / "recursion.json").read_text()
    (own / "recursion.json").write_text(text + " ")
    with pytest.raises(LibraryError, match=r"not what the manifest lists; it was altered$"):
        dietcode.load(own)
    (own / "recursion.json").write_text(text)
    (own / "libraries" / "00" / "manifest.json").write_text("{}")
    with pytest.raises(LibraryError, match="missing or not what the bundle lists"):
        dietcode.load(own)


def test_code_and_manifests_are_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is loaded, and nothing of it twice."""
    folder, hashed = bundle(chain), list[str]()

    class Hash:
        def __init__(self, data: bytes = b"") -> None:
            self._own = hashlib.sha256(data)
            self.update = self._own.update

        def hexdigest(self) -> str:
            hashed.append(self._own.hexdigest())
            return hashed[-1]

    monkeypatch.setattr(manifest, "hashlib", SimpleNamespace(sha256=Hash))
    load_recursion(folder, LoadOptions())
    names = ["recursion.json", "weights.safetensors", "report.json"]
    names += [
        f"libraries/00/{one}" for one in ("library.so", "manifest.json", "dispatch.json", "report.json")
    ]
    digests = [hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names]
    assert sorted(hashed) == sorted(digests)


def test_libraries_that_do_not_take_so_many_rows(tmp_path: Path) -> None:
    folder = write_recursion(tmp_path / "wide", chain(), max_level=25)
    with pytest.raises(LibraryError, match=r"recursion.json: M of 00 is 1…25, which it does not take$"):
        dietcode.load(folder)


@pytest.mark.parametrize(
    ("make", "path", "value"),
    [
        (words, "first/0/arguments/left/value", "order"),  # of 200 nodes, in a table of ten rows
        (words, "first/0/arguments/right/value", "ids"),
        (words, "cell/0/arguments/left/value", "order"),
        (words, "leaf_rows", 10),  # whose last leaf, and none, lie behind the table
        (chain, "cell/0/arguments/ids/value", "order"),
        (chain, "cell/0/arguments/ids/value", "child0"),
        (chain, "cell/0/arguments/left/value", "ids"),
        (tree_lstm, "leaf/0/arguments/order/value", "child1"),
        (tree_lstm, "cell/0/arguments/order/value", "child0"),
        (tree_lstm, "cell/0/arguments/right/value", "order"),
    ],
)
def test_rows_that_a_table_does_not_have(make: Any, path: str, value: Any, tmp_path: Path) -> None:
    data = changed(make, path, value)
    read_recursion(data)  # each has the shape that it says
    folder = write_recursion(tmp_path / "beyond", make(), **data)
    if value == "ids" and path.startswith("first"):
        dietcode.load(folder)  # the same table, whose rows ids are checked to be
        return
    with pytest.raises(LibraryError, match=r"recursion.json: 0\d reads rows of '\w+' at '\w+'$"):
        dietcode.load(folder)


_REPORT = {
    "parts": [{"digest": "00", "kind": "block", "operator": "cell", "calls": 1,
               "flops_at_most": 1, "code_bytes": 1}],
    "dimensions": {}, "inputs": {}, "outputs": [], "num_weights": 0, "weight_bytes": 0,
    "kernels": {"cell": 1}, "num_operators": 1, "num_calls": 1, "host_operators": {},
    "schedule": "usual",
}  # fmt: skip


@pytest.mark.parametrize(
    ("report", "status"),
    [
        (_REPORT, None),
        ({"parts": []}, 1),
        (_REPORT | {"schedules": 5}, 1),
        (_REPORT | {"schedules": [{}]}, 1),
        (_REPORT | {"schedules": [{"schedule": "x", "secs": "soon", "multiply_adds": 1, "kernels": 1}]}, 1),
        (_REPORT | {"node_bytes": [], "workspace_bytes": {}}, 1),
        (_REPORT | {"multiply_adds": None}, 1),
        (
            _REPORT
            | {"schedules": [{"schedule": "\x1b[31mx", "secs": 1e300, "multiply_adds": "", "kernels": {}}]},
            None,
        ),
    ],
)
def test_a_report_is_shown_or_refused_in_one_line(
    report: dict[str, Any],
    status: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "reported"
    shutil.copytree(bundle(chain), folder)
    given = json.loads((folder / "manifest.json").read_text())
    (folder / "report.json").write_bytes(pretty_json(report))
    given["files"]["report.json"] = manifest.file_facts(pretty_json(report))
    (folder / "manifest.json").write_bytes(pretty_json(given))
    monkeypatch.setattr(sys, "argv", ["dietcode", "inspect", str(folder)])
    if status is None:
        run()
    else:
        with pytest.raises(SystemExit) as stop:
            run()
        assert stop.value.code == status
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err and err.count("\n") == bool(status)


def test_libraries_that_are_not_listed(tmp_path: Path) -> None:
    data = changed(chain, "cell/0/kernel", "ff")
    folder = write_recursion(tmp_path / "unlisted", chain(), cell=data["cell"])
    with pytest.raises(LibraryError, match=r"recursion.json: calls 'ff', which the bundle does not list$"):
        dietcode.load(folder)


def test_weights_of_their_own(tmp_path: Path) -> None:
    folder = tmp_path / "apart"
    shutil.copytree(bundle(chain), folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["files"]["weights.safetensors"]
    (folder / "manifest.json").write_bytes(pretty_json(manifest))
    (folder / "weights.safetensors").unlink()
    with pytest.raises(LibraryError, match="no such file; pass weights="):
        dietcode.load(folder)
    twice = {name: 2 * one for name, one in chain().weights.items()}
    (tmp_path / "twice.safetensors").write_bytes(save(twice))
    structure = dietcode.Structure([[-1], [0]])
    x = chain().draw(structure)
    model: Any = dietcode.load(folder, weights=tmp_path / "twice.safetensors")
    assert (model(structure, x) != dietcode.load(bundle(chain))(structure, x)).any()
