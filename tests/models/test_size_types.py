"""dietcode.export: sizes are numbers to a model's own Python, and become no texts without a word."""

from __future__ import annotations

import logging
import numbers
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from graph_runs import Functions, assert_same, imported, torch

from dietcode.errors import ModelError
from dietcode.models.exporting import export

L = torch.export.Dim("L", min=1, max=16)
HERE = "/".join(Path(__file__).parts[-2:])
_TYPE = type

KINDS: dict[str, Callable[[Any], Any]] = {
    "int": lambda n: isinstance(n, int),
    "one of several": lambda n: isinstance(n, (str, int, float)),
    "abstract": lambda n: isinstance(n, numbers.Integral),
    "none of PyTorch's": lambda n: not isinstance(n, torch.Tensor | str),
    "either": lambda n: isinstance(n, (int, torch.SymInt)),
    "class": lambda n: n.__class__ is int,
    "type": lambda n: type(n) is int and isinstance(type(n), type) and type(type(n)) is type,
    "one of types": lambda n: type(n) in (int, str),
    "name of a type": lambda n: type(n).__name__ == "int",
    "float": lambda n: isinstance(n / 3, float),
    "bool": lambda n: isinstance(n > 40, bool),
}


@pytest.mark.sampled(keep=4)
@pytest.mark.parametrize("name", list(KINDS))
def test_sizes_are_python_s_numbers(name: str) -> None:
    """PyTorch's class of sizes is no int: a model went the way of what is no number."""
    is_number = KINDS[name]
    module = Functions([lambda x: x * 2 if is_number(x.shape[1]) else x * 3]).eval()
    graph, weights = imported(export(module, (torch.randn(2, 9),), dynamic_shapes=(({1: L},),)))
    for length in (1, 16):
        assert_same(module, graph, weights, (torch.randn(2, length),))


def test_types_stay_what_they_are() -> None:
    """Python looks names up among a file's globals, where `type` is another for the time of an export."""
    seen: list[Any] = []

    def function(x: Any) -> Any:
        class Kind(type):
            pass

        class Made(metaclass=Kind):
            pass

        seen.append((type(Made) is Kind, isinstance(Made, type), issubclass(Kind, type)))
        seen.append((type | None == _TYPE | None, type[int] == _TYPE[int], type(Kind) in {_TYPE: 1}))
        seen.append((type("Other", (), {"a": 1}).a, type.__name__, type(abs(-2.5)) is float))
        step = torch.cond(
            x.sum() > 0, lambda a: a * (2 if type(a) is torch.Tensor else 3), lambda a: -a, (x,)
        )
        return step + x.shape[1]

    module = Functions([function]).eval()
    graph, weights = imported(export(module, (torch.randn(2, 9),), dynamic_shapes=(({1: L},),)))
    assert seen[0] == (True, True, True)
    assert seen[1] == (True, True, True)
    assert seen[2] == (1, "type", True)
    assert "type" not in globals()
    assert_same(module, graph, weights, (torch.randn(2, 16),))


TEXTS: dict[str, Callable[[Any], Any]] = {
    "2*L": lambda x: x * len(str(x.shape[1] * 2)),
    "L": lambda x: x * {"9": 2.0}.get(f"{x.shape[1]}", 3.0),
    "L + 1": lambda x: x * ("1" in "{}".format(x.shape[1] + 1)),  # noqa: UP032
}


@pytest.mark.parametrize("said", list(TEXTS))
def test_texts_of_sizes(said: str) -> None:
    """PyTorch writes ``s21``, and what was found by such a text is there for no length."""
    with pytest.raises(ModelError) as caught:
        export(Functions([TEXTS[said]]).eval(), (torch.randn(2, 9),), dynamic_shapes=(({1: L},),))
    assert f"a text of {said} ({HERE}:" in str(caught.value)
    assert "allowed: in messages" in str(caught.value)


def test_a_text_that_is_the_same_for_all_sizes() -> None:
    module = Functions([lambda x: x * (2 + int(str(x.shape[1] // 100)))]).eval()
    graph, weights = imported(export(module, (torch.randn(2, 9),), dynamic_shapes=(({1: L},),)))
    assert_same(module, graph, weights, (torch.randn(2, 16),))


def _speaking(x: Any) -> Any:
    print("given", x.shape, f"{x.shape[1]} steps")  # noqa: T201
    logging.getLogger("model").debug("given %s: %s", x.shape[1], x.shape)
    if x.shape[1] > 100:
        raise ValueError(f"{x.shape[1]} steps")
    assert x.shape[1] < 100, f"{x.shape[1]} steps"
    return x * 2


def test_messages_of_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    module = Functions([_speaking]).eval()
    graph, weights = imported(export(module, (torch.randn(2, 9),), dynamic_shapes=(({1: L},),)))
    assert "given torch.Size([2, s" in capsys.readouterr().out
    assert_same(module, graph, weights, (torch.randn(2, 16),))


def test_all_is_as_before_after_an_export() -> None:
    texts = [kind.__repr__ for kind in (torch.SymInt, torch.SymFloat, torch.SymBool)]
    export(Functions([lambda x: x * 2]).eval(), (torch.randn(2, 9),), dynamic_shapes=(({1: L},),))
    assert texts == [kind.__repr__ for kind in (torch.SymInt, torch.SymFloat, torch.SymBool)]
    assert "__getattribute__" not in vars(torch.SymInt)


CONSTANTS: list[Callable[[Any], Any]] = [
    lambda x: x * float(x.shape[1]),
    lambda x: sum(x[:, :1] * k for k in range(x.shape[1])),
    lambda x: x * len("%d" % x.shape[1]),  # noqa: UP031
]


@pytest.mark.parametrize("function", CONSTANTS)
def test_sizes_that_became_constants_have_a_line(function: Callable[[Any], Any]) -> None:
    with pytest.raises(ModelError, match=rf"PyTorch suggests L = 9 \({HERE}:\d+\)$"):
        export(Functions([function]).eval(), (torch.randn(2, 9),), dynamic_shapes=(({1: L},),))


_TYPED = """
import dietcode, torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2 if isinstance(x.shape[1], int) and x.shape[1] != 4 else x * 3
try:
    dietcode.export(Model().eval(), (torch.ones(2, 9),), dynamic_shapes=({1: torch.export.Dim("L", max=16)},))
except dietcode.errors.ModelError as error:
    print(error)
"""


@pytest.mark.parametrize("given", [["-c", _TYPED], ["-"]])
def test_models_that_no_file_has(given: list[str]) -> None:
    """Their branches were taken for PyTorch's own."""
    run = [sys.executable, *given]
    done = subprocess.run(run, input=_TYPED, text=True, capture_output=True, timeout=300, check=True)
    assert "a branch on L != 4 (<st" in done.stdout, done.stderr
