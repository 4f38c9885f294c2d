"""What cannot be compiled is refused by name, all at once, and with the line of the model's source."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_runs import exported, imported, torch

from dietcode.errors import ModelError, ShapeError
from dietcode.models.exporting import export
from dietcode.models.importing.dimensions import name_dimensions
from dietcode.models.importing.exported import import_exported, load_exported
from dietcode.runtime.host_operators import HOST

Dim = torch.export.Dim
L = Dim("L", min=1, max=64)
HERE = "/".join(Path(__file__).parts[-2:])


class Module(torch.nn.Module):
    """A function beside a buffer and a layer."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("cache", torch.zeros(9, 4))
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x: Any) -> Any:
        """Return what the function does."""
        return self.function(self, x)


def _changes_a_buffer(self: Module, x: Any) -> Any:
    self.cache.add_(1.0)
    return x + self.cache.sum()


def _copies_into_a_buffer(self: Module, x: Any) -> Any:
    y = torch.relu(x)
    self.cache[1:, :2].copy_(y[1:, :2])
    return y


def _changes_a_parameter(self: Module, x: Any) -> Any:
    self.norm.weight.add_(1.0)
    return x + self.norm.weight


def _changes_an_input(self: Module, x: Any) -> Any:
    x.mul_(2.0)
    return x + 1


def _unknown(self: Module, x: Any) -> Any:
    y = torch.special.bessel_j0(x)
    return y + torch.linalg.inv(x[:4].mT @ x[:4])[0] + torch.special.bessel_j1(x)


def _truths_and_numbers(self: Module, x: Any) -> Any:
    return x[x[:, 0] > 0, torch.zeros(1, dtype=torch.int64)]


def _truths_behind(self: Module, x: Any) -> Any:
    return torch.stack((x, x))[:, x > 0]


def _integer_of_values(self: Module, x: Any) -> Any:
    return torch.zeros(x.argmax().item() + 1)


def _cut(self: Module, x: Any) -> Any:
    return torch.nn.functional.pad(x[None], (-1, 2), mode="replicate")


def _random(self: Module, x: Any) -> Any:
    return x + torch.rand_like(x)


@pytest.mark.sampled(keep=4)
@pytest.mark.parametrize(
    ("function", "problems"),
    [
        (
            _changes_a_buffer,
            [f"changes buffer cache ({HERE}:", " in place", "give it as an input of the next call"],
        ),
        (_copies_into_a_buffer, [f"changes buffer cache ({HERE}:"]),
        (_changes_a_parameter, [f"changes parameter norm.weight ({HERE}:"]),
        (_changes_an_input, [f"changes input x ({HERE}:"]),
        (
            _unknown,
            ["aten.special_bessel_j0.default: not known", "aten.special_bessel_j1", "inv", f"({HERE}:"],
        ),
        (_truths_and_numbers, ["aten.index.Tensor: an index by truth values beside others", f"({HERE}:"]),
        (_truths_behind, ["aten.index.Tensor: an index by truth values that are not first", f"({HERE}:"]),
        (_integer_of_values, ["depends on values", f"({HERE}:"]),
        (_cut, ["padding that takes elements away", f"({HERE}:"]),
        (_random, ["aten.rand_like.default: not known", f"({HERE}:"]),
    ],
)
def test_refusals(function: Callable[..., Any], problems: list[str]) -> None:
    with torch.no_grad():  # with gradients PyTorch itself refuses to change a parameter
        program = exported(Module(function), (torch.ones(9, 4),))
    with pytest.raises(ModelError) as error:
        imported(program)
    for problem in problems:
        assert problem in str(error.value)
    assert "\n" not in str(error.value)


