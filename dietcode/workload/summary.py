"""The summary of a valid spec, for a person who has just written it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from dietcode.workload.binding import plan_bindings
from dietcode.workload.contraction import Contraction
from dietcode.workload.instances import largest_instance, make_instances
from dietcode.workload.sizes import largest_sizes
from dietcode.workload.spec import RangeVariable, Spec


@dataclass(frozen=True)
class RoleGroup:
    """Indices that play one role in the contraction.

    Attributes
    ----------
    role : str
        batch, rows, columns or reduction.
    owner : str
        The operand that has them alone; empty where both have them.
    extents : tuple of (str, str, int)
        Index, its extent as the spec gives it, and that extent at the largest instance.
    """

    role: str
    owner: str
    extents: tuple[tuple[str, str, int], ...]


@dataclass(frozen=True)
class Summary:
    """A spec in figures.

    Attributes
    ----------
    operands : tuple of (str, str)
        Name and indices of each, in the operator's order.
    then : tuple of str
        What is fused at write-back, in this order.
    keywords : tuple of str
        Shape variables that a call passes by name, since no tensor's shape determines them.
    num_instances, num_shapes : int
        What is tuned for, and what the library serves.
    largest : dict
        The instance with the most FLOPs.
    flops, tensor_bytes : float
        Of that one: operations of one call, and bytes of all tensors together.
    """

    operator: str
    output: tuple[str, str]
    operands: tuple[tuple[str, str], ...]
    reduction: str
    then: tuple[str, ...]
    groups: tuple[RoleGroup, ...]
    keywords: tuple[str, ...]
    num_instances: int
    num_shapes: int
    largest: dict[str, int]
    flops: float
    tensor_bytes: float


def summarise(spec: Spec) -> Summary:
    """Summarise a valid spec."""
    sizes, largest = largest_sizes(spec), largest_instance(spec)
    outputs = spec.outputs.items()
    roles = _roles(spec)
    calls = spec.operand_indices | spec.epilogue_tensors
    return Summary(
        operator=str(spec.op),
        output=(", ".join(spec.outputs), "; ".join(", ".join(indices) for _, indices in outputs)),
        operands=tuple((name, ", ".join(indices)) for name, indices in spec.operand_indices.items()),
        reduction=", ".join(_reduction(spec, roles)),
        then=tuple(str(step) for step in spec.op.epilogue),
        groups=_groups(spec, roles, largest),
        keywords=plan_bindings(calls, spec.dims_parsed, spec.variables).keywords,
        num_instances=len(make_instances(spec)),
        num_shapes=_num_shapes(spec),
        largest=largest,
        flops=sizes.flops,
        tensor_bytes=sizes.tensor_bytes,
    )


_Roles = dict[str, tuple[str, Iterable[str]]]


def _roles(spec: Spec) -> _Roles:
    """Return the operand that owns each role, and the indices of the role."""
    if spec.block is not None:
        return {"rows": ("", spec.block.rows), "columns": ("", spec.block.columns)}
    roles = Contraction.from_spec(spec)
    return {
        "batch": ("", roles.batch),
        "rows": (roles.row_operand, roles.rows),
        "columns": (roles.column_operand, roles.columns),
        "reduction": ("", roles.reduction),
    }


def _reduction(spec: Spec, roles: _Roles) -> Iterable[str]:
    """Return the indices of a sum that the operator's own text does not show."""
    return roles["reduction"][1] if "reduction" in roles and spec.convolution is None else ()


def _groups(spec: Spec, roles: _Roles, largest: dict[str, int]) -> tuple[RoleGroup, ...]:
    found = []
    for role, (owner, indices) in roles.items():
        dims = {index: spec.dims_parsed[index] for index in indices}
        extents = tuple((index, str(dim), int(dim.evaluate(largest))) for index, dim in dims.items())
        if extents:
            found.append(RoleGroup(role, owner, extents))
    return tuple(found)


def _num_shapes(spec: Spec) -> int:
    """Shapes in the declared ranges; the library serves them all."""
    ranges = spec.shape_vars.values()
    return math.prod(
        one.max - one.min + 1 if isinstance(one, RangeVariable) else len(one.values) for one in ranges
    )
