"""Bundles each value of whose description is another one in turn, as their publishers may sign them."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HERE = Path(__file__).parent
sys.path.extend(str(HERE / name) for name in ("models", "programs", "recursion"))
import hand_models  # noqa: E402
import hand_programs  # noqa: E402
import hand_recursions  # noqa: E402

import dietcode  # noqa: E402
from dietcode.errors import DietCodeError  # noqa: E402
from dietcode.runtime.manifest import file_facts, pretty_json  # noqa: E402

ODD: tuple[Any, ...] = (None, -1, 0, 3, 1 << 62, 1 << 70, "", "B", "B*L", "x\x1b[31m\n", [], {}, [[0]])


def paths(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in inner:
        yield (*path, key)
        yield from paths(value, (*path, key))


def sum_of(folder: Path) -> Path:
    return hand_models.write_bundle(folder, hand_models.scaled_sum())


def views(folder: Path) -> Path:
    step = hand_models.step
    data = hand_models.described(
        {"x": ("float32", ["B", 4])},
        [
            step("slice", ["x"], "left", view=True, axis=1, start=0, stop=2, step=1),
            step("transpose", ["left"], "turned", view=True, axes=[1, 0]),
            step("expand", ["w"], "wide", view=True, shape=["B", 4]),
            step("add", ["x", "wide"], "y"),
        ],
        ["y", "turned"],
        weights={"w": ("float32", [4])},
        values={
            "left": ("float32", ["B", 2]),
            "turned": ("float32", [2, "B"]),
            "wide": ("float32", ["B", 4]),
            "y": ("float32", ["B", 4]),
        },
        ranges={"B": (1, 8)},
    )
    return hand_models.write_bundle(folder, data, {"w": np.ones(4, np.float32)})


def chain(folder: Path) -> Path:
    shutil.copytree(hand_recursions.bundle(hand_recursions.chain), folder)
    return folder


def gated(folder: Path) -> Path:
    shutil.copytree(hand_recursions.bundle(hand_recursions.gated), folder)
    return folder


def encoder(folder: Path) -> Path:
    data = hand_programs.described(hand_programs.ENCODE, with_kernel=False)
    return hand_programs.write_program(folder, data)


def call_model(model: Any) -> None:
    model(np.ones((2, 4), np.float32))


def call_recursion(model: Any) -> None:
    structure = dietcode.Structure([[-1], [0], [1]])
    x = model.random_inputs(structure)
    repr(model)
    model(structure, x)


def call_program(program: Any) -> None:
    program.max_steps, program.max_bytes = 100_000, 30_000_000
    program([hand_programs.leaf(3), [hand_programs.leaf(1)]], errors="return")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("make", "file", "call"),
    [
        (sum_of, "model.json", call_model),
        (views, "model.json", call_model),
        pytest.param(chain, "recursion.json", call_recursion, marks=pytest.mark.long),
        pytest.param(gated, "recursion.json", call_recursion, marks=pytest.mark.long),
        pytest.param(encoder, "program.json", call_program, marks=pytest.mark.long),
    ],
)
def test_no_value_gives_more_than_one_line(
    make: Callable[[Path], Path], file: str, call: Callable[[Any], None], tmp_path: Path
) -> None:
    """It is refused, or computes something, in the memory that it says; there is no other error."""
    folder = make(tmp_path / "bundle")
    given, listed = (json.loads((folder / name).read_text()) for name in (file, "manifest.json"))
    call(dietcode.load(folder))
    found, ran = [], 0
    for path in paths(given):
        for odd in ODD:
            altered = json.loads(json.dumps(given))
            inner = altered
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = odd
            data = json.dumps(altered).encode()
            (folder / file).write_bytes(data)
            listed["files"][file] = file_facts(data)
            (folder / "manifest.json").write_bytes(pretty_json(listed))
            try:
                call(dietcode.load(folder))
                ran += 1
            except DietCodeError as error:
                if not (str(error).isprintable() and len(str(error)) < 1000):
                    found.append((path, odd, str(error)))
            except MemoryError:
                pass
            except Exception as error:
                found.append((path, odd, repr(error)))
    assert not found, found[:20]
    assert ran > 10
