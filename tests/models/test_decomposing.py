"""Decompositions that are made sooner are those that PyTorch makes."""

from __future__ import annotations

import re
from typing import Any

import pytest
from needs import of_extra

torch: Any = pytest.importorskip("torch", reason=of_extra("models"))

from torch.export import exported_program  # noqa: E402

from dietcode.models.importing import decomposing, exported  # noqa: E402

KEYS = ("_BACKEND_KEYS_TO_OVERRIDE", "_AUTOGRAD_ALIAS_BACKEND_KEYS_TO_OVERRIDE")


class Several(torch.nn.Module):  # type: ignore[misc]
    """Composite operators that stay, some that are views, and one of a table."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 24)
        self.norm = torch.nn.LayerNorm(8)
        self.running = torch.nn.BatchNorm1d(8)

    def forward(self, x: Any) -> Any:
        q, k, v = self.linear(self.norm(x)).reshape(-1, 2, 24).chunk(3, dim=-1)
        found = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        kept = torch.nn.functional.dropout(found.flatten(0, 1), 0.5, self.training)
        return torch.nn.functional.gelu(self.running(kept)).to(torch.float64).square()


@pytest.fixture(scope="module")
def program() -> Any:
    rows = torch.export.Dim("rows", min=2, max=50)
    return torch.export.export(
        Several().eval(), (torch.zeros(6, 8),), dynamic_shapes=({0: 2 * rows},), strict=False
    )


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")  # PyTorch's own; importing a program lets none through
@pytest.mark.parametrize("names", [(), ("aten.linear.default", "aten.scaled_dot_product_attention.default")])
def test_the_program_is_the_same(program: Any, names: tuple[str, ...]) -> None:
    table = torch.export.default_decompositions()
    own = {operator: table[operator] for operator in table if str(operator) in names}
    assert len(own) == len(names)
    before = [list(getattr(exported_program, name)) for name in KEYS]
    found, right = decomposing.run_decompositions(program, own), program.run_decompositions(own)
    assert str(found.graph) == str(right.graph)
    assert str(found.graph_signature) == str(right.graph_signature)
    assert [getattr(exported_program, name) for name in KEYS] == before
    x = torch.randn(10, 8)
    assert torch.equal(found.module()(x), right.module()(x))


class TakenApart(torch.nn.Module):  # type: ignore[misc]
    """Operators that are taken apart into others that are taken apart in turn."""

    def forward(self, x: Any) -> Any:
        apart = torch.nn.functional.huber_loss(x, x.flip(0), reduction="none")
        return torch.logaddexp2(apart, torch.nn.functional.mish(x)).std(dim=1), torch.trace(x[:4, :4])


def numbered(program: Any) -> str:
    """Its nodes, called by their numbers: later passes call them anew."""
    numbers = {node.name: number for number, node in enumerate(program.graph.nodes)}
    return re.sub(r"(?<=[%(])[a-z]\w*", lambda name: str(numbers.get(name[0], name[0])), str(program.graph))


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
def test_one_pass_takes_apart_what_several_do(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = torch.export.Dim("rows", min=4, max=50)
    program = torch.export.export(TakenApart(), (torch.zeros(6, 8),), dynamic_shapes=({0: rows},))
    right = exported._decomposed_step_by_step(program)
    passes: list[int] = []

    def counted(program: Any, table: Any) -> Any:
        passes.append(len(table))
        return decomposing.run_decompositions(program, table)

    monkeypatch.setattr(exported, "run_decompositions", counted)
    found = exported._decomposed(program)
    assert len(passes) == 1
    assert numbered(found) == numbered(right) != numbered(program)
    exported._decomposed_step_by_step(program)
    assert len(passes) > 3  # the first, and two at least


class Seen:
    """A program that looks at the keys while it is decomposed, and fails."""

    state_dict: dict[str, Any]
    constants: dict[str, Any]

    def __init__(self) -> None:
        self.graph_module = torch.nn.Module()
        self.state_dict, self.constants = {"weight": torch.zeros(2)}, {"shape": torch.zeros(2, device="meta")}
        self.keys: list[list[Any]] = []

    def run_decompositions(self, _: Any) -> Any:
        self.keys = [list(getattr(exported_program, name)) for name in KEYS]
        raise ValueError("no")


def test_other_devices_keep_all_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [list(getattr(exported_program, name)) for name in KEYS]
    seen = Seen()
    with pytest.raises(ValueError, match="no"):
        decomposing.run_decompositions(seen, {})
    for few, many in zip(seen.keys, whole, strict=True):
        assert 0 < len(few) < len(many) and set(few) <= set(many)
    assert [list(getattr(exported_program, name)) for name in KEYS] == whole
    monkeypatch.setattr(decomposing, "_key_of", {"cpu": "CPU"}.get)
    with pytest.raises(ValueError, match="no"):
        decomposing.run_decompositions(seen, {})
    assert seen.keys == whole
