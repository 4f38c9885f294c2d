"""Bundles opened: every file by its digest, weights apart, and names that lead nowhere else."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
from fresh_process import BLOCK, python
from hand_models import described, step, write_bundle
from safetensors.numpy import save_file

import dietcode
from dietcode.errors import LibraryError

WEIGHTS: dict[str, Any] = {"w": np.arange(4, dtype=np.float32), "b": np.ones((), np.float32)}
X = np.arange(8, dtype=np.float32).reshape(2, 4)


def affine() -> dict[str, Any]:
    """``x * (2 w) + b``, where ``2 w`` is computed when the model is loaded."""
    return described(
        {"x": ("float32", ["B", 4])},
        [step("mul", ["x", "w2"], "scaled"), step("add", ["scaled", "b"], "y")],
        ["y"],
        values={
            "w2": ("float32", [4]),
            "scaled": ("float32", ["B", 4]),
            "y": ("float32", ["B", 4]),
        },
        weights={"w": ("float32", [4]), "b": ("float32", [])},
        load=[step("mul", ["w", 2.0], "w2")],
        ranges={"B": (1, 16)},
    )


def right(weights: Any = WEIGHTS) -> Any:
    """What it gives for X."""
    return X * (2 * weights["w"]) + weights["b"]


def load(folder: object, **options: Any) -> Any:
    """What users get."""
    return dietcode.load(str(folder), **options)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A whole bundle."""
    return write_bundle(tmp_path / "bundle", affine(), WEIGHTS)


def test_a_bundle_is_loaded_and_called(bundle: Path) -> None:
    model = load(bundle)
    assert isinstance(model, dietcode.Model)
    np.testing.assert_array_equal(model(X), right())
    assert model.report == {"name": "by-hand", "parts": []}


def test_it_needs_neither_compiler_nor_torch(bundle: Path) -> None:
    script = f"""{BLOCK}
import dietcode, numpy as np
y = dietcode.load(sys.argv[1])(np.ones((3, 4), np.float32))
print(y.tolist()[2], [name for name in sys.modules if name.partition(".")[0] in ("torch", "tvm")])
"""
    assert python(script, bundle) == "[1.0, 3.0, 5.0, 7.0] []\n"


def test_libraries_that_are_not_said_by_their_digest(bundle: Path) -> None:
    """Where a bundle does not say which manifest a library has, nobody would check it."""
    manifest = json.loads((bundle / "manifest.json").read_text())
    (bundle / "libraries" / "ab").mkdir(parents=True)
    (bundle / "libraries" / "ab" / "manifest.json").write_text("{}")
    for facts in ({"manifest": None}, {}, None):
        (bundle / "manifest.json").write_text(json.dumps(manifest | {"libraries": {"ab": facts}}))
        with pytest.raises(LibraryError, match="missing or not what the bundle lists"):
            load(bundle)


def test_a_moved_bundle_loads(bundle: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere" / "bundle"
    shutil.copytree(bundle, moved)
    shutil.rmtree(bundle)
    np.testing.assert_array_equal(load(moved)(X), right())


@pytest.mark.parametrize("name", ["model.json", "report.json", "weights.safetensors"])
def test_an_altered_file_is_refused(bundle: Path, name: str) -> None:
    content = bytearray((bundle / name).read_bytes())
    content[-2] ^= 1
    (bundle / name).write_bytes(content)
    with pytest.raises(LibraryError, match=f"{name}: .* not what the manifest lists; it was altered$"):
        load(bundle)


@pytest.mark.parametrize("name", ["model.json", "report.json", "weights.safetensors"])
def test_a_missing_file_is_refused(bundle: Path, name: str) -> None:
    (bundle / name).unlink()
    with pytest.raises(LibraryError, match=rf"{name}: No such file or directory"):
        load(bundle)


def _manifest(bundle: Path, change: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads((bundle / "manifest.json").read_bytes())
    change(data)
    (bundle / "manifest.json").write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(format="dietcode-bundle/2"), "format 'dietcode-bundle/2'; this version reads"),
        (lambda m: m.pop("name"), "name is missing or no str; compile again"),
        (lambda m: m.update(files=[]), "files is missing or no dict"),
        (lambda m: m["files"].pop("model.json"), "files ['report.json', 'weights.safetensors']; allowed:"),
        (lambda m: m["files"].update({"../x": {}}), "allowed: model.json, report.json, weights.safetensors"),
        (lambda m: m.update(libraries={"../../x": {}}), "'../../x' is no library of a bundle"),
        (lambda m: m.update(libraries={"": {}}), "'' is no library of a bundle"),
        (
            lambda m: m.update(libraries={"ab": {"manifest": "sha256:0"}}),
            "missing or not what the bundle lists",
        ),
        (lambda m: m.update(libraries={"ab": 7}), "missing or not what the bundle lists"),
        (lambda m: m.update(signature="signature.json"), "its signature.json is missing; pull it again"),
    ],
)
def test_manifests_that_are_refused(bundle: Path, change: Any, message: str) -> None:
    _manifest(bundle, change)
    with pytest.raises(LibraryError) as caught:
        load(bundle)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("digest", ["../../elsewhere", "ab" * 16, "/etc"])
