"""The oracle itself: eager results pass, and whatever differs from them fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from needs import of_extra

torch: Any = pytest.importorskip("torch", reason=of_extra("bench"))

import oracle  # noqa: E402  (it needs PyTorch)

CASES = {case.name: case for case in oracle.natural_cases()}
TRIED = ["mcts.search.0", "spinn.forward.0", "turing_machine.forward.0"]


def eager(program: Any, samples: list[Any], spoil: Callable[[Any], Any] = lambda result: result) -> Any:
    """Return what runs a program eagerly, in order, as if it was loaded."""

    def run(instances: Sequence[Any]) -> list[Any]:
        return [spoil(oracle.eager_result(program, one)) for one in instances]

    run(samples)  # as compiling does
    return run


@pytest.mark.parametrize("name", TRIED)
def test_eager_results_pass(name: str) -> None:
    oracle.check_case(eager, CASES[name])


@pytest.mark.parametrize("name", TRIED)
def test_a_spoiled_value_fails(name: str) -> None:
    def spoil(result: Any) -> Any:
        if isinstance(result, list | tuple):
            return type(result)([*result[:-1], spoil(result[-1])])
        if isinstance(result, dict):
            return {key: spoil(value) for key, value in result.items()}
        return result + 1 if isinstance(result, int) else result * 1.001

    with pytest.raises(AssertionError, match="instance 0 of"):
        oracle.check_case(lambda program, samples: eager(program, samples, spoil), CASES[name])


@dataclass
class Box:
    value: Any


class Pair(NamedTuple):
    first: Any
    second: Any


SHARED = [1]
ROW = torch.tensor([100.0, 0.5])


@pytest.mark.parametrize(
    ("found", "wanted", "path"),
    [
        (1, True, "result: 1, a int, and not True"),
        (1.0, 1, "result"),
        (2, 1, "result: 2, and not 1"),
        (0.1 + 2e-4, 0.1, "result"),
        (float("nan"), 0.0, "result"),
        (0.0, float("nan"), "result"),
        ((1, 2), [1, 2], "result"),
        ([1, [2, 3]], [1, [2, 4]], r"result\[1\]\[1\]: 3"),
        ([1], [1, 2], "result: 1 items, and not 2"),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, r"result, keys\[0\]"),
        ({"a": Box([1])}, {"a": Box([2])}, r"result\['a'\]\.value\[0\]"),
        (Pair(1, 2), Pair(1, 3), r"result\[1\]"),
        ((1, 2), Pair(1, 2), "result"),
        ({1, 2}, {1, 3}, "result"),
        (KeyError("a"), KeyError("b"), "result"),
        (KeyError("a"), ValueError("a"), "result"),
        (None, ValueError("a"), "result"),
        ([[1], [1]], [SHARED, SHARED], r"result\[1\]: an object of its own"),
        ([ROW, ROW.clone()], [ROW, ROW], r"result\[1\]: an object of its own"),
        (ROW + torch.tensor([0.0, 0.02]), ROW, "result"),
        (ROW.double(), ROW, "result: torch.float64"),
        (ROW[:1], ROW, "result: "),
        (torch.ones(()), torch.ones(1), "result: "),
        (torch.tensor([True, False]), torch.tensor([True, True]), "result"),
        (torch.tensor([float("nan")]), torch.tensor([1.0]), "result"),
        (ROW, torch.nn.Parameter(ROW), "result"),
        (ROW.numpy(), ROW, "result"),
    ],
)
def test_what_differs_is_found(found: Any, wanted: Any, path: str) -> None:
    with pytest.raises(AssertionError, match=f"^{path}"):
        oracle.compare(found, wanted)


def test_what_is_alike_passes() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    other: list[Any] = [1]
    other.append(other)
    oracle.compare(other, loop)
    oracle.compare(ROW + torch.tensor([0.0, 0.005]), ROW)
    oracle.compare([float("nan"), 1e6 + 50, KeyError("a")], [float("nan"), 1e6, KeyError("a")])
    oracle.compare([SHARED, SHARED, {2, 1}], [SHARED, SHARED, {1, 2}])
