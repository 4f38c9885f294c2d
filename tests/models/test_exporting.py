"""dietcode.export: recurrent layers over a dynamic length, the names of dimensions, and refusals."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from graph_runs import assert_same, imported, torch

from dietcode.errors import ModelError
from dietcode.graph.signature import flatten_arguments
from dietcode.models.exporting import export
from dietcode.models.importing.dimensions import dimension_names
from dietcode.models.importing.exported import import_exported, load_exported

L = torch.export.Dim("L", min=1, max=64)
B = torch.export.Dim("B", min=1, max=8)
HERE = "/".join(Path(__file__).parts[-2:])


class Tagger(torch.nn.Module):
    """A recurrent layer, with or without first states, and a classifier."""

    def __init__(self, kind: str, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = getattr(torch.nn, kind)(5, 6, **options)
        width = 6 * (2 if options.get("bidirectional") else 1)
        self.head = torch.nn.Linear(width, 3)

    def forward(self, x: Any, states: Any = None) -> Any:
        """Return tags, and the last states."""
        y, last = self.layer(x, states)
        return self.head(y), last


OPTIONS: list[dict[str, Any]] = [
    {},
    {"num_layers": 2, "bidirectional": True},
    {"batch_first": True, "bias": False, "dropout": 0.5, "num_layers": 2},
]


@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("options", OPTIONS)
def test_recurrent_layers(kind: str, options: dict[str, Any], tmp_path: Path) -> None:
    module = Tagger(kind, **options).eval()
    length, batch = (1, 0) if options.get("batch_first") else (0, 1)
    before = list(module.state_dict())

    def example(*sizes: int) -> Any:
        return torch.randn(*(sizes[::-1] if length else sizes), 5)

    program = export(module, (example(9, 3),), dynamic_shapes={"x": {length: L, batch: B}})
    assert list(module.state_dict()) == before and list(program.state_dict) == before
    assert "forward" not in vars(module.layer)
    eager = program.module()
    torch.export.save(program, tmp_path / "model.pt2")
    loaded = load_exported(tmp_path / "model.pt2")
    graph, weights = import_exported(loaded, "model", {})
    assert graph.ranges == {"L": (1, 64), "B": (1, 8)}
    for sizes in ((1, 1), (4, 2), (17, 1)):
        x = example(*sizes)
        assert_same(module, graph, weights, (x,))
        torch.testing.assert_close(eager(x), module(x))


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_first_states(kind: str) -> None:
    module = Tagger(kind).eval()

    def example(length: int) -> tuple[Any, Any]:
        state = torch.randn(1, 2, 6)
        return torch.randn(length, 2, 5), (state, state * 2) if kind == "LSTM" else state

    axes = ({}, {}) if kind == "LSTM" else {}
    program = export(module, example(9), dynamic_shapes=({0: L}, axes))
    graph, weights = imported(program)
    for length in (1, 6):
        assert_same(module, graph, weights, example(length))


def test_one_sequence_without_a_batch() -> None:
    module = Tagger("LSTM").eval()
    graph, weights = imported(export(module, (torch.randn(9, 5),), dynamic_shapes=({0: L},)))
    assert_same(module, graph, weights, (torch.randn(4, 5),))


def test_cells() -> None:
    class Cells(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.gru = torch.nn.LSTMCell(5, 6), torch.nn.GRUCell(5, 6)

        def forward(self, x: Any, h: Any, c: Any) -> Any:
            return self.lstm(x, (h, c)), self.gru(x, h)

    def example(batch: int) -> tuple[Any, ...]:
        return torch.randn(batch, 5), torch.randn(batch, 6), torch.randn(batch, 6)

    torch.manual_seed(0)
    module = Cells().eval()
    graph, weights = imported(export(module, example(3), dynamic_shapes=({0: B},) * 3))
    assert_same(module, graph, weights, example(5))


def test_pooling_over_a_dynamic_length() -> None:
    module = torch.nn.Sequential(torch.nn.MaxPool1d(3, 2, 1), torch.nn.MaxPool1d(2)).eval()
    length = torch.export.Dim("length", min=8, max=64)
    graph, weights = imported(export(module, (torch.randn(2, 4, 9),), dynamic_shapes=({2: length},)))
    for size in (8, 9, 10, 11, 12, 13):
        assert_same(module, graph, weights, (torch.randn(2, 4, size),))


@pytest.mark.long
def test_fused_attention() -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    module = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    with torch.no_grad():  # where PyTorch would take its fused operator
        program = export(module, (torch.randn(2, 9, 8),), dynamic_shapes=({1: L},))
    graph, weights = imported(program)
    assert_same(module, graph, weights, (torch.randn(2, 5, 8),))


class _Windows(torch.nn.Module):
    """Windows of an image that attend within themselves, of which this image has one."""

    def __init__(self) -> None:
        super().__init__()
        self.projection = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return [b, 4, 8] of the same."""
        q, k, v = x.reshape(-1, 4, 1, 2, 4).permute(2, 0, 3, 1, 4).expand(3, -1, -1, -1, -1)
        scores = (q @ k.mT).view(x.shape[0], 1, 2, 4, 4)
        y = scores.view(-1, 2, 4, 4).softmax(-1) @ v
        return self.projection(y.transpose(1, 2).reshape(-1, 4, 8))


