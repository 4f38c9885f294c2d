"""Models that PyTorch's two exporters of ONNX write: read and lowered, beside eager PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_runs import run_graph, torch
from kernel_runs import lowered, model_of
from needs import of_extra
from onnx_runs import export_onnx, read
from test_example_models import SIZES, example_of
from test_lowered_models import HEAVY

from dietcode.graph.extent import parse_extent

pytest.importorskip("onnxscript", reason=of_extra("dev"))

# The exporter, and how many calls of kernels of each kind are among others.
CASES: dict[tuple[str, bool], dict[str, int]] = {
    ("bert", True): {"attention": 2, "dense": 4},
    ("bert", False): {"attention": 2, "dense": 4},
    ("llama", True): {"attention": 2, "rmsnorm": 1},
    ("lstm", False): {"dense": 3},  # the head has its log_softmax within
    ("mlp", False): {"einsum": 5},
    ("resnet", False): {"conv2d": 12},
    ("unet", False): {"conv2d": 11},
    ("vit", False): {"attention": 2},
    ("whisper", False): {"attention": 2, "conv1d": 2},
}
_LONG = {("bert", False), ("llama", True), ("unet", False), ("vit", False), ("whisper", False)}
RANGES = {"P": (0, 128)}


def _export(name: str, dynamo: bool, folder: Path) -> tuple[Any, Any, Path]:
    example = example_of(name)
    model = example.build().eval()
    dims = example.dynamic_shapes()
    path = export_onnx(model, example.example_args(), dims, folder / f"{name}.onnx", dynamo=dynamo)
    return example, model, path


@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize(
    ("name", "dynamo"),
    [pytest.param(*case, marks=pytest.mark.long if case in _LONG else ()) for case in CASES],
    ids=str,
)
@pytest.mark.filterwarnings("ignore")  # the exporters warn of themselves
def test_exports(name: str, dynamo: bool, tmp_path: Path) -> None:
    example, model, path = _export(name, dynamo, tmp_path)
    texts = {dim.__name__ for one in example.dynamic_shapes() for dim in (one or {}).values()}
    dims = {name for text in texts for name in parse_extent(text).variables}  # "4*h" has h
    graph, weights = read(path, **{dim: RANGES.get(dim, (1, 128)) for dim in dims})
    made = lowered(graph)
    host = {step["host"] for step in made.description["steps"] if "host" in step and not step.get("view")}
    assert not host & HEAVY
    kinds = [call.kind for calls in made.calls.values() for call in calls]
    wanted = CASES[name, dynamo]
    assert {kind: kinds.count(kind) for kind in wanted} == wanted
    compiled = model_of(made, weights)
    torch.manual_seed(1)
    for sizes in SIZES[name]:
        args = example.example_args(*sizes)
        with torch.no_grad():
            rights = torch.utils._pytree.tree_leaves(model(*args))
        given = dict(zip(graph.inputs, (one.numpy() for one in args), strict=True))
        for results in (run_graph(graph, weights, given), torch.utils._pytree.tree_leaves(compiled(*args))):
            for own, right in zip(results, rights, strict=True):
                assert tuple(own.shape) == tuple(right.shape)
                largest = float(right.abs().max()) if right.numel() else 1.0
                np.testing.assert_allclose(
                    own, right.numpy(), rtol=0, atol=1e-4 * largest, err_msg=f"{sizes}"
                )