def test_a_model_that_calls_what_the_bundle_does_not_list(tmp_path: Path, digest: str) -> None:
    data = affine()
    data["steps"][0] = {
        "kernel": digest,
        "arguments": {},
        "results": [{"value": "scaled", "shape": ["B", 4]}],
        "variables": {},
    }
    folder = write_bundle(tmp_path / "bundle", data, WEIGHTS)
    with pytest.raises(LibraryError, match=r"model\.json: calls '.*', which the bundle does not list$"):
        load(folder)


def test_a_description_that_is_none_is_refused(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "bundle", affine() | {"steps": []}, WEIGHTS)
    with pytest.raises(LibraryError, match=r"^model\.json: describes no model: .*output 'y'"):
        load(folder)


def test_a_dimension_that_no_input_tells_is_refused(tmp_path: Path) -> None:
    data = affine()
    for typed in (data["inputs"]["x"], data["values"]["scaled"], data["values"]["y"]):
        typed["shape"] = ["B//2 + 1", 4]
    folder = write_bundle(tmp_path / "bundle", data, WEIGHTS)
    with pytest.raises(LibraryError, match=r"model\.json: dimension B follows from no input's shape$"):
        load(folder)


def test_weights_apart(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "bundle", affine())
    with pytest.raises(LibraryError, match=r"no such file; pass weights= with the model's weights"):
        load(folder)
    other: dict[str, Any] = {"w": WEIGHTS["w"] + 1, "b": np.full((), 5, np.float32), "unused": np.zeros(3)}
    save_file(other, tmp_path / "tuned.safetensors")
    model = load(folder, weights=tmp_path / "tuned.safetensors")
    np.testing.assert_array_equal(model(X), right(other))


def test_other_weights_take_the_place_of_the_bundles_own(bundle: Path, tmp_path: Path) -> None:
    other = {name: np.asarray(one * 3) for name, one in WEIGHTS.items()}
    save_file(other, tmp_path / "tuned.safetensors")
    np.testing.assert_array_equal(load(bundle, weights=tmp_path / "tuned.safetensors")(X), right(other))
    np.testing.assert_array_equal(load(bundle)(X), right())


@pytest.mark.parametrize(("dtype", "width"), [("F16", 2), ("BF16", 2)])
def test_weights_in_half_precision_are_widened(bundle: Path, tmp_path: Path, dtype: str, width: int) -> None:
    """All values of the test have few bits, so that nothing is lost."""
    wanted = {"w": np.array([0.5, -3, 2.0**-20, -np.inf], np.float32), "b": np.float32(7)}
    contents = {
        name: (one.astype("<f2") if dtype == "F16" else (one.view("<u4") >> 16).astype("<u2")).tobytes()
        for name, one in wanted.items()
    }
    header = {
        "w": {"dtype": dtype, "shape": [4], "data_offsets": [0, 4 * width]},
        "b": {"dtype": dtype, "shape": [], "data_offsets": [4 * width, 5 * width]},
    }
    data = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path = tmp_path / "half.safetensors"
    path.write_bytes(struct.pack("<Q", len(data)) + data + contents["w"] + contents["b"])
    np.testing.assert_array_equal(load(bundle, weights=path)(X), right(wanted))


