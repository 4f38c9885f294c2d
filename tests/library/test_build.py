"""From parts to files: the same parts give the same bytes, and the files say what they hold."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from small_libraries import SPECS, built, library_bytes, make_parts, spec_data

import dietcode
from dietcode.confinement import possible
from dietcode.dispatcher.rule import Branch, Leaf, Rule
from dietcode.errors import LibraryError, TuningError
from dietcode.library import build
from dietcode.runtime.manifest import write_folder


def manifest_of(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(library_bytes(name)["manifest.json"])
    return data


def test_the_same_parts_give_the_same_bytes() -> None:
    again = build.library_files(make_parts(SPECS["dense"]))
    assert dict(again) == dict(library_bytes("dense"))


def test_another_rule_gives_other_code() -> None:
    parts = make_parts(SPECS["dense"])
    other = dataclasses.replace(parts, rule=Rule(("T",), 2, Branch("T", 1, Leaf(1), Leaf(0))))
    files = build.library_files(other)
    assert files["library.so"] != library_bytes("dense")["library.so"]


@pytest.mark.parametrize("name", SPECS)
def test_the_manifest_says_what_the_contract_asks_for(name: str) -> None:
    files, manifest = library_bytes(name), manifest_of(name)
    for file, facts in manifest["files"].items():
        assert facts == {
            "bytes": len(files[file]),
            "sha256": "sha256:" + hashlib.sha256(files[file]).hexdigest(),
        }
    assert set(manifest["files"]) == {"dispatch.json", "library.so", "report.json"}
    assert manifest["runtime"] == {} and set(files) == {"manifest.json", *manifest["files"]}
    assert manifest["workload"]["name"] == name and manifest["workload_digest"].startswith("sha256:")
    assert manifest["target"]["kind"] == "llvm" and manifest["target"]["mcpu"]
    assert manifest["requires"]["cpu_features"] == sorted(manifest["requires"]["cpu_features"])
    assert manifest["variable_order"] == list(SPECS[name]["shape_vars"])
    assert manifest["argument_order"][:2] == list(SPECS[name]["tensors"])


def test_no_path_of_this_machine_is_in_a_library() -> None:
    for file, data in library_bytes("dense").items():
        assert b"/tmp/" not in data and str(Path.home()).encode() + b"/" not in data, file


def test_workspace_is_one_packed_tile_of_a_varying_operand_for_each_task() -> None:
    """Of the wider micro-kernel, two vectors."""
    manifest = manifest_of("varying")
    columns = 2 * manifest["target"]["vector_bytes"] // 4
    assert manifest_of("dense")["workspace_bytes"] == 0
    assert manifest["workspace_bytes"] == manifest["num_threads"] * columns * 21 * 4
    assert manifest_of("bmm")["workspace_bytes"] == manifest["num_threads"] * columns * 33 * 4


def test_the_packed_layout_is_declared_and_can_be_applied_without_the_library() -> None:
    import numpy as np

    library = dietcode.load(built("rows"))
    facts = library.manifest["packed"]["W"]
    lanes = facts["lanes"]
    assert facts["layout"] == f"nk -> [n/{lanes}, k, n%{lanes}]"
    weights = np.random.default_rng(0).standard_normal((100, 37), dtype=np.float32)
    padded = np.zeros((-(-100 // lanes) * lanes, 37), dtype=np.float32)
    padded[:100] = weights
    by_hand = padded.reshape(-1, lanes, 37).transpose(0, 2, 1)[None]
    packed = library.pack(W=weights).data
    np.testing.assert_array_equal(packed, by_hand)
    assert packed.ctypes.data % facts["alignment_bytes"] == 0


def test_the_dispatch_table_is_readable_and_agrees_with_the_code() -> None:
    library = dietcode.load(built("dense"))
    table = library.dispatch["table"]
    assert [c["category"] for c in library.dispatch["categories"]] == [0, 1]
    for row in table["rows"]:
        low, high = row["T"]
        assert {library.select(T=value) for value in range(low, high + 1)} == {row["category"]}
    assert sum(row["T"][1] - row["T"][0] + 1 for row in table["rows"]) == 8


def test_every_category_is_reachable_and_right_when_a_rule_is_deep() -> None:
    """A rule of many leaves in the order of two variables."""
    import numpy as np
    from small_libraries import SAFE_ERROR, error

    data = spec_data(
        "deep",
        shape_vars={"Z": {"min": 1, "max": 6}, "A": {"min": 1, "max": 6}},
        dims={"m": "Z", "n": 17, "k": "A"},
    )
    data["tensors"]["W"].pop("constant")
    parts = make_parts(data)
    root: Any = Leaf(0)
    for threshold in range(5, 0, -1):
        root = Branch("Z", threshold, Branch("A", threshold, Leaf(threshold % 2), Leaf(1)), root)
    rule = Rule(("Z", "A"), 2, root)
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        write_folder(Path(place) / "lib", build.library_files(dataclasses.replace(parts, rule=rule)))
        library = dietcode.load(Path(place) / "lib")
        for z in range(1, 7):
            for a in range(1, 7):
                assert library.select(Z=z, A=a) == rule.select({"Z": z, "A": a})
                x, w = np.ones((z, a), np.float32), np.arange(17 * a, dtype=np.float32).reshape(17, a)
                assert error(library(X=x, W=w), x.astype(float) @ w.T.astype(float)) <= SAFE_ERROR


def test_without_a_linker_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("CC", raising=False)
    parts = make_parts(SPECS["dense"])
    with pytest.raises(TuningError) as caught:
        build.compile_code(parts)
    assert "C compiler" in str(caught.value) and "\n" not in str(caught.value)


def test_the_compiler_of_a_library_is_confined(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lowers and compiles a stranger's spec is no process that has the database."""

    def refuse(*_: object) -> None:
        raise AssertionError("compiled in this process")

    def attack(*_: object) -> bytes:
        import socket
        from pathlib import Path

        found = []
        for attempt in (lambda: Path("/etc/shadow").read_bytes(), socket.socket):
            try:
                attempt()
                found.append(b"got")
            except PermissionError:
                found.append(b"refused")
        return b" ".join(found)

    for name in ("build_module", "compile_module"):
        monkeypatch.setattr(build, name, refuse)
    parts = make_parts(SPECS["dense"])
    assert build.compile_code(parts)[:4] == b"\x7fELF"
    monkeypatch.setattr(build, "_compile", attack)
    assert build.compile_code(parts) == b" ".join([b"refused"] * 2) or not all(vars(possible()).values())


def test_a_library_stays_whole_while_it_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "lib"
    for name in ("dense", "rows", "dense"):
        write_folder(folder, library_bytes(name))
        assert dietcode.load(folder).manifest["name"] == name
    with pytest.raises(LibraryError):
        write_folder(tmp_path, library_bytes("dense"))
