"""From the form of a problem to its data and right results; a new form is added here. Imports no compiler.

A form is a kind of problem with a space, code and a cost model of its own: a contraction (an einsum or a
convolution), a block of rows, a block with products, attention. Everything else of the pipeline sees
`AnyProblem`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dietcode.errors import SpecError
from dietcode.search_space.attention.problem import AttentionProblem
from dietcode.search_space.depthwise import DepthwiseProblem, depthwise_from_spec
from dietcode.search_space.expected import expect
from dietcode.search_space.problem import AnyProblem, Problem, problem_from_spec
from dietcode.search_space.products.problem import ProductProblem
from dietcode.search_space.rows.expected import expect_rows
from dietcode.search_space.rows.problem import RowProblem
from dietcode.workload.spec import Spec


class Right(Protocol):
    """The right outputs of a problem, or a part of them."""

    def error_of_all(self, outputs: Sequence[Any]) -> float:
        """Return the largest error of any output over the largest value that is known of it; NaN for NaN."""


@dataclass(frozen=True)
class Form:
    """One form of problem.

    Attributes
    ----------
    of_spec : callable
        ``spec -> problem``.
    of_json : callable
        ``plain data -> problem``, the inverse of its ``to_json``; raises KeyError, TypeError or ValueError.
    expect : callable
        ``(problem, arrays, extents, max_flops) -> Right``, in float64 and at most so many FLOPs.
    """

    of_spec: Callable[[Spec], AnyProblem]
    of_json: Callable[[Mapping[str, Any]], AnyProblem]
    expect: Callable[..., Right]


FORMS: dict[str, Form] = {
    Problem.form: Form(problem_from_spec, Problem.from_json, expect),
    ProductProblem.form: Form(ProductProblem.of_spec, ProductProblem.from_json, expect_rows),
    RowProblem.form: Form(RowProblem.of_spec, RowProblem.from_json, expect_rows),
    DepthwiseProblem.form: Form(depthwise_from_spec, DepthwiseProblem.from_json, expect),
    AttentionProblem.form: Form(AttentionProblem.of_spec, AttentionProblem.from_json, expect_rows),
}


def form_named(data: Mapping[str, Any]) -> str:
    """Return the form that plain data of a problem or a micro-kernel name; contractions do not name theirs.

    Raises
    ------
    ValueError
        There is no such form.
    """
    name = data.get("form", Problem.form)
    if name not in FORMS:
        raise ValueError(f"form {str(name)[:40]!r}; allowed: {', '.join(FORMS)}")
    return str(name)


def problem_of(spec: Spec) -> AnyProblem:
    """Return the problem of a spec."""
    return FORMS[Problem.form if spec.block is None else spec.block.form].of_spec(spec)


def problem_from_json(data: Mapping[str, Any]) -> AnyProblem:
    """Read what the ``to_json`` of any problem returns.

    Raises
    ------
    KeyError, TypeError, ValueError
        The data describe no problem; a later version's may have operators or attributes that this one lacks.
    """
    try:
        return FORMS[form_named(data)].of_json(data)
    except SpecError as error:
        raise ValueError(str(error)) from error
