"""A bundle is loaded once before it takes its place: what would not load is an error of compiling."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_libraries import untuned_library
from small_models import mlp, weights_of
from small_programs import pair_program, pair_weights
from small_recursions import tree_cells, tree_weights

import dietcode
from dietcode.errors import LibraryError
from dietcode.models import compiling
from dietcode.programs.compiling import compile_program
from dietcode.recursion.compiling import compile_recursion
from dietcode.runtime.manifest import MANIFEST, MODEL, PROGRAM, RECURSION

KINDS: dict[str, tuple[str, Callable[..., Any]]] = {
    "model": (MODEL, functools.partial(compiling.compile_graph, mlp(), weights_of(mlp()))),
    "recursion": (
        RECURSION,
        functools.partial(compile_recursion, tree_cells(), tree_weights(), max_nodes=64, max_level=16),
    ),
    "program": (PROGRAM, functools.partial(compile_program, pair_program(), pair_weights())),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_would_not_load_is_not_written(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, compile_kind = KINDS[kind]
    monkeypatch.setenv("DIETCODE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compiling, "make_library", untuned_library)
    folder, described_files = tmp_path / "bundle", compiling.described_files
    compile_kind(folder, keep_weights=False)
    with pytest.raises(LibraryError, match="pass weights="):
        dietcode.load(folder)
    before = (folder / MANIFEST).read_bytes()

    def spoiled(*given: Any) -> dict[str, bytes]:
        files = described_files(*given)
        return files | {file: json.dumps(json.loads(files[file]) | {"weights": {}}).encode()}

    monkeypatch.setattr(compiling, "described_files", spoiled)
    for keep_weights in (True, False):
        with pytest.raises(LibraryError) as caught:
            compile_kind(folder, keep_weights=keep_weights)
        said = str(caught.value)
        assert said.startswith(f"{folder}: not written, since it would not load: {file}: describes no {kind}")
        assert "\n" not in said and (folder / MANIFEST).read_bytes() == before
