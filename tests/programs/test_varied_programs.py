"""Programs of many kinds: run by the interpreter, kernels by PyTorch, beside eager ones."""

from __future__ import annotations

from typing import Any

import pytest
from needs import of_extra
from program_runs import PlanRun, assert_same

from dietcode.programs.modeling import model_of
from dietcode.programs.planning import plan_program

torch: Any = pytest.importorskip("torch", reason=of_extra("bench"))

from varied_programs import PROGRAMS  # noqa: E402  (it needs PyTorch)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_computes_what_its_text_says(name: str) -> None:
    torch.manual_seed(0)
    program, samples = PROGRAMS[name]()
    model, weights = model_of(program, samples, name)
    run = PlanRun(plan_program(model, {}), weights)
    given = [one if isinstance(one, tuple) else (one,) for one in samples]
    found = run.form_run().run([list(one) for one in given])
    for own, one in zip(found, given, strict=True):
        assert_same(own, program.eager(*one))
