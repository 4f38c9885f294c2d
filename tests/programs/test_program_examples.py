"""The programs of examples/programs: run by the interpreter, kernels by PyTorch, beside eager ones."""

from __future__ import annotations

from typing import Any

import pytest
from needs import of_extra
from program_runs import FOLDER, PlanRun, as_torch, assert_same, example_of, native_program

from dietcode.programs.lowest import LOWEST
from dietcode.programs.modeling import model_of
from dietcode.programs.planning import plan_program

torch: Any = pytest.importorskip("torch", reason=of_extra("bench"))
# Arguments of each example's `build`, those of its `samples`, and how many kernels each block is.
EXAMPLES: dict[str, tuple[dict[str, Any], dict[str, int], dict[str, int]]] = {
    "beam_search": (
        {"hidden": 12, "words": 9, "longest": 4},
        {"hidden": 12},
        {"block0": 2},
    ),
    "birnn": (
        {"hidden": 12, "words": 9, "tags": 5},
        {"words": 9},
        {"block0": 1, "block1": 1, "block2": 1},
    ),
    "drnn": ({"hidden": 12}, {"hidden": 12}, {"block0": 1, "block1": 2, "block2": 1, "block3": 1}),
    "early_exit": ({"width": 16, "heads": 2, "layers": 3}, {"width": 16, "length": 6}, {"block0": 8}),
    "mv_rnn": (
        {"hidden": 8, "words": 9},
        {"words": 9},
        {"block0": 2, "block1": 10, "block1-lowest": 6},
    ),
    "nested_rnn": (
        {"hidden": 12, "words": 9},
        {"words": 9},
        {"block0": 1, "block1": 1},
    ),
    "rnn_transducer": (
        {"hidden": 12, "frame": 7, "labels": 6, "blank": 1.0},
        {"frame": 7, "longest": 8},
        {"block0": 2, "block1": 1, "block2-first": 1, "block2": 1},
    ),
    "stack_rnn": (
        {"hidden": 12, "words": 9},
        {"words": 9},
        {"block0": 1, "block1": 1, "block2": 1, "block3": 1},
    ),
    "tree_lstm": (
        {"hidden": 12, "words": 9},
        {"words": 9},
        {"block0": 1, "block1": 1, "block1-lowest": 1},
    ),
}


def test_all_are_tried() -> None:
    assert sorted(EXAMPLES) == sorted(path.stem for path in FOLDER.glob("*.py"))


@pytest.mark.sampled(keep=6)
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_form_computes_what_the_text_says(name: str) -> None:
    options, how, kernels = EXAMPLES[name]
    module = example_of(name)
    program, samples = module.build(**options), module.samples(6, **how)
    model, weights = model_of(program, samples[:4], name)
    plan = plan_program(model, {})
    run = PlanRun(plan, weights)
    form = run.form_run()
    found = run.run(samples, form)
    native = native_program(plan, weights)
    for own, other, one in zip(found, native(samples), samples, strict=True):
        assert_same(own, program.eager(one), of_tensors=True)
        assert_same(as_torch(other), program.eager(one), of_tensors=True)
    # Kernels are tuned for the buckets that the interpreter counts: they have to be those of the machine.
    names = [one["name"] for one in plan.description["blocks"]]
    counted = [(names[block], rows) for _, _, block, rows in form.buckets]
    ran = [(one.block.removesuffix(LOWEST), one.rows) for one in native.block_runs(samples)]
    assert ran == counted
    assert {one["name"]: one["kernels"] for one in plan.facts["blocks"]} == kernels