class _Changing(torch.nn.Module):
    """Changes two buffers at lines of its own, one of them by assigning to it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("last", torch.zeros(9, 4))

    def forward(self, x: Any) -> Any:
        """Return something of both."""
        y = x + self.last
        rows = self.last.view(4, 9)
        rows[1] = 0.0
        self.count = self.count + y.sum()
        return y * self.count


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of PyTorch's own decomposition
@pytest.mark.parametrize("functional", [False, True])
def test_lines_of_changes(functional: bool) -> None:
    """Each with its own line, also where a program no longer has the node that changed it in place."""
    program = exported(_Changing().eval(), (torch.ones(9, 4),))
    program = program.run_decompositions({}) if functional else program
    lines, first = inspect.getsourcelines(_Changing.forward)
    count, last = (
        first + next(at for at, line in enumerate(lines) if text in line)
        for text in ("self.count = ", "rows[1] = ")
    )
    with pytest.raises(
        ModelError, match=rf"changes buffer count \({HERE}:{count}\), buffer last \({HERE}:{last}\) in"
    ):
        imported(program)


def test_training_mode() -> None:
    def function(self: Module, x: Any) -> Any:
        return torch.nn.functional.dropout(self.norm(x), 0.5, training=True)

    module = Module(function)
    with torch.no_grad():
        program = torch.export.export(module.train(), (torch.ones(9, 4),))
    with pytest.raises(ModelError, match=r"^norm\..*: of a model in training mode; call model\.eval\(\)"):
        imported(program)
    module = Module(lambda self, x: torch.nn.functional.dropout(x, 0.5, training=True))
    with pytest.raises(ModelError, match=r"dropout.*call model\.eval\(\)"):
        imported(exported(module, (torch.ones(9, 4),)))


def test_dimensions_without_bounds() -> None:
    module = Module(lambda self, x: x + 1)
    program = exported(module, (torch.ones(9, 4),), ({0: Dim("L")},))
    with pytest.raises(ModelError, match=r"x_0 \(x.0\): no upper bound; .* --range x_0=1..512"):
        imported(program)
    graph, _ = imported(program, x_0=(1, 512))
    assert graph.ranges == {"x_0": (1, 512)}
    name_dimensions(program, {"x.0": "L"})
    graph, _ = import_exported(program, "model", {"x.0": (2, 100)})
    assert graph.ranges == {"L": (2, 100)} and str(graph.inputs["x"].shape[0]) == "L"


@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize(
    ("ranges", "problem"),
    [
        ({"x_0": (1, 65)}, r"--range x_0=1..65: outside of what the model was exported for; allowed: 1..64"),
        ({"x_0": (0, 5)}, "allowed: 1..64"),
        ({"x_0": (9, 5)}, "allowed: 1..64"),
        ({"K": (1, 5)}, "--range 'K': no dimension of the model; allowed: x_0, x.0"),
    ],
)
def test_ranges(ranges: dict[str, tuple[int, int]], problem: str) -> None:
    program = exported(Module(lambda self, x: x + 1), (torch.ones(9, 4),), ({0: L},))
    with pytest.raises(ModelError, match=problem):
        imported(program, **ranges)


@pytest.mark.parametrize(
    ("export_", "dim", "wanted", "problem"),
    [
        (
            exported,
            Dim("L", min=2, max=9),
            {"x_1": (1, 8)},
            '; for others, export again: dietcode.export with Dim("x_1", min=1, max=8)',
        ),
        (exported, Dim.DYNAMIC, {"x_1": (1, 8)}, "allowed: 2..…; for others, export again"),
        (exported, 2 * Dim("h", min=1, max=9), {}, None),
        (
            export,
            Dim("L", min=2, max=9),
            {"L": (1, 8)},
            "--range L=1..8: outside of what the model was exported for; allowed: 2..9",
        ),
        (export, Dim("L", min=2, max=9), {"L": (2, 10)}, 'Dim("L", min=2, max=10)'),
        (export, 2 * Dim("h", min=2, max=4), {"h": (1, 4)}, "allowed: 2..4"),
        (export, 2 * Dim("h", min=1, max=4), {"h": (0, 4)}, "allowed: 1..4"),
    ],
)
def test_ranges_that_the_branches_of_an_export_do_not_hold_for(
    export_: Any, dim: Any, wanted: dict[str, tuple[int, int]], problem: str | None
) -> None:
    """The way of ``if L > 1`` that an export with a min of 2 keeps was taken for L = 1 too."""
    program = export_(
        Module(lambda self, x: x * 2 if x.shape[1] > 1 else x * 3).eval(),
        (torch.ones(3, 6),),
        dynamic_shapes=({1: dim},),
    )
    if problem is None:
        assert list(imported(program, **wanted)[0].ranges.values()) == [(2, 9)]
    else:
        with pytest.raises(ModelError) as caught:
            imported(program, **wanted)
        assert problem in str(caught.value)


def test_dimensions_that_turned_constant() -> None:
    program = exported(Module(lambda self, x: x + 1), (torch.ones(9, 4),))
    name_dimensions(program, {"x.0": "L"})
    with pytest.raises(ModelError, match=r"made constant: L \(x.0\) is always 9; change the code"):
        imported(program)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(ModelError, match=r"model\.pt2: no program of torch\.export: .*write it by torch"):
        load_exported(path)


def test_positions_outside() -> None:
    """A position outside of an axis is an error of the call, not a read of other memory."""
    x = np.zeros((3, 4), np.float32)
    for operator, operands, axis in (
        ("take", [x, np.array([[1, 4]])], 1),
        ("take_along", [x, np.array([[1, -5]])], 1),
        ("take_points", [x, np.array([0]), np.array([7])], 1),
        ("scatter_along", [x, np.array([[1, -5]]), np.zeros((1, 2))], 1),
        ("scatter_points", [x, np.zeros(1), np.array([0]), np.array([7])], 1),
    ):
        with pytest.raises(ShapeError, match=rf"^{operator}: position .* along axis 1 of 4 .*: -4 to 3$"):
            HOST[operator](operands, {"axis": axis, "by": "add"})


def test_what_depends_on_a_refused_size_is_not_listed() -> None:
    def function(self: Module, x: Any) -> Any:
        counts = torch.bincount(x[:, 0].long(), minlength=3)
        return counts[: x.shape[0]].float(), torch.zeros(counts.shape[0]) + 1, torch.linalg.det(x[:4])

    program = exported(Module(function), (torch.ones(9, 4),), ({0: Dim("L", min=4, max=64)},))
    with pytest.raises(ModelError) as caught:
        imported(program)
    problems = str(caught.value).split(": ", 1)[1].split("; ")
    assert len([one for one in problems if HERE in one]) == 2 and "bincount" in problems[0]


def test_a_weight_whose_name_pytorch_s_own_module_has() -> None:
    class Quantizer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("code", torch.randn(5, 4))

        def forward(self, x: Any) -> Any:
            return torch.instance_norm(x[None] @ self.code.mT, None, None, None, None, True, 0.1, 1e-5, False)

    with pytest.raises(ModelError, match=r"attribute 'code' already exists.*; rename that weight"):
        imported(exported(Quantizer(), (torch.randn(3, 4),), ({0: L},)))


def test_a_dimension_that_becomes_a_constant_is_no_silent_one(tmp_path: Path) -> None:
    """PyTorch learns that a size is not 1 where slices are written, so that 1…2 is 2 to it."""

    def writes_a_slice(_: Module, x: Any) -> Any:
        y = x.clone()
        y[..., 2:] = y[..., 2:].clamp(max=1.0)
        return y

    for most in (2, 3):
        b = Dim("B", min=1, max=most)
        program = torch.export.export(
            Module(writes_a_slice).eval(), (torch.zeros(2, 5, 4),), dynamic_shapes=({0: b},)
        )
        name_dimensions(program, {"x.0": "B"})
        torch.export.save(program, tmp_path / "m.pt2")  # a program that was loaded has checks of its ranges
        program = load_exported(tmp_path / "m.pt2")
        if most == 2:
            with pytest.raises(ModelError, match=r"B, of 1…2, became 2 .* --range B=1\.\.2 narrows"):
                import_exported(program, "m", {})
        else:
            graph, _ = import_exported(program, "m", {})
            assert graph.ranges == {"B": (1, 3)}