def test_an_example_of_one_image_with_one_window() -> None:
    """PyTorch's function of a product took the image for a constant where it was taken apart."""
    module = _Windows().eval()
    program = export(module, (torch.randn(1, 4, 8),), dynamic_shapes=({0: torch.export.Dim("B", max=8)},))
    graph, weights = imported(program)
    for size in (1, 3, 8):
        assert_same(module, graph, weights, (torch.randn(size, 4, 8),))


def test_an_example_of_one_that_pytorch_takes_for_a_constant() -> None:
    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.own = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.own(x)

    shapes = ({0: torch.export.Dim("B", min=1, max=8)},)
    with pytest.raises(ModelError, match=r"suggests B = 1, as in the example; try one where B is 2 or more"):
        export(Attention().eval(), (torch.randn(1, 4, 8),), dynamic_shapes=shapes)


def test_names_of_dimensions() -> None:
    class Nested(torch.nn.Module):
        def forward(self, x: Any, rest: Any, *, more: Any) -> Any:
            return x + rest["a"][0], more * 2

    S = torch.export.Dim("S", min=1, max=9)
    x = torch.randn(4, 5)
    program = export(
        Nested().eval(),
        (x, {"a": [torch.randn(4, 5)]}),
        {"more": torch.randn(7)},
        dynamic_shapes={"x": {0: B}, "rest": {"a": [(B, None)]}, "more": {0: S}},
    )
    assert set(dimension_names(program).values()) == {"B", "S"}
    graph, _ = imported(program)
    assert graph.ranges == {"B": (1, 8), "S": (1, 9)}


def test_names_of_derived_dimensions() -> None:
    h = torch.export.Dim("h", min=1, max=8)
    module = torch.nn.MaxPool2d(2).eval()
    program = export(module, (torch.randn(2, 3, 8, 6),), dynamic_shapes=({2: 4 * h},))
    graph, weights = imported(program)
    assert graph.ranges == {"h": (1, 8)} and str(graph.inputs["input"].shape[2]) == "4*h"
    for size in (4, 12):
        assert_same(module, graph, weights, (torch.randn(2, 3, size, 6),))


class Differences(torch.nn.Module):
    """Inputs in a list and by name, beside a parameter and a buffer, each with a factor of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.own = torch.nn.Parameter(torch.randn(3, 4))
        self.register_buffer("cache", torch.zeros(3, 4))

    def forward(self, x: Any, rest: Any, z: Any = None) -> Any:
        """Return differences."""
        y, *more = rest
        found = x - 2 * y + self.own * 3 - self.cache * 5
        for number, one in enumerate(more):
            found = found + one["in"] * (7 + number)
        return found if z is None else found - z * 11


def _one_tensor(module: Any) -> dict[str, tuple[tuple[Any, ...], dict[str, Any]]]:
    """Calls that pass one tensor more than once, or the module's own."""
    o = torch.ones(3, 4)
    return {
        "twice": ((o, [o]), {}),
        "nested": ((o, [o, {"in": o}, {"in": o}]), {}),
        "by name": ((torch.ones(3, 4), [o]), {"z": o}),
        "a parameter": ((module.own, [o]), {}),
        "a buffer": ((o, [module.cache]), {}),
        "views": ((o[:], [o, {"in": module.cache[:]}]), {"z": o[1]}),
    }


@pytest.mark.parametrize("kind", _one_tensor(Differences()))
def test_one_tensor_as_the_example_of_several_inputs(kind: str, tmp_path: Path) -> None:
    """PyTorch's export knows tensors by identity, and reads the last of such inputs for all of them."""
    module = Differences().eval()
    args, kwargs = _one_tensor(module)[kind]
    graph, weights = imported(export(module, args, kwargs))
    others = torch.utils._pytree.tree_map(torch.randn_like, (args, kwargs))
    assert_same(module, graph, weights, *others)
    torch.export.save(torch.export.export(module, args, kwargs), tmp_path / "m.pt2")
    saved = load_exported(tmp_path / "m.pt2")
    with pytest.raises(ModelError, match=r"export(ed)? (again )?by dietcode\.export") as caught:
        imported(saved)
    is_guarded = kind == "views"  # by sizes of what the example is a view of
    assert ("takes them for one" in str(caught.value)) != is_guarded


