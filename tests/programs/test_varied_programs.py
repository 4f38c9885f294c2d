"""Programs of many kinds, beside eager ones: by the machine in C and the interpreter, kernels by PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
from needs import of_extra
from program_runs import PlanRun, as_torch, assert_same, native_program

from dietcode.errors import ProgramError
from dietcode.programs.interpreter import InstanceError
from dietcode.programs.modeling import model_of
from dietcode.programs.planning import plan_program
from dietcode.programs.recording import Recording

torch: Any = pytest.importorskip("torch", reason=of_extra("bench"))

import customary_programs  # noqa: E402  (it needs PyTorch)
import dict_programs  # noqa: E402
import everyday_programs  # noqa: E402
import functional_programs  # noqa: E402
import further_programs  # noqa: E402
import idiomatic_programs  # noqa: E402
import ordinary_programs  # noqa: E402
import plain_programs  # noqa: E402
import searching_programs  # noqa: E402
import set_programs  # noqa: E402
import throwing_programs  # noqa: E402
import varied_programs  # noqa: E402

PROGRAMS: dict[str, Any] = {
    **varied_programs.PROGRAMS,
    **everyday_programs.PROGRAMS,
    **further_programs.PROGRAMS,
    **functional_programs.PROGRAMS,
    **idiomatic_programs.PROGRAMS,
    **plain_programs.PROGRAMS,
    **dict_programs.PROGRAMS,
    **searching_programs.PROGRAMS,
    **ordinary_programs.PROGRAMS,
    **set_programs.PROGRAMS,
    **customary_programs.PROGRAMS,
    **throwing_programs.PROGRAMS,
}
# What these say is in others too, or in tests of plain Python.
LONG = {
    *("beam_free_search", "chart_parser", "hierarchical_documents", "mutual_recursion", "neural_modules"),
    *("several_dtypes", "sequence_to_sequence", "variants_by_methods", "usual_attention"),
    *("best_splits", "alpha_beta", "penalised_text", "hops_of_retrieval", "neighbours", "cheapest_path"),
    *("checked_draft", "adaptive_steps", "likeliest_tags", "clusters", "transition_parser", "cached_answers"),
    *("mv_rnn", "nested_rnn"),  # as in examples/programs
    *("attention_decoder", "teacher_forcing", "gated_graph", "module_called_with_decisions"),
    *("beams_by_key", "two_experts", "letters_of_words", "cheapest_first", "stack_of_tuples", "defaults"),
    *("attention_over_what_was_seen", "layers_that_are_counted", "merged_beams", "words_by_dict"),
}


@pytest.mark.sampled(keep=46)
@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.long if one in LONG else ()) for one in PROGRAMS]
)
def test_a_program_computes_what_its_text_says(name: str) -> None:
    torch.manual_seed(0)
    program, samples, *further = PROGRAMS[name]()
    given = [*samples, *(further[0] if further else [])]
    recording = Recording(program.function, program.bound)
    wanted = [_eager(program, recording.instance(one)) for one in given]
    model, weights = model_of(program, samples, name)
    plan = plan_program(model, {})
    instances = [recording.instance(one) for one in given]
    compiled = native_program(plan, weights)(
        [tuple(one) if len(one) > 1 else one[0] for one in instances], errors="return"
    )
    interpreted = PlanRun(plan, weights).form_run().run([recording.taken(one) for one in given])
    for own, other, right in zip(compiled, interpreted, wanted, strict=True):
        if isinstance(right, Exception):
            assert isinstance(own, ProgramError)
            assert isinstance(other, InstanceError)
        else:
            assert_same(as_torch(own), right, of_tensors=True)
            assert_same(other, right, of_tensors=True)
    assert not all(isinstance(one, Exception) for one in wanted)


def _eager(program: Any, instance: list[Any]) -> Any:
    """Return what a program gives, or how it fails."""
    try:
        return program.eager(*instance)
    except (KeyError, IndexError, ValueError, RuntimeError) as error:
        return error
