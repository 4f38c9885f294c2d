"""A depthwise convolution in NHWC, as code with its channels in vectors takes it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from dietcode.search_space.access import ONE, ZERO, view_of
from dietcode.search_space.problem import AnyProblem, Problem, Window, problem_from_spec
from dietcode.workload.spec import Spec
from dietcode.workload.text import clip


@dataclass(frozen=True)
class DepthwiseProblem(Problem):
    """A convolution of each channel by itself, ``Y[m, c] = Σ_k X[m under k, c] · F[c, k]`` at positions m.

    The same as `Problem`, with the channels as columns, which the row operand has too, and without a batch:
    the packed kernel is ``[channels // lanes, k, lanes]``.
    """

    form: ClassVar[str] = "depthwise"

    @property
    def spatial(self) -> tuple[Window, ...]:
        """The windows over the last row indices, outer first; of a single element where none slides."""
        kernels = self.reduction[:-1]
        outputs = self.rows[-len(kernels) :]
        sliding = {window.output: window for window in self.windows}
        return tuple(
            sliding.get(output, Window(output, output, kernel))
            for output, kernel in zip(outputs, kernels, strict=True)
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain data, which `from_json` reads."""
        return {"form": self.form} | super().to_json()

    def _check_roles(self) -> None:
        roles = (*self.rows, *self.columns, *self.reduction)
        given = (self.batch, self.rows, self.columns, self.reduction)
        if not _fits(self) or len(set(roles)) != len(roles):
            raise ValueError(f"batch, rows, columns, reduction {clip(given)} of {clip(self.indices)}")


def _fits(problem: Problem) -> bool:
    """Whether channels are the columns of all tensors, and windows slide along the last rows."""
    reduction, rows = set(problem.reduction), set(problem.rows)
    row = set(problem.role_indices(problem.row_operand))
    column = set(problem.role_indices(problem.column_operand))
    sizes = [problem.extents.get(index) for index in (*problem.columns, *problem.reduction)]
    return (
        not problem.batch
        and len(problem.columns) == 2 <= len(problem.reduction) <= len(problem.rows)
        and None not in sizes
        and problem.extents[problem.columns[1]] == problem.extents[problem.reduction[-1]] == 1
        and {w.output for w in problem.windows} <= set(problem.rows[1 - len(problem.reduction) :])
        and column == {*problem.columns, *problem.reduction}
        and {problem.columns[0], *rows} <= row <= {problem.columns[0], *rows, *reduction}
        and problem.indices[problem.row_operand][-2:] == problem.columns[0] + problem.reduction[-1]
        and set(problem.indices[problem.output]) == rows | set(problem.columns)
    )


def with_channels_as_columns(problem: AnyProblem) -> AnyProblem:
    """Return a depthwise convolution in NHWC as such, and any other problem as it is.

    A contraction has its groups as a batch, so that its vectors would hold one channel each.
    """
    if problem.form != Problem.form or len(problem.batch) != 1 or len(problem.columns) != 1:
        return problem
    values = {field.name: getattr(problem, field.name) for field in fields(problem)}
    values |= {"batch": (), "columns": (*problem.batch, *problem.columns)}
    found = DepthwiseProblem(**values)
    is_convolution = set(problem.splits.values()) == {
        problem.batch[0] + problem.reduction[-1],
        problem.batch[0] + problem.columns[0],
    }
    return found if is_convolution and _fits(found) and _whole_vectors(found) else problem


def _whole_vectors(problem: DepthwiseProblem) -> bool:
    """Whether channels are contiguous in the output, and contiguous or alike in the epilogue's tensors."""
    names = [stage.tensor for stage in problem.stages if stage.tensor is not None]
    strides = [view_of(problem, name).stride(problem.columns) for name in names]
    output = view_of(problem, problem.output).stride(problem.columns)
    return output == ONE and all(stride in {ONE, ZERO} for stride in strides)


def depthwise_from_spec(spec: Spec) -> AnyProblem:
    """Return the problem of a spec's convolution, with its channels as columns where it is depthwise."""
    return with_channels_as_columns(problem_from_spec(spec))
