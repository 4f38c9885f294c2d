"""How calls give inputs and get outputs: nested trees, as PyTorch flattens them."""

from __future__ import annotations

from typing import Any

import pytest

from dietcode.errors import TensorError
from dietcode.graph.signature import built_output, flatten_arguments, input_names, num_outputs

SIGNATURE: dict[str, Any] = {
    "positional": ["x", {"tuple": ["a", {"list": ["b", None]}]}],
    "keyword": {"mask": "mask", "state": {"dict": [["h", "h"], ["c", "c"]]}},
    "output": {"dict": [["logits", "*"], ["past", {"tuple": ["*", {"list": ["*"]}, None]}]]},
}


def test_arguments_by_the_names_of_inputs() -> None:
    found = flatten_arguments(SIGNATURE, (1, (2, [3, None])), {"mask": 4, "state": {"c": 6, "h": 5}})
    assert found == {"x": 1, "a": 2, "b": 3, "mask": 4, "h": 5, "c": 6}
    by_name = flatten_arguments({**SIGNATURE, "positional": ["x", "y"], "keyword": {}}, (), {"y": 2, "x": 1})
    assert by_name == {"x": 1, "y": 2}


def test_positional_arguments_by_the_names_that_their_author_gave() -> None:
    named = {**SIGNATURE, "names": ["X", "cache"]}
    rest = {"mask": 4, "state": {"c": 6, "h": 5}}
    wanted = {"x": 1, "a": 2, "b": 3, "mask": 4, "h": 5, "c": 6}
    assert flatten_arguments(named, (), {"cache": (2, [3, None]), "X": 1, **rest}) == wanted
    assert flatten_arguments(named, (1,), {"cache": (2, [3, None]), **rest}) == wanted
    assert flatten_arguments(named, (), {"cache": (2, [3, None]), "x": 1, **rest}) == wanted, "its own name"
    with pytest.raises(TensorError, match="cache: missing; the model takes X, cache, mask, state"):
        flatten_arguments(named, (1,), rest)


def test_outputs() -> None:
    built = built_output(SIGNATURE["output"], iter([1, 2, 3]))
    assert built == {"logits": 1, "past": (2, [3], None)}
    assert built_output("*", iter([1])) == 1 and built_output({"tuple": []}, iter([])) == ()


def test_names() -> None:
    assert input_names(SIGNATURE) == ["x", "a", "b", "mask", "h", "c"]
    assert num_outputs(SIGNATURE["output"]) == 3


@pytest.mark.parametrize(
    ("positional", "keyword", "problem"),
    [
        ((1,), {}, "argument 1: missing; the model takes x, argument 1, mask, state"),
        ((1, 2, 3), {}, "given 3 arguments; allowed: x, argument 1, mask, state"),
        ((1, (2, [3, None])), {"mask": 4}, "state: missing"),
        ((1, (2, [3, None])), {"mask": 4, "state": {"h": 1, "c": 2}, "more": 1}, "more: unknown"),
        ((1, (2, [3, None])), {"mask": 4, "state": {"h": 1}}, "given dict; allowed: a dictionary of h, c"),
        ((1, (2, [3, None])), {"mask": 4, "state": 7}, "state: given int; allowed: a dictionary of h, c"),
        ((1, (2, [3])), {"mask": 4, "state": {}}, "argument 1: given list of 1; allowed: a list of 2"),
        ((1, 2), {"mask": 4, "state": {}}, "given int; allowed: a tuple of 2"),
        ((1, (2, [3, 4])), {"mask": 4, "state": {}}, "exported with None"),
    ],
)
def test_other_arguments(positional: tuple[Any, ...], keyword: dict[str, Any], problem: str) -> None:
    with pytest.raises(TensorError, match=problem):
        flatten_arguments(SIGNATURE, positional, keyword)
