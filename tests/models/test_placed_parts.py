"""Parts of a concatenation that are computed in the whole, and those that need memory of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from graph_runs import imported, torch
from kernel_runs import lowered, model_of

from dietcode.errors import LibraryError
from dietcode.models.exporting import export
from dietcode.runtime.models.executable import read_executable

Tensor = Any


class Stacked(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """Layers whose states are joined with older ones and stacked, as a decoder's caches are."""

    def __init__(self, reads: bool = False, gives: bool = False, axis: int = 0, twice: bool = False) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(3))
        self.reads, self.gives, self.axis, self.twice = reads, gives, axis, twice

    def forward(self, x: Tensor, past: Tensor) -> Any:
        found = []
        for number, layer in enumerate(self.layers):
            own = torch.cat([past[number], layer(x)], 1)
            x = torch.softmax(own, 1)[:, -x.shape[1] :] + x
            found.append(own)
        stacked = torch.stack([*found, found[0]] if self.twice else found, self.axis)
        stacked = stacked.cos().sum(0) if self.reads else stacked
        return (x, stacked, found[1]) if self.gives else (x, stacked)


def made_of(model: Any) -> tuple[Any, Any]:
    """The lowered model, and one that can be called."""
    rows, past = torch.export.Dim("L", min=1, max=8), torch.export.Dim("P", min=1, max=9)
    args = (torch.randn(2, 3, 16), torch.randn(3, 2, 4, 16))
    graph, weights = imported(export(model, args, dynamic_shapes=({1: rows}, {2: past})))
    made = lowered(graph)
    return made, model_of(made, weights)


def placed(made: Any) -> list[list[str]]:
    """The parts of each concatenation that copies nothing."""
    return [step["placed"] for step in made.description["steps"] if "placed" in step]


@pytest.mark.parametrize(
    ("options", "num_placed"),
    [
        ({}, 3),
        pytest.param({"reads": True}, 3, marks=pytest.mark.long),
        ({"gives": True}, 0),
        pytest.param({"axis": 1}, 0, marks=pytest.mark.long),
        pytest.param({"twice": True}, 0, marks=pytest.mark.long),
    ],
    ids=str,
)
def test_a_stack_of_what_is_computed(options: dict[str, Any], num_placed: int) -> None:
    torch.manual_seed(0)
    model = Stacked(**options).eval()
    made, compiled = made_of(model)
    assert sum(map(len, placed(made))) == num_placed
    of = made.description["storages"]["of"]
    assert not any(name in of for parts in placed(made) for name in parts)
    kept: list[tuple[Any, Any]] = []
    for length, past in ((3, 4), (1, 9), (8, 1), (3, 4)):
        args = torch.randn(2, length, 16), torch.randn(3, 2, past, 16)
        with torch.no_grad():
            wanted = model(*args)
        kept += zip(compiled(*args), wanted, strict=True)
    for own, right in kept:  # after all calls: none writes to what another one has returned
        np.testing.assert_allclose(own, right, rtol=0, atol=1e-5)


def test_parts_that_have_memory_of_their_own_are_refused() -> None:
    made, _ = made_of(Stacked().eval())
    (step,) = (one for one in made.description["steps"] if "placed" in one)
    for parts in (["x"], step["placed"][:2], [*step["placed"][:2], "past"], step["placed"][:1] * 3):
        step["placed"] = parts
        with pytest.raises(LibraryError, match="with the parts"):
            read_executable(made.description)


@pytest.mark.long
def test_a_part_that_is_larger_than_the_whole_is_refused() -> None:
    made, compiled = made_of(Stacked().eval())
    description = made.description
    (at,) = (at for at, one in enumerate(description["steps"]) if "placed" in one)
    parts, own = description["steps"][at]["placed"], description["outputs"][0]
    description["storages"]["of"][parts[-1]] = 0
    parts[-1] = "large"
    description["values"]["large"] = {"dtype": "float32", "shape": [128, "L", 16]}
    large = {"host": "concat", "operands": [{"value": own}] * 64, "attributes": {"axis": 0}}
    description["steps"].insert(at, large | {"results": ["large"]})
    from dietcode.runtime.models.model import Model

    changed = Model(None, {}, read_executable(description), *compiled._kernels)  # type: ignore[arg-type]
    with pytest.raises(LibraryError, match="'large' does not lie in"):
        changed(torch.randn(2, 3, 16), torch.randn(3, 2, 4, 16))


class Masked(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """The same angles of positions in each layer, and two products that are equal."""

    def forward(self, x: Tensor) -> Any:
        for _ in range(3):
            angles = torch.arange(x.shape[1], dtype=torch.float32).cos()
            x = torch.softmax(x * angles[None, :, None], 1)
        return x.exp(), x.exp() + 1


def test_what_follows_from_shapes_alone_is_computed_once() -> None:
    args, rows = (torch.randn(2, 5, 16),), torch.export.Dim("L", min=1, max=8)
    graph, weights = imported(export(Masked().eval(), args, dynamic_shapes=({1: rows},)))
    made = lowered(graph)
    host = [step["host"] for step in made.description["steps"] if "host" in step and not step.get("view")]
    assert not {"arange", "cos"} & set(host)
    assert [step["host"] for step in made.description["load"]].count("cos") == 1
    for own, right in zip(model_of(made, weights)(*args), Masked()(*args), strict=True):
        np.testing.assert_allclose(own, right, rtol=0, atol=1e-5)
