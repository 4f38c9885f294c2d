"""Steps within steps, written by hand: branches, loops, their ends, errors in them, and refusals."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from hand_models import described, model_of, step

from dietcode.errors import LibraryError, ShapeError
from dietcode.runtime.models.executable import read_executable
from dietcode.runtime.models.storages import storage_offsets

ROWS = ("float32", ["L", 4])
TRUTH, COUNT = ("bool", []), ("int64", [])


def _doubling(limit: float = 100.0, **changes: Any) -> dict[str, Any]:
    """``while y.max() < limit: y = y * 2``, and the number of rounds."""
    loop = {
        "loop": {
            "condition": {
                "steps": [
                    step("max", ["y"], "most", axes=[], keep=False),
                    step("less", ["most", limit], "goes"),
                ],
                "value": "goes",
            },
            "count": None,
            "body": [step("mul", ["y", 2.0], "twice"), step("add", ["k", 1], "more")],
            "carried": [
                {"first": "x", "state": "y", "next": "twice"},
                {"first": "none", "state": "k", "next": "more"},
            ],
            "each": [],
            "stacked": [],
        },
        "results": ["large", "rounds"],
    }
    values = {"y": ROWS, "twice": ROWS, "large": ROWS, "most": ("float32", []), "goes": TRUTH}
    inside = ["y", "twice", "k", "more", "most", "goes", "none"]
    sizes = ["16*L", "16*L", "8", "8", "4", "1", "8"]
    return described(
        {"x": ROWS},
        [step("full", [], "none", shape=[], value=0, dtype="int64"), loop],
        ["large", "rounds"],
        values=values | {"k": COUNT, "more": COUNT, "rounds": COUNT, "none": COUNT},
        ranges={"L": (1, 64)},
        storages={
            "sizes": [[size] for size in sizes],
            "of": {name: number for number, name in enumerate(inside)},
            "max_bytes": 0,
        },
        **changes,
    )


def _chosen(otherwise: str = "relu") -> dict[str, Any]:
    """``-x if x.max() < 0 else otherwise(x)``."""
    branch = {
        "branch": "below",
        "then": [step("neg", ["x"], "y")],
        "else": [step(otherwise, ["x"], "y")],
        "results": ["y"],
    }
    return described(
        {"x": ROWS},
        [
            step("max", ["x"], "most", axes=[], keep=False),
            step("less", ["most", 0.0], "below"),
            branch,
        ],
        ["y"],
        values={"most": ("float32", []), "below": TRUTH, "y": ROWS},
        ranges={"L": (1, 64)},
        storages={"sizes": [["4"], ["1"]], "of": {"most": 0, "below": 1}, "max_bytes": 0},
    )


def _rows(length: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(0.1, 1, (length, 4)).astype(np.float32)


def test_a_loop_ends_when_its_condition_does_not_hold() -> None:
    model = model_of(_doubling())
    for length in (1, 64, 3):
        for scale in (1, 64, 1000, 0.001):
            x = _rows(length) * np.float32(scale)
            wanted, rounds = x, 0
            while wanted.max() < 100:
                wanted, rounds = wanted * 2, rounds + 1
            large, found = model(x)
            assert found == rounds
            np.testing.assert_array_equal(large, wanted)
            large[...] = 0  # the caller's own
            np.testing.assert_array_equal(model(x)[0], wanted)


def test_a_branch_runs_one_side() -> None:
    model = model_of(_chosen())
    x = _rows(5)
    np.testing.assert_array_equal(model(x), x)
    np.testing.assert_array_equal(model(-x), x)


def test_an_interrupt_ends_a_loop_without_end_and_the_model_stays_usable() -> None:
    model = model_of(_doubling(float("inf")))
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            model(np.zeros((2, 4), np.float32))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    large, _ = model(_rows(2))  # doubled until it overflows
    assert np.isinf(large).any() and len(model._free) == 1


def test_an_error_in_a_round_leaves_the_model_usable() -> None:
    """Rows at 0, 2, 4, … of a table of seven: the fourth round reads the last one, the fifth none."""
    body = [
        step("take", ["table", "k"], "row", axis=0),
        step("add", ["sum", "row"], "total"),
        step("add", ["k", 2], "further"),
    ]
    data = described(
        {"stop": ("int64", [])},
        [
            {
                "loop": {
                    "condition": {"steps": [step("less", ["k", "stop"], "goes")], "value": "goes"},
                    "count": None,
                    "body": body,
                    "carried": [
                        {"first": "begin", "state": "k", "next": "further"},
                        {"first": "zero", "state": "sum", "next": "total"},
                    ],
                    "each": [],
                    "stacked": [],
                },
                "results": ["last", "y"],
            }
        ],
        ["y"],
        values=dict.fromkeys(("k", "further", "last"), COUNT)
        | dict.fromkeys(("row", "sum", "total", "y"), ("float32", []))
        | {"goes": TRUTH},
        weights={"table": ("float32", [7]), "begin": COUNT, "zero": ("float32", [])},
        storages={
            "sizes": [["8"]] * 7,
            "of": {n: k for k, n in enumerate(["k", "further", "last", "row", "sum", "total", "goes"])},
            "max_bytes": 0,
        },
    )
    table = np.arange(7, dtype=np.float32)
    model = model_of(data, {"table": table, "begin": np.int64(0), "zero": np.float32(0)})
    for _ in range(2):
        assert model(7) == 12.0
        with pytest.raises(ShapeError, match="position 8 along axis 0 of 7 elements"):
            model(9)
    assert len(model._free) == 1


def test_eight_threads_in_loops_of_different_lengths() -> None:
    model = model_of(_doubling())
    wrong: list[Any] = []

    def work(seed: int) -> None:
        for number in range(20):
            x = _rows(1 + (seed * 7 + number) % 64, seed) * np.float32(2.0**-seed)
            y = x
            while y.max() < 100:
                y = y * 2
            if not np.array_equal(model(x)[0], y):
                wrong.append((seed, number))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def _loop(data: dict[str, Any]) -> Any:
    return data["steps"][1]["loop"]


Change = Callable[[dict[str, Any]], object]
REFUSALS: dict[str, tuple[Change, str]] = {
    "state of nothing": (
        lambda data: _loop(data)["carried"][0].update(first="z"),
        "reads 'z' before it is computed",
    ),
    "condition of nothing": (lambda data: _loop(data)["condition"].update(value="z"), "reads 'z' before"),
    "condition of the body's": (
        lambda data: _loop(data)["condition"]["steps"][0]["operands"].__setitem__(0, {"value": "twice"}),
        "reads 'twice' before",
    ),
    "condition that is no truth": (
        lambda data: data["values"]["goes"].update(dtype="int64"),
        "less gives bool[] as 'goes', which is int64[]",
    ),
    "condition and count": (lambda data: _loop(data).update(count=3), "a condition and a count"),
    "neither": (lambda data: _loop(data).update(condition=None), "a condition and a count, or with none"),
    "results missing": (lambda data: data["steps"][1].update(results=["large"]), "a loop with 1 results"),
    "one memory for two states": (
        lambda data: _loop(data)["carried"][1].update(next="twice"),
        "not written each by a step of its own",
    ),
    "state that is not written": (
        lambda data: _loop(data)["carried"][1].update(next="k"),
        "not written each by a step of its own",
    ),
    "body that writes a result": (
        lambda data: _loop(data)["body"].append(step("neg", ["y"], "large")),
        "a step writes 'large'",
    ),
    "value of a round read outside": (
        lambda data: data["steps"].append(step("neg", ["twice"], "most")),
        "reads 'twice' before",
    ),
    "without memory": (lambda data: data["storages"]["of"].pop("twice"), "'twice' has no storage"),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_loops_that_are_refused(what: str) -> None:
    change, message = REFUSALS[what]
    data = deepcopy(_doubling())
    change(data)
    with pytest.raises(LibraryError) as caught:
        read_executable(data)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data["steps"][2]["else"].clear(), "reads 'y' before it is computed"),
        (lambda data: data["steps"][2].update(branch="most"), "'most' is float32[]; allowed: bool[]"),
        (lambda data: data["steps"][2].update(branch="y"), "reads 'y' before it is computed"),
    ],
)
def test_branches_that_are_refused(change: Change, message: str) -> None:
    data = deepcopy(_chosen())
    change(data)
    with pytest.raises(LibraryError) as caught:
        read_executable(data)
    assert message in str(caught.value)


def _positive_rows() -> dict[str, Any]:
    """Positions of what is larger than 0, u0 of them, and as many ones."""
    return described(
        {"x": ("float32", ["L"])},
        [
            step("less", [0.0, "x"], "large"),
            step("nonzero", ["large"], "at", size="u0"),
            step("full", [], "ones", shape=["u0"], value=1.0, dtype="float32"),
            step("assert", [], "fits", value="u0", least=None, most=5, text="u0 <= 5 (model.py:3)"),
            step("mul", ["ones", 2.0], "y"),
        ],
        ["at", "y"],
        values={
            "large": ("bool", ["L"]),
            "at": ("int64", ["u0", 1]),
            "ones": ("float32", ["u0"]),
            "fits": ("bool", []),
            "y": ("float32", ["u0"]),
        },
        ranges={"L": (1, 64), "u0": (0, 7)},
        sizes={"u0": "L"},
        storages={
            "sizes": [["L"], ["4*u0"], ["1"]],
            "of": {"large": 0, "ones": 1, "fits": 2},
            "max_bytes": 0,
        },
    )


def test_a_size_is_told_by_a_step_and_checked() -> None:
    model = model_of(_positive_rows())
    for length in (1, 7, 64):
        for count in (0, 1, 5, 0):
            x = -np.ones(length, np.float32)
            x[:count] = 1
            at, y = model(x)
            np.testing.assert_array_equal(at, np.nonzero(x > 0)[0][:, None])
            np.testing.assert_array_equal(y, np.full(min(count, length), 2, np.float32))
            at[...], y[...] = 9, 9  # the caller's own
    with pytest.raises(ShapeError) as caught:
        model(np.ones(6, np.float32))
    assert str(caught.value) == "the model requires u0 <= 5 (model.py:3) (u0 is 6)"
    with pytest.raises(ShapeError) as caught:
        model(np.ones(9, np.float32))
    assert str(caught.value) == "u0 is 9; allowed: 0…7"
    assert len(model._free) == 1


def test_storages_are_as_large_as_sizes_can_be() -> None:
    data = _positive_rows()
    data["dimensions"]["u0"]["max"] = 60
    executable = read_executable(data)
    assert storage_offsets(executable, {"L": 5}) == ([0, 64, 128], 192)
    assert storage_offsets(executable, {"L": 33}) == ([0, 64, 256], 320)
    assert storage_offsets(executable, {"L": 64}) == ([0, 64, 320], 384)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data["steps"].insert(0, data["steps"].pop(2)), "reads 'size u0' before"),
        (lambda data: data["steps"][1]["attributes"].update(size="L"), "reads 'size u0' before"),
        (lambda data: data["sizes"].update(u0="K"), "extent 'K' follows from no dimension"),
    ],
)
def test_sizes_that_are_refused(change: Change, message: str) -> None:
    data = deepcopy(_positive_rows())
    change(data)
    with pytest.raises(LibraryError) as caught:
        read_executable(data)
    assert message in str(caught.value)
