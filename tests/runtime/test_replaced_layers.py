"""Replaced layers and operators of PyTorch in places and with weights that are not the usual ones."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from needs import of_extra
from small_libraries import built_of
from test_torch_operator import LONG_ROWS, Net, close

import dietcode
from dietcode.errors import TensorError

torch = pytest.importorskip("torch", reason=of_extra("bench"))


@pytest.fixture
def library() -> Any:
    return dietcode.load(built_of(LONG_ROWS))


@pytest.fixture
def nets(library: Any) -> tuple[Any, Any]:
    """The same network twice, the first with a layer replaced."""
    plain = Net().eval()
    tuned = copy.deepcopy(plain)
    assert dietcode.nn.replace(tuned, library) == ["first"]
    return tuned, plain


def test_wrong_calls_of_a_layer(library: Any) -> None:
    layer = dietcode.nn.Linear.from_torch(torch.nn.Linear(37, 100), library)
    for value, said in (
        (np.zeros((2, 37)), "ndarray"),
        (None, "NoneType"),
        (torch.tensor(1.0), "without an axis"),
    ):
        with pytest.raises(TensorError, match=rf"X: .*{said}; allowed: a torch tensor \[\.\.\., 37\]"):
            layer(value)


def test_tensors_with_and_without_values_are_not_mixed(nets: tuple[Any, Any], library: Any) -> None:
    """What PyTorch knows of shapes alone would leave the result as its memory was."""
    x = torch.randn(4, 37)
    with torch.device("meta"):
        op = library.torch_op(W=np.ones((100, 37), np.float32))
        layer = dietcode.nn.Linear.from_torch(nets[1].first, library)
    assert close(op(x), x.sum(dim=1, keepdim=True).expand(4, 100))
    assert close(layer(x), nets[1].first(x))
    with pytest.raises(TensorError, match="W: on meta, but X is on cpu; pass tensors of one device"):
        copy.deepcopy(layer).to("meta")(x)
    with pytest.raises(TensorError, match="W: on cpu, but X is on meta"):
        op(x.to("meta"))


def test_another_memory_format_moves_no_constant(library: Any) -> None:
    """Else each call would copy it first."""
    op, x = library.torch_op(W=np.ones((100, 37), np.float32)), torch.ones(4, 37)
    assert op.to(memory_format=torch.channels_last) is op and op.bound_W.is_contiguous()
    assert (op(x) == 37).all()


def test_what_is_no_library_or_no_layer_is_refused(library: Any) -> None:
    for given in ("a path", None, torch.nn.Linear(37, 100)):
        with pytest.raises(TensorError, match=r"given .*; allowed: a library of one operator"):
            dietcode.nn.replace(Net(), library, given)
        with pytest.raises(TensorError, match=r"given .*; allowed: a library of one operator"):
            dietcode.nn.Linear.from_torch(torch.nn.Linear(37, 100), given)
    with pytest.raises(TensorError, match=r"replace: given .*; allowed: a torch\.nn\.Module"):
        dietcode.nn.replace([torch.nn.Linear(37, 100)], library)
    with pytest.raises(TensorError, match=r"long-rows: given ReLU; allowed: a torch\.nn\.Linear"):
        dietcode.nn.Linear.from_torch(torch.nn.ReLU(), library)


def test_weights_in_any_place_and_of_any_kind(library: Any) -> None:
    """All that can be packed are; a layer with others is left alone, and those behind it are not."""

    class Kind(torch.Tensor):
        """As a package for quantization has one."""

    made = [torch.nn.Linear(37, 100).requires_grad_(requires_grad=False) for _ in range(3)]
    made[0].weight = torch.nn.Parameter(torch.randn(100, 37).as_subclass(Kind), requires_grad=False)
    made[1].weight.data = torch.randn(37, 100).T
    made[2].weight.data = torch._neg_view(torch.randn(100, 37))
    model, x = torch.nn.Sequential(torch.nn.Linear(37, 100, device="meta"), *made), torch.randn(3, 37)
    right = [layer(x) for layer in made]
    assert dietcode.nn.replace(model, library) == ["2", "3"]
    for layer, result in list(zip(model[1:], right, strict=True))[1:]:
        assert close(layer(x), result)
    with pytest.raises(TensorError, match="the layer's weight is on meta; this library runs on cpu"):
        dietcode.nn.Linear.from_torch(model[0], library)


def test_a_checkpoint_that_does_not_fit_is_refused_as_by_pytorch(nets: tuple[Any, Any]) -> None:
    """All that is wrong in one error, by the names of the checkpoint; the layer stays as it was."""
    tuned, plain = nets
    x = torch.randn(3, 37)
    for weight, said in (
        (torch.zeros(99, 37), r"first\.weight: W: extent 99 of axis 0; allowed: 100"),
        (torch.zeros(100, 37, device="meta"), r"first\.weight: W: on meta"),
        (np.zeros((100, 37)), r"first\.weight: W: ndarray; allowed: a torch tensor"),
    ):
        checkpoint = plain.state_dict() | {"first.weight": weight, "second.1.weight": torch.zeros(1, 1)}
        with pytest.raises(RuntimeError, match=rf"(?s){said}.*size mismatch for second\.1\.weight"):
            tuned.load_state_dict(checkpoint)
        assert close(tuned(x), plain(x))
