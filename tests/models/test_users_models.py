"""Models as users of PyTorch write them, small: kernels by PyTorch, beside eager PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from graph_runs import imported, torch
from kernel_runs import lowered, model_of

import dietcode
from dietcode.runtime.models.executable import HostStep
from dietcode.runtime.models.model import Model

Dim, nn, F = torch.export.Dim, torch.nn, torch.nn.functional


def compiled(module: Any, args: tuple[Any, ...], shapes: Any) -> Model:
    """Return the model of a module, exported as users do."""
    graph, weights = imported(dietcode.export(module.eval(), args, dynamic_shapes=shapes))
    return model_of(lowered(graph), weights)


def assert_calls(module: Any, model: Model, calls: Sequence[tuple[Any, ...]]) -> None:
    """Compare calls, each made twice, with eager PyTorch: 1e-4 of the largest element."""
    for args in [*calls, *calls]:
        with torch.no_grad():
            wanted = torch.utils._pytree.tree_leaves(module(*args))
        found = torch.utils._pytree.tree_leaves(model(*args))
        for own, right in zip(found, wanted, strict=True):
            assert own.shape == right.shape and own.dtype == right.dtype
            if right.numel():
                scale = max(1e-6, float(right.double().abs().max()))
                np.testing.assert_allclose(own, right, rtol=0, atol=1e-4 * scale)


class Recommender(nn.Module):
    """Bags of rows of tables beside dense features, and the products of all pairs, as DLRM has them."""

    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(20, 4, mode="sum") for _ in range(2))
        self.dense, self.top = nn.Linear(5, 4), nn.Linear(4 + 3, 1)
        pairs = [(i, j) for i in range(3) for j in range(i)]
        self.register_buffer("first", torch.tensor([i for i, _ in pairs]))
        self.register_buffer("second", torch.tensor([j for _, j in pairs]))

    def forward(self, x: Any, offsets: Any, positions: Sequence[Any]) -> Any:
        """Return a probability for each row."""
        x = F.relu(self.dense(x))
        rows = [bag(own, offsets[k]) for k, (bag, own) in enumerate(zip(self.bags, positions, strict=True))]
        both = torch.cat([x, *rows], dim=1).view(x.size(0), -1, x.size(1))
        products = torch.bmm(both, both.transpose(1, 2))[:, self.first, self.second]
        return torch.sigmoid(self.top(torch.cat([x, products], dim=1)))


@pytest.mark.thorough
def test_a_batch_of_one_of_bags() -> None:
    """PyTorch's program says of two dimensions together what it says of one: that it is at least 2."""
    batch, length = Dim("B", min=1, max=8), Dim("L", min=1, max=12)

    def args(rows: int, count: int) -> tuple[Any, ...]:
        offsets = torch.randint(0, count + 1, (2, rows)).sort(1).values
        offsets[:, 0] = 0
        return torch.randn(rows, 5), offsets, [torch.randint(0, 20, (count,)) for _ in range(2)]

    torch.manual_seed(0)
    module = Recommender()
    model = compiled(module, args(3, 7), ({0: batch}, {1: batch}, [{0: length}] * 2))
    assert_calls(module, model, [args(*size) for size in ((1, 1), (8, 12), (1, 12), (5, 2))])


class Head(nn.Module):
    """The most likely class of each position, and the logarithms of all probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self.classes = nn.Linear(6, 12)

    def forward(self, x: Any) -> Any:
        """Return logarithms of probabilities, and classes."""
        found = F.log_softmax(self.classes(x), dim=-1)
        return found, found.argmax(-1)


def test_log_softmax_is_a_kernel() -> None:
    module = Head()
    shapes = ({0: Dim("B", min=1, max=3), 1: Dim("L", min=1, max=9)},)
    model = compiled(module, (torch.randn(2, 4, 6),), shapes)
    host = {step.operator for step in model.executable.all_steps if isinstance(step, HostStep)}
    assert host <= {"argmax", "reshape"}
    assert_calls(module, model, [(torch.randn(*size, 6) * 30,) for size in ((1, 1), (3, 9), (2, 4))])
    hidden = torch.full((1, 2, 6), -torch.inf)
    assert torch.isnan(model(hidden)[0]).all() and torch.isnan(module(hidden)[0]).all()


def test_functions_of_many_angles_are_kernels() -> None:
    class Angles(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.cos(x) * 2 + torch.sin(x) + torch.floor(x) - torch.ceil(x) / torch.round(x.abs() + 1)

    model = compiled(Angles(), (torch.randn(3, 300),), ({0: Dim("B", min=1, max=200)},))
    assert not [step for step in model.executable.all_steps if isinstance(step, HostStep)]
    assert_calls(Angles(), model, [(torch.randn(rows, 300) * 40,) for rows in (1, 200, 7)])


class Response(nn.Module):
    """A block of ConvNeXt V2: its response is normalised by the norms of whole images."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(4, 4, 7, padding=3, groups=4)
        self.norm, self.wide, self.narrow = nn.LayerNorm(4), nn.Linear(4, 8), nn.Linear(8, 4)
        self.scale = nn.Parameter(torch.randn(1, 1, 1, 8))

    def forward(self, x: Any) -> Any:
        """Return images of the same shape."""
        y = F.gelu(self.wide(self.norm(self.depthwise(x).permute(0, 2, 3, 1))))
        size = torch.norm(y, p=2, dim=(1, 2), keepdim=True)
        y = self.scale * (y * (size / (size.mean(dim=-1, keepdim=True) + 1e-6))) + y
        return x + self.narrow(y).permute(0, 3, 1, 2)


