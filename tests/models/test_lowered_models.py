"""The models of examples/models, rewritten, grouped and lowered: kernels by PyTorch, beside eager PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from graph_runs import imported, torch
from kernel_runs import lowered, model_of
from test_example_models import SIZES, example_of, in_turn

from dietcode.models.exporting import export

# What the host may compute beside views: positions, masks and what is small; never a product or a window.
HEAVY = {"matmul", "linear", "attention", "conv", "max_pool", "avg_pool", "softmax", "layernorm", "rmsnorm"}
LEFT_TO_THE_HOST: dict[str, set[str]] = {}


@pytest.mark.parametrize("name", in_turn(as_graphs=False))
def test_examples(name: str) -> None:
    example = example_of(name)
    model = example.build().eval()
    torch.manual_seed(1)
    program = export(model, example.example_args(), dynamic_shapes=example.dynamic_shapes())
    graph, weights = imported(program)
    made = lowered(graph)
    host = {step["host"] for step in made.description["steps"] if "host" in step and not step.get("view")}
    assert host & HEAVY == LEFT_TO_THE_HOST.get(name, set())
    compiled = model_of(made, weights)
    for sizes in SIZES[name]:
        args = example.example_args(*sizes)
        with torch.no_grad():
            wanted = torch.utils._pytree.tree_leaves(model(*args))
        found = torch.utils._pytree.tree_leaves(compiled(*args))
        assert len(found) == len(wanted)
        for own, right in zip(found, wanted, strict=True):
            assert own.shape == right.shape and own.dtype == right.dtype
            if right.numel():
                largest = float(right.double().abs().max())
                np.testing.assert_allclose(
                    own, right, rtol=0, atol=1e-4 * max(largest, 1e-6), err_msg=f"{sizes}"
                )
