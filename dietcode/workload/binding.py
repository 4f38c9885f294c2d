"""The plan by which the shapes of a call's tensors determine the shape variables. Needs no pydantic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dietcode.errors import LibraryError
from dietcode.workload.quotient import Dim
from dietcode.workload.text import clip


@dataclass(frozen=True)
class BindStep:
    """Solve ``dim_text == shape(tensor)[axis]`` for `variable`; every other variable in it is known by then.

    Parameters
    ----------
    variable : str
        The shape variable found.
    tensor : str
        Name of an operand.
    axis : int
        Axis of that operand, from 0.
    dim_text : str
        Canonical text of a `DimExpr` that is linear in `variable`.
    """

    variable: str
    tensor: str
    axis: int
    dim_text: str


@dataclass(frozen=True)
class BindingPlan:
    """The order in which shape variables become known: first `keywords`, then `steps`.

    Parameters
    ----------
    steps : tuple of BindStep
        In the order in which to take them.
    keywords : tuple of str
        Shape variables that the call passes by keyword, because no shape determines them.
    """

    steps: tuple[BindStep, ...]
    keywords: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain data that `from_json` reads."""
        steps = [
            {"variable": step.variable, "tensor": step.tensor, "axis": step.axis, "dim": step.dim_text}
            for step in self.steps
        ]
        return {"steps": steps, "keywords": list(self.keywords)}

    @classmethod
    def from_json(cls, data: object) -> BindingPlan:
        """Read what `to_json` wrote.

        Raises
        ------
        LibraryError
            `data` is anything else.
        """
        if not isinstance(data, dict) or set(data) != {"steps", "keywords"}:
            raise LibraryError(f"bindings: given {clip(data)}; allowed: a mapping of steps and keywords")
        steps, keywords = data["steps"], data["keywords"]
        if not isinstance(steps, list) or not isinstance(keywords, list):
            raise LibraryError("bindings: steps and keywords must be lists")
        if not all(isinstance(name, str) for name in keywords):
            raise LibraryError(f"bindings.keywords: given {clip(keywords)}; allowed: names")
        return cls(tuple(_read_step(step) for step in steps), tuple(keywords))


def _read_step(data: object) -> BindStep:
    kinds = {"variable": str, "tensor": str, "axis": int, "dim": str}
    if not isinstance(data, dict) or set(data) != set(kinds):
        raise LibraryError(f"bindings.steps: given {clip(data)}; allowed: {', '.join(kinds)}")
    for name, kind in kinds.items():
        if type(data[name]) is not kind:
            raise LibraryError(f"bindings.steps: {name} is {clip(data[name])}; allowed: {kind.__name__}")
    if data["axis"] < 0:
        raise LibraryError(f"bindings.steps: axis is {data['axis']}; allowed: from 0")
    return BindStep(data["variable"], data["tensor"], data["axis"], data["dim"])


def plan_bindings(
    tensors: Mapping[str, str], dims: Mapping[str, Dim], variables: Sequence[str]
) -> BindingPlan:
    """Plan how a call determines the shape variables.

    Greedy: take the first dimension in which one variable is left unknown and linear. Where there is none,
    the first unknown variable becomes a keyword, and the search goes on: of ``m: A + B`` only A is asked for.

    Parameters
    ----------
    tensors : mapping of str to str
        Indices of each operand, one letter an axis.
    dims : mapping of str to DimExpr or QuotientDim
        Extent of each index.
    variables : sequence of str
        Every shape variable, in declaration order.

    Examples
    --------
    ``Y[16T, N] = X[16T, K] · W[N, K]ᵀ``:

    >>> from dietcode.workload.expr import DimExpr
    >>> dims = {"m": DimExpr.parse("16*T", "m"), "n": DimExpr.parse(8, "n"), "k": DimExpr.parse(4, "k")}
    >>> plan_bindings({"X": "mk", "W": "nk"}, dims, ["T"]).steps
    (BindStep(variable='T', tensor='X', axis=0, dim_text='16*T'),)
    """
    steps: list[BindStep] = []
    keywords: list[str] = []
    unknown = list(variables)
    while unknown:
        step = _next_step(tensors, dims, unknown)
        if step is None:
            keywords.append(unknown.pop(0))
        else:
            steps.append(step)
            unknown.remove(step.variable)
    return BindingPlan(tuple(steps), tuple(keywords))


def _next_step(
    tensors: Mapping[str, str], dims: Mapping[str, Dim], unknown: Sequence[str]
) -> BindStep | None:
    for tensor, indices in tensors.items():
        for axis, index in enumerate(indices):
            dim = dims[index]
            left = [name for name in dim.variables if name in unknown]
            if len(left) == 1 and dim.linear_in(left[0]):
                return BindStep(left[0], tensor, axis, str(dim))
    return None