def test_images_of_one_point() -> None:
    """PyTorch's program says of a product of sizes that it is more than 1, a case of its own to PyTorch."""
    batch, height, width = (Dim(name, min=1, max=5) for name in "BHW")
    torch.manual_seed(0)
    module = Response()
    model = compiled(module, (torch.randn(2, 4, 3, 4),), ({0: batch, 2: height, 3: width},))
    assert_calls(
        module,
        model,
        [(torch.randn(b, 4, h, w),) for b, h, w in ((1, 1, 1), (5, 5, 5), (2, 1, 4), (1, 3, 1))],
    )


def test_tensors_in_any_layout() -> None:
    shapes = ({0: Dim("B", min=1, max=3), 1: Dim("L", min=1, max=9)},)
    model = compiled(Head(), (torch.randn(2, 4, 6),), shapes)
    turned = torch.randn(6, 5, 3).permute(2, 1, 0)
    wanted = model(turned.contiguous())
    for given in (turned, turned.numpy(), torch.randn(3, 10, 6)[:, ::2].copy_(turned)):
        for own, right in zip(model(given), wanted, strict=True):
            np.testing.assert_array_equal(own, right)


class Same(nn.Conv2d):
    """A convolution whose padding follows from the size, so that the result is the input over the stride."""

    def forward(self, x: Any) -> Any:
        """Return images of a half of the size, rounded up."""
        pads = []
        for size, window, stride in zip(x.shape[:1:-1], self.kernel_size, self.stride, strict=True):
            most = max((-(-size // stride) - 1) * stride + window - size, 0)
            pads += [most // 2, most - most // 2]
        return F.conv2d(F.pad(x, pads), self.weight, self.bias, self.stride)


@pytest.mark.thorough
def test_padding_that_follows_from_the_size() -> None:
    """As of the EfficientNets that came from TensorFlow."""
    height, width = Dim("H", min=3, max=21), Dim("W", min=3, max=21)
    torch.manual_seed(0)
    module = nn.Sequential(Same(3, 4, 3, 2), nn.SiLU(), Same(4, 4, 5, 2))
    model = compiled(module, (torch.randn(1, 3, 9, 12),), ({2: height, 3: width},))
    (result,) = model.executable.outputs
    assert len(str(model.executable.type_of(result))) < 100
    assert_calls(module, model, [(torch.randn(1, 3, *size),) for size in ((3, 3), (21, 21), (4, 9), (15, 8))])


class BestPath(nn.Module):
    """Viterbi's algorithm over the transitions of a CRF, forwards and backwards."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Linear(6, 5)
        self.transitions = nn.Parameter(torch.randn(5, 5))

    def forward(self, x: Any, mask: Any) -> tuple[Any, Any]:
        """Return the best score and its tags, [b, l]."""

        def step(best: Any, given: Any) -> tuple[Any, Any]:
            own, here = given
            value, before = (best[:, :, None] + self.transitions).max(1)
            return torch.where(here[:, None], value + own, best), before

        def back(tag: Any, given: Any) -> tuple[Any, Any]:
            before, here = given
            return torch.where(here, before.gather(1, tag[:, None])[:, 0], tag), tag.clone()

        steps = self.scores(x).transpose(0, 1), mask.transpose(0, 1)
        last, before = torch._higher_order_ops.scan(step, torch.zeros(x.shape[0], 5), steps)
        best, tag = last.max(-1)
        _, tags = torch._higher_order_ops.scan(back, tag, (before, steps[1]), reverse=True)
        return best, tags.T


@pytest.mark.thorough
def test_the_best_path_of_a_crf() -> None:
    """PyTorch looked for gradients of whole numbers that a loop beside parameters gives."""
    batch, length = Dim("B", min=1, max=3), Dim("L", min=1, max=9)

    def args(rows: int, count: int) -> tuple[Any, Any]:
        return torch.randn(rows, count, 6), torch.arange(count) < torch.randint(1, count + 1, (rows, 1))

    torch.manual_seed(0)
    module = BestPath()
    model = compiled(module, args(2, 5), ({0: batch, 1: length},) * 2)
    assert_calls(module, model, [args(*size) for size in ((1, 1), (3, 9), (1, 2), (3, 1))])
