"""Programs of many kinds: run by the interpreter, kernels by PyTorch, beside eager ones."""

from __future__ import annotations

from typing import Any

import pytest
from needs import of_extra
from program_runs import PlanRun, assert_same

from dietcode.programs.modeling import model_of
from dietcode.programs.planning import plan_program
from dietcode.programs.recording import Recording

torch: Any = pytest.importorskip("torch", reason=of_extra("bench"))

import everyday_programs  # noqa: E402  (it needs PyTorch)
import further_programs  # noqa: E402
import varied_programs  # noqa: E402

PROGRAMS = {**varied_programs.PROGRAMS, **everyday_programs.PROGRAMS, **further_programs.PROGRAMS}
# What these say is in others too, or in tests of plain Python.
LONG = {
    *("beam_free_search", "chart_parser", "hierarchical_documents", "mutual_recursion", "neural_modules"),
    *("several_dtypes", "sequence_to_sequence"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.long if one in LONG else ()) for one in PROGRAMS]
)
def test_a_program_computes_what_its_text_says(name: str) -> None:
    torch.manual_seed(0)
    program, samples = PROGRAMS[name]()
    recording = Recording(program.function, program.bound)
    wanted = [program.eager(*recording.instance(one)) for one in samples]
    model, weights = model_of(program, samples, name)
    run = PlanRun(plan_program(model, {}), weights)
    found = run.form_run().run([recording.instance(one) for one in samples])
    for own, right in zip(found, wanted, strict=True):
        assert_same(own, right, of_tensors=True)
