"""Libraries and models in pickles: by folder and digest, for processes that start anew."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import pydoc
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_libraries import built

import dietcode
from dietcode.errors import LibraryError

W = np.linspace(-1, 1, 3700, dtype=np.float32).reshape(100, 37)
X = np.linspace(-2, 2, 148, dtype=np.float32).reshape(4, 37)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A library's folder that a test may change."""
    return Path(shutil.copytree(built("rows"), tmp_path / "rows"))


def _called(library: Any, bound: Any, x: Any) -> tuple[Any, Any]:
    return library(X=x, W=library.pack(W=W)), bound(x)


@pytest.mark.thorough
def test_a_process_that_starts_anew_gets_them(folder: Path) -> None:
    library: Any = dietcode.load(folder, num_threads=1)
    bound = library.bind(W=library.pack(W=W))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.apply(_called, (library, bound, X))
    for result in found:
        np.testing.assert_array_equal(result, bound(X))


def _called_with(library: Any, packed: Any, x: Any) -> tuple[Any, bool]:
    return library(x, packed), packed.data.ctypes.data % 64 == 0


@pytest.mark.thorough
def test_a_packed_constant_travels_after_calls_too(folder: Path) -> None:
    """A call keeps the runtime's tensor with it, which has no pickle."""
    library: Any = dietcode.load(folder, num_threads=1)
    packed = library.pack(W=W)
    expected = library(X, packed)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found, is_aligned = pool.apply(_called_with, (library, packed, X))
    assert is_aligned
    np.testing.assert_array_equal(found, expected)
    assert copy.deepcopy(packed) is packed


def test_help_shows_how_this_library_is_called(folder: Path) -> None:
    text = pydoc.render_doc(dietcode.load(folder), renderer=pydoc.plaintext)
    assert "lib(X, W, *, out=None) -> Y" in text and "W=lib.pack(W=…)" in text
    assert "*positional" not in text and "X: float32 [" in text


def test_it_is_loaded_as_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    library = dietcode.load(folder.name, num_threads=1, threads="own")
    monkeypatch.chdir("/")
    again: Any = pickle.loads(pickle.dumps(library))
    assert again is not library and again.folder == folder
    assert again.loaded_by == library.loaded_by
    assert again.loaded_by[1][3:] == (1, "own", None)


def test_another_library_in_its_place_is_refused(folder: Path) -> None:
    pickled = pickle.dumps(dietcode.load(folder))
    shutil.rmtree(folder)
    with pytest.raises(LibraryError, match=r"rows: was pickled, and is no library here; copy"):
        pickle.loads(pickled)
    shutil.copytree(built("bmm"), folder)
    with pytest.raises(LibraryError, match=r"rows: was pickled, and holds another library now"):
        pickle.loads(pickled)


def test_what_was_not_loaded_says_so(folder: Path) -> None:
    library: Any = dietcode.load(folder)
    library.loaded_by = None
    with pytest.raises(LibraryError, match=r"use dietcode\.load"):
        pickle.dumps(library)