@pytest.mark.parametrize("others", [WEIGHTS, {"c": np.zeros(9, np.float32)}])
def test_a_file_that_is_replaced_while_it_is_read_is_read_as_it_was(
    bundle: Path, tmp_path: Path, others: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a training run does that writes its next checkpoint, and moves it there."""
    halves = {name: np.asarray(one * 2, np.float16) for name, one in WEIGHTS.items()}
    path, real = tmp_path / "tuned.safetensors", safetensors.safe_open
    save_file(halves, path)

    def open_and_replace(*arguments: Any, **options: Any) -> Any:
        opened = real(*arguments, **options)
        save_file(others, tmp_path / "next.safetensors")
        (tmp_path / "next.safetensors").replace(path)
        return opened

    monkeypatch.setattr(safetensors, "safe_open", open_and_replace)
    wanted = {name: one.astype(np.float32) for name, one in halves.items()}
    np.testing.assert_array_equal(load(bundle, weights=path)(X), right(wanted))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"w": WEIGHTS["w"]}, "lacks b, float32[]; allowed: all weights of the model"),
        (WEIGHTS | {"w": np.zeros(5, np.float32)}, "w is float32[5]; allowed: float32[4]"),
        (WEIGHTS | {"w": np.zeros((2, 2), np.float32)}, "w is float32[2, 2]; allowed: float32[4]"),
        (WEIGHTS | {"w": np.zeros(4)}, "w is float64[4]; allowed: float32[4], or the same in half precision"),
    ],
)
def test_weights_that_are_refused(bundle: Path, tmp_path: Path, weights: Any, message: str) -> None:
    save_file(weights, tmp_path / "other.safetensors")
    with pytest.raises(LibraryError) as caught:
        load(bundle, weights=tmp_path / "other.safetensors")
    assert str(caught.value) == f"{tmp_path / 'other.safetensors'}: {message}"


def test_a_file_that_holds_no_weights_is_refused(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "no.safetensors").write_bytes(b"no weights")
    for path, message in (("no.safetensors", "cannot be read: "), ("none.safetensors", "no such file; ")):
        with pytest.raises(LibraryError, match=f"{path}: {message}"):
            load(bundle, weights=tmp_path / path)


_W = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}


@pytest.mark.parametrize(
    ("header", "size"),
    [
        ({"w": _W}, 1 << 63),
        ({"w": _W | {"shape": [-4]}}, None),
        ({"w": _W | {"shape": [1 << 40, 1 << 40]}}, None),
        ({"w": _W | {"data_offsets": [0, 1 << 60]}}, None),
        ({"w": _W | {"data_offsets": [16, 0]}}, None),
        ({"w": _W | {"data_offsets": [4, 20]}}, None),
        ({"w": _W, "b": _W}, None),
        ({"w": _W | {"dtype": "F8_E4M3", "shape": [16]}}, None),
        ({"w": _W | {"dtype": "F\x1b[31m32"}}, None),
        ([[]], None),
    ],
)
def test_a_file_of_weights_with_an_odd_header_is_one_line(
    bundle: Path, tmp_path: Path, header: Any, size: int | None
) -> None:
    data, path = json.dumps(header, ensure_ascii=False).encode(), tmp_path / "odd.safetensors"
    path.write_bytes(struct.pack("<Q", len(data) if size is None else size) + data + bytes(16))
    with pytest.raises(LibraryError) as caught:
        load(bundle, weights=path)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 500


def test_a_file_of_weights_that_never_ends_is_refused(bundle: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.safetensors")
    (tmp_path / "zero.safetensors").symlink_to("/dev/zero")
    for name in ("pipe", "zero"):
        with pytest.raises(LibraryError, match="no such file"):
            load(bundle, weights=tmp_path / f"{name}.safetensors")


def test_a_library_has_no_weights(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"format": "dietcode-library/1"}')
    with pytest.raises(LibraryError, match=r"which has no weights; leave out weights=$"):
        load(tmp_path, weights="some.safetensors")


def test_a_model_is_pickled_by_its_folder_and_its_weights(bundle: Path, tmp_path: Path) -> None:
    other = {"w": np.full(4, 3, np.float32), "b": np.ones((), np.float32)}
    save_file(other, tmp_path / "other.safetensors")
    for options, weights in (({}, WEIGHTS), ({"weights": tmp_path / "other.safetensors"}, other)):
        model = load(bundle, **options)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(model))(X), right(weights))
