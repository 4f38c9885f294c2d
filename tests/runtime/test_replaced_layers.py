"""Replaced layers and operators of PyTorch in places and with weights that are not the usual ones."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import of_extra
from small_libraries import SPECS, built, built_of, spec_data
from torch_layers import BIASED, LONG_ROWS, Net, close, replaced_nets

import dietcode
from dietcode.errors import ShapeError, TensorError

torch = pytest.importorskip("torch", reason=of_extra("bench"))


@pytest.fixture(autouse=True)
def nothing_compiled() -> None:
    """PyTorch compiles a function of a process eight times at most, for all tests together."""
    torch._dynamo.reset()


@pytest.fixture
def library() -> Any:
    return dietcode.load(built_of(LONG_ROWS))


@pytest.fixture
def nets(library: Any) -> tuple[Any, Any]:
    return replaced_nets(library)


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


def test_what_a_layer_computes_beside_its_product_is_not_lost(library: Any) -> None:
    """A layer with hooks stays as it is, with weight norms too; so does one with another forward."""
    x = torch.randn(3, 37)
    layers = [torch.nn.Linear(37, 100).requires_grad_(requires_grad=False) for _ in range(5)]
    plain = torch.stack([layer(x) for layer in layers])
    layers[0].register_forward_hook(lambda layer, given, result: 3 * result)
    layers[1].register_forward_pre_hook(lambda layer, given: (-given[0],))
    with pytest.warns(FutureWarning, match="weight_norm"):
        torch.nn.utils.weight_norm(layers[2])
    layers[2].weight_g.data.mul_(2)  # the weight follows before the next call
    layers[3].forward = lambda given: 3 * torch.nn.functional.linear(given, layers[3].weight)
    model, bias = torch.nn.Sequential(*layers), torch.stack([layer.bias for layer in layers])[:, None]
    bare = plain - bias
    right = [3 * plain[0], bias[1] - bare[1], 2 * bare[2] + bias[2], 3 * bare[3], plain[4]]
    assert dietcode.nn.replace(model, library) == ["4"]
    for layer, result in zip(model, right, strict=True):
        assert close(layer(x), result)
    with pytest.raises(TensorError, match="long-rows: the layer has hooks, or a forward of its own; remove"):
        dietcode.nn.Linear.from_torch(model[0], library)


def test_a_layer_whose_weight_others_read_is_left_alone() -> None:
    data = spec_data("read", shape_vars={"M": {"min": 1, "max": 9}}, dims={"m": "M", "n": 100, "k": 36})
    library = dietcode.load(built_of(json.dumps(data)))
    encoder = torch.nn.TransformerEncoderLayer(36, 4, 100, batch_first=True).eval()
    model, x = torch.nn.Sequential(encoder, torch.nn.Linear(36, 100)), torch.randn(1, 5, 36)
    with torch.no_grad():
        right = model(x)
        assert dietcode.nn.replace(model, library) == ["1"]
        assert close(model(x), right)


def test_a_layer_in_two_places_is_one(library: Any) -> None:
    shared = torch.nn.Linear(37, 100).eval()
    model = torch.nn.ModuleDict({"one": shared, "other": shared})
    assert dietcode.nn.replace(model, library) == ["one", "other"]
    assert model["one"] is model["other"] and not model["one"].training


def test_a_packed_weight_is_not_set_in_vain() -> None:
    """Whoever ties weights, or calls with others, would compute with those of before."""
    library, x = dietcode.load(built_of(BIASED)), torch.randn(3, 24)
    layer = dietcode.nn.Linear.from_torch(torch.nn.Linear(24, 36), library)
    weights = {"weight": torch.zeros(36, 24), "bias": torch.zeros(36)}
    for name, value in weights.items():
        with pytest.raises(TensorError, match=f"{name}: set on a layer of dietcode.nn"):
            setattr(layer, name, torch.nn.Parameter(value))
        with pytest.raises(Exception, match=f"{name}: set on a layer of dietcode.nn"):
            torch.func.functional_call(layer, {name: value}, (x,))
    plain = dietcode.nn.Linear.from_torch(torch.nn.Linear(37, 100), dietcode.load(built_of(LONG_ROWS)))
    x = torch.randn(3, 37)
    bare = plain(x) - plain.bias
    plain.bias = None
    assert close(plain(x), bare)
    plain.bias = torch.nn.Parameter(torch.ones(100))
    assert close(plain(x).detach(), bare + 1)


def test_a_part_of_a_checkpoint_changes_that_part() -> None:
    library, x = dietcode.load(built_of(BIASED)), torch.randn(3, 24)
    for has_bias in (True, False):
        plain = torch.nn.Linear(24, 36, bias=has_bias).requires_grad_(requires_grad=False)
        layer = dietcode.nn.Linear.from_torch(plain, library)
        parts = {"weight": torch.randn(24, 36, dtype=torch.bfloat16).T, "bias": torch.randn(36)}
        for part in list(parts)[: 1 + has_bias]:
            for module in (plain, layer):
                module.load_state_dict({part: parts[part]}, strict=False)
            assert close(layer(x), plain(x)), part
        layer.load_state_dict(plain.state_dict())
        if not has_bias:
            assert layer.load_state_dict(parts, strict=False).unexpected_keys == ["bias"]


def test_autocast_converts_what_a_layer_is_given(nets: tuple[Any, Any]) -> None:
    tuned, plain = nets
    x = torch.randn(4, 37)
    compiled = torch.compile(tuned.first, fullgraph=True, backend="aot_eager")
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        for layer in (tuned.first, compiled):
            result = layer(x.bfloat16())  # as the layer before returns it
            assert result.dtype is torch.float32
            assert torch.allclose(result, plain.first(x).float(), rtol=0.05, atol=0.05)
    with torch.no_grad(), pytest.raises(TensorError, match=r"X: dtype torch\.bfloat16; allowed: float32"):
        tuned.first(x.bfloat16())


@pytest.mark.usefixtures("way")
def test_tangents_are_refused_and_not_lost(nets: tuple[Any, Any], library: Any) -> None:
    from torch.autograd import forward_ad

    tuned, x = nets[0].first, torch.randn(4, 37)
    weight = library.pack(W=torch.zeros(100, 37))
    tuned(x), library(x, weight)
    with pytest.raises(TensorError, match=r"X: carries a tangent, and dietcode::long_rows.* computes none"):
        torch.func.jvp(tuned, (x,), (x,))
    with forward_ad.dual_level():
        assert close(tuned(x), nets[1].first(x))
        dual = forward_ad.make_dual(x, x)
        for call in (tuned, lambda given: library(given, weight)):
            with (
                torch.no_grad(),
                pytest.raises(TensorError, match=r"X: carries a tangent, and .* none"),
            ):
                call(dual)


def test_a_converted_constant_is_refused(nets: tuple[Any, Any]) -> None:
    layer, x = nets[0].first, torch.randn(4, 37)
    right = layer(x)
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        with pytest.raises(TensorError, match=f"W: packed for .*then converted to {dtype}; allowed: float32"):
            copy.deepcopy(layer).to(dtype)(x)
    assert close(layer.double().float()(x), right)
    assert copy.deepcopy(layer).to("meta")(x.to("meta")).shape == (4, 100)


def test_a_layer_is_pickled_with_its_weights(nets: tuple[Any, Any], tmp_path: Path) -> None:
    """As a worker of a DataLoader gets it that is spawned; and whole models are saved."""
    tuned, plain = nets
    x = torch.randn(4, 37)
    tuned(x)
    torch.save(tuned, tmp_path / "whole.pt")
    for other in (pickle.loads(pickle.dumps(tuned)), torch.load(tmp_path / "whole.pt", weights_only=False)):
        for _ in range(2):
            assert close(other(x), plain(x))
        assert torch.compile(other.first, backend="aot_eager")(x).shape == (4, 100)


def test_a_checkpoint_and_a_copy(nets: tuple[Any, Any], library: Any) -> None:
    tuned, plain = nets
    x = torch.randn(5, 37)
    other = Net()
    with torch.no_grad():
        assert close(tuned(x), plain(x))
        twin = copy.deepcopy(tuned)
        tuned.load_state_dict(other.state_dict())  # of layers that were not replaced
        assert close(tuned(x), other(x)) and close(twin(x), plain(x))
        twin.load_state_dict(tuned.state_dict())
        assert close(twin(x), other(x))
        with pytest.raises(RuntimeError, match=r"size mismatch|Missing key"):
            twin.load_state_dict({})


def test_a_bias_is_added_where_the_library_adds_it_or_behind_it() -> None:
    library = dietcode.load(built_of(BIASED))
    for has_bias in (True, False):
        linear = torch.nn.Linear(24, 36, bias=has_bias)
        layer = dietcode.nn.Linear.from_torch(linear, library)
        x = torch.randn(2, 4, 24)
        with torch.no_grad():
            assert close(layer(x), linear(x))
        assert str(layer).startswith("Linear(\n  in_features=24, out_features=36")


@pytest.mark.parametrize(
    ("linear", "name", "kind", "message"),
    [
        (torch.nn.Linear(38, 100), LONG_ROWS, ShapeError, "long-rows: W: extent 38 of axis 1; allowed: 37"),
        (torch.nn.Linear(37, 101), LONG_ROWS, ShapeError, "extent 101 of axis 0; allowed: 100"),
        (
            torch.nn.Linear(37, 100).half(),
            LONG_ROWS,
            TensorError,
            "weight is of torch.float16; allowed: float32",
        ),
        (torch.nn.Linear(37, 100), "bmm", TensorError, "bmm: computes .*; allowed: Y"),
        (torch.nn.Linear(24, 40), "epilogue", TensorError, "epilogue: computes"),
    ],
)
def test_a_library_that_does_not_fit(linear: Any, name: str, kind: Any, message: str) -> None:
    library = dietcode.load(built(name) if name in SPECS else built_of(name))
    with pytest.raises(kind, match=message):
        dietcode.nn.Linear.from_torch(linear, library)
