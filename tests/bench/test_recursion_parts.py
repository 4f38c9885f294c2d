"""``dietcode bench`` of a recursion: where the time of a call over a structure goes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_libraries import untuned_library
from small_recursions import SAMPLES, tree_cells, tree_weights

from dietcode.models import compiling
from dietcode.recursion.compiling import compile_recursion


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of a recursion whose libraries run, though nobody tuned them."""
    folder = tmp_path_factory.mktemp("recursion")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DIETCODE_CACHE", str(folder / "cache"))
        patch.setattr(compiling, "make_library", untuned_library)
        sizes = {"max_nodes": 64, "max_level": 16, "samples": SAMPLES}
        compile_recursion(tree_cells(), tree_weights(), folder / "tree", **sizes)
    return folder / "tree"


@pytest.mark.thorough
def test_each_part_of_a_call(tree: Path, inside: Any, tmp_path: Path) -> None:
    # Levels of 4, 9 and 1 nodes above six leaves; roots are all that no node has as a child.
    large = np.array([[-1, -1]] * 6 + [[0, 1]] * 4 + [[6, -1]] * 9 + [[10, 11]], np.int32)
    np.savez(tmp_path / "some.npz", large=large, leaf=np.full((1, 2), -1, np.int32), none=large[:0])
    done = inside("bench", tree, "--structures", tmp_path / "some.npz", "--rounds", "1", "--json")
    assert done.returncode == 0, done.stderr
    small, record = json.loads(done.stdout)
    assert (small["structure"], small["dimensions"]["nodes"]) == ("leaf", 1)
    assert record["dimensions"] == {"nodes": 20, "leaves": 6, "levels": 4, "roots": 15}
    calls = {tuple(part["phases"]): (part["calls"], part["rows"]) for part in record["parts"]}
    assert calls[("cell",)] == (3, [1, 9]) and sum(many for many, _ in calls.values()) in (4, 5)
    for part in record["parts"]:
        assert part["share"] == pytest.approx(part["secs"] / record["secs"])
        assert part["categories"] and part["kernel_secs"] > 0 and part["vendor_secs"] > 0
    assert 0.1 < sum(part["share"] for part in record["parts"]) < 10  # of calls of some microseconds


def test_the_sample_that_a_bundle_keeps(tree: Path, inside: Any) -> None:
    done = inside("bench", tree, "--rounds", "1")
    assert done.returncode == 0, done.stderr
    assert "sample: nodes=5, leaves=3, levels=3, roots=1: a call takes" in " ".join(done.stdout.split())


def test_what_is_refused(tree: Path, inside: Any, tmp_path: Path) -> None:
    wide, broken = tmp_path / "wide.npz", tmp_path / "broken.npz"
    np.savez(wide, many=np.full((65, 2), -1, np.int32))
    np.savez(broken, loop=np.array([[0, -1]], np.int32))
    for file, words in (
        (wide, "--structures: many: structure: 65 nodes; allowed: up to 64"),
        (broken, "'loop': children: node 0 is its own descendant"),
        (tmp_path / "no.npz", "--structures: "),
    ):
        done = inside("bench", tree, "--structures", file)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1) and words in done.stderr
    done = inside("bench", tree, "--at", "N=3")
    assert done.returncode == 2 and "give --structures" in done.stderr
    library = next((tree / "libraries").iterdir())
    done = inside("bench", library, "--structures", wide)
    assert done.returncode == 2 and "--structures is of recursions" in done.stderr
    shutil.copytree(tree, tmp_path / "plain")
    manifest = json.loads((tree / "manifest.json").read_text())
    del manifest["samples"]
    (tmp_path / "plain" / "manifest.json").write_text(json.dumps(manifest))
    done = inside("bench", tmp_path / "plain")
    assert done.returncode == 2 and "keeps no sample structure; give --structures FILE.npz" in done.stderr
