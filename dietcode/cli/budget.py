"""``--trials`` and ``--seconds``: the budget of a spec, for this run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dietcode.errors import RequestError, SpecError

if TYPE_CHECKING:
    from dietcode.workload.spec import Spec

Trials = Annotated[int | None, typer.Option("--trials", help="Most candidates to measure, over the spec's.")]
Seconds = Annotated[
    float | None, typer.Option("--seconds", help="Most seconds of measuring, over the spec's.")
]


def with_budget(spec: Spec, trials: int | None, seconds: float | None) -> Spec:
    """Return a spec with another budget where one is given.

    Raises
    ------
    RequestError
        It is out of range.
    """
    from dietcode.workload.parse import spec_from_data

    given = {name: value for name, value in (("trials", trials), ("seconds", seconds)) if value is not None}
    if not given:
        return spec
    data = spec.to_json()
    try:
        return spec_from_data(data | {"budget": data["budget"] | given})
    except SpecError as error:
        raise RequestError(f"--{error.field.removeprefix('budget.')}: {error.problem}") from None