@pytest.mark.parametrize("is_own", [False, True])
def test_inputs_that_are_not_read(is_own: bool, tmp_path: Path) -> None:
    """An example of zeros, as BatchNorm's unread count of batches may be."""

    class Unread(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("number", torch.zeros(3))

        def forward(self, x: Any, y: Any, z: Any) -> Any:
            return x + 1

    o = torch.zeros(3)
    for args in ((torch.ones(3), o, o), (o, torch.ones(3), torch.ones(3))):
        program = (export if is_own else torch.export.export)(Unread().eval(), args)
        torch.export.save(program, tmp_path / "m.pt2")
        if is_own or args[1] is o:
            imported(load_exported(tmp_path / "m.pt2"))
        else:  # nobody can tell it from the buffer itself
            with pytest.raises(ModelError, match=r"^x: its example is number of the model, unread; PyTorch"):
                imported(load_exported(tmp_path / "m.pt2"))


class Unpatched(torch.nn.Module):
    """Images of patches of 2 by 2, put together by a composite operator that has no rule of its own."""

    def forward(self, x: Any) -> Any:
        """Return an image twice as large."""
        n, _, height, width = x.shape
        patches = torch.einsum("nchw,kc->nhwk", x, torch.ones(12, 6)).reshape(n, height, width, 2, 2, 3)
        return torch.einsum("nhwpqc->nchpwq", patches).reshape(n, 3, 2 * height, 2 * width)


def test_a_saved_program_of_derived_dimensions_is_taken_apart(tmp_path: Path) -> None:
    h = torch.export.Dim("h", min=1, max=8)
    module = Unpatched().eval()
    program = export(module, (torch.randn(2, 6, 4, 6),), dynamic_shapes=({0: B, 2: 2 * h},))
    torch.export.save(program, tmp_path / "model.pt2")
    graph, weights = import_exported(load_exported(tmp_path / "model.pt2"), "model", {})
    assert graph.ranges == {"B": (1, 8), "h": (1, 8)}
    for batch, height in ((1, 2), (3, 10)):
        assert_same(module, graph, weights, (torch.randn(batch, 6, height, 6),))


class Written(torch.nn.Module):
    """Takes a tensor and a list of them under names that PyTorch writes in small letters or not at all."""

    def forward(self, L: Any, pastStates: Any, *, biasOf: Any) -> Any:
        """Return a sum."""
        return L + pastStates[0] * pastStates[1] + biasOf


@pytest.mark.parametrize("own", [torch.export.export, export], ids=["torch", "dietcode"])
def test_arguments_have_the_names_that_their_author_wrote(own: Any, tmp_path: Path) -> None:
    x, dims = torch.randn(3, 4), {0: L}
    shapes = {"L": dims, "pastStates": [dims, dims], "biasOf": None}
    args = (x, [x + 1, x + 2])
    program = own(Written().eval(), args, {"biasOf": x[0]}, dynamic_shapes=shapes)
    torch.export.save(program, tmp_path / "model.pt2")
    graph, _ = import_exported(load_exported(tmp_path / "model.pt2"), "model", {})
    assert next(iter(graph.inputs)) == "L" and list(graph.inputs)[-1] == "biasOf"
    assert graph.signature["names"] == ["L", "pastStates"]
    assert list(graph.ranges) == ["L_0" if own is torch.export.export else "L"], "an input's axis, or a Dim"
    found = flatten_arguments(graph.signature, (), {"pastStates": [1, 2], "L": 3, "biasOf": 4})
    assert (found["L"], found["biasOf"]) == (3, 4)
    narrower, _ = import_exported(load_exported(tmp_path / "model.pt2"), "model", {"L.0": (2, 5)})
    assert list(narrower.ranges.values()) == [(2, 5)]


def test_refusals() -> None:
    class Fixed(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.reshape(9, -1) + x.new_ones(x.shape[0], 1).reshape(9, 1)

    with pytest.raises(ModelError, match=r"in training mode; call model\.eval"):
        export(Tagger("LSTM"), (torch.randn(3, 2, 5),))
    with pytest.raises(ModelError, match=r"^torch.export: .* guard 9 <= L"):
        export(Fixed().eval(), (torch.randn(9, 4),), dynamic_shapes=({0: L},))


class _Steered(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        """Return what depends on a value."""
        return x if x.sum() > 0 else x * 2


def test_a_failed_export_is_one_line(capfd: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    """What PyTorch writes beside its exception, a graph among it, is for those who ask for its logs."""
    monkeypatch.delenv("TORCH_LOGS", raising=False)
    line = inspect.getsourcelines(_Steered.forward)[1] + 2
    for _ in range(2):
        with pytest.raises(ModelError, match=rf"values of tensors \({HERE}:{line}\)") as caught:
            export(_Steered().eval(), (torch.ones(3),))
        assert "\n" not in str(caught.value)
        written = capfd.readouterr()
        assert not written.out and not written.err
    assert type(caught.value.__cause__).__name__ == "GuardOnDataDependentSymNode"
    monkeypatch.setenv("TORCH_LOGS", "dynamic")
    with pytest.raises(ModelError):
        export(_Steered().eval(), (torch.ones(3),))
    assert "def forward" in capfd.readouterr().err
