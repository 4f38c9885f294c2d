"""What other threads see of PyTorch while one exports a model."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from graph_runs import assert_same, imported, torch

import dietcode

F, N = torch.nn.functional, torch.export.Dim("N", min=1, max=20)
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence  # noqa: E402


def _elsewhere(function: Callable[[], Any]) -> Any:
    """Return what a function returns in another thread."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def _computed() -> list[Any]:
    """Return what the functions give that an export replaces."""
    packed = pack_padded_sequence(torch.arange(6.0).reshape(2, 3), torch.tensor([3, 1]), batch_first=True)
    theta = torch.tensor([[[2.0, 0, 1], [0, 3, 0]]])
    try:
        torch.distributions.Normal(torch.zeros(2), -torch.ones(2))
        validated = False
    except ValueError:
        validated = True
    sys.stderr.write("heard\n")
    flags = torch.tensor([torch.backends.mha.get_fastpath_enabled(), validated])
    points = torch.arange(60.0).reshape(30, 2)
    return [
        packed.data,
        *pad_packed_sequence(packed),
        F.affine_grid(theta, [1, 1, 2, 3], True),
        torch.cdist(points, points),
        flags,
    ]


class Beside(torch.nn.Module):
    """Lets another thread compute while it is exported."""

    def forward(self, x: Any) -> Any:
        """Return its input, twice."""
        self.found = _elsewhere(_computed)
        sys.stderr.write("quiet\n")
        return x + x


@pytest.mark.filterwarnings("ignore:.*affine_grid:UserWarning")
def test_other_threads_see_pytorch_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    wanted, own, kept = _computed(), Beside().eval(), vars(torch.distributions.Distribution)["_validate_args"]
    capsys.readouterr()
    dietcode.export(own, (torch.ones(3),), dynamic_shapes=({0: N},))
    for found, right in zip(own.found, wanted, strict=True):
        assert torch.equal(found, right)
    assert capsys.readouterr().err == "heard\n"
    assert vars(torch.distributions.Distribution)["_validate_args"] is kept


class Distances(torch.nn.Module):
    """Has a layer and a function that are replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.GRU(4, 4)

    def forward(self, x: Any, y: Any) -> Any:
        """Return distances of states from points."""
        return torch.cdist(self.layer(x)[0], y)


def test_two_threads_export_at_once() -> None:
    """One waits for the other; what both replace is as it was after them."""
    torch.manual_seed(0)
    modules, own = [Distances().eval(), Distances().eval()], torch.cdist
    args = torch.randn(9, 4), torch.randn(7, 4)
    programs: list[Any] = [None, None]

    def export(number: int) -> None:
        programs[number] = dietcode.export(modules[number], args, dynamic_shapes=({0: N}, None))

    threads = [threading.Thread(target=export, args=(number,)) for number in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert torch.cdist is own
    for module, program in zip(modules, programs, strict=True):
        graph, weights = imported(program)
        for size in (1, 20):
            assert_same(module, graph, weights, (torch.randn(size, 4), args[1]))
