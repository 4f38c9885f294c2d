"""Attention as code generation takes it: softmax(scale · f(Q·Kᵀ) + mask)·V, in one pass over the keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from dietcode.errors import SpecError
from dietcode.search_space.block_problem import BlockProblem
from dietcode.workload.attention import (
    MAX_HEAD,
    AttentionPlan,
    attention_flops,
    is_attention,
    num_scores,
    plan_attention,
)
from dietcode.workload.expansion import Primitive, expand
from dietcode.workload.text import clip


@dataclass(frozen=True, eq=False)
class AttentionProblem(BlockProblem):
    """Two products and a softmax between them, as `plan` says.

    `rows` are the groups and rows of the plan, in the order of the result; `columns` its last index.
    """

    form: ClassVar[str] = "attention"

    @cached_property
    def plan(self) -> AttentionPlan:
        """What each tensor and index is."""
        return plan_attention(self.nodes, self.indices, self.outputs)

    @cached_property
    def functions(self) -> tuple[Primitive, ...]:
        """What is computed of each product of a query and a key, each after its operands."""
        return expand({name: self.nodes[name] for name in self.plan.functions}, self.indices)

    @cached_property
    def added(self) -> tuple[str, ...]:
        """Tensors that are read for each score: by functions, and the mask."""
        return (*self.plan.reads, *(() if self.plan.mask is None else (self.plan.mask,)))

    @property
    def reduction(self) -> tuple[str, ...]:
        """Indices that the result lacks."""
        return (self.plan.keys,)

    @cached_property
    def head(self) -> tuple[int, int]:
        """Extents of what a score is summed over, and of the result of a query."""
        depth, width = self.extents[self.plan.depth], self.extents[self.plan.width]
        assert depth is not None and width is not None
        return depth, width

    def sizes(self, extents: Mapping[str, Any]) -> tuple[Any, Any, Any, Any]:
        """Return ``(groups, rows of a group, elements of a row of the result, keys)``."""
        groups, rows = self.product(self.plan.groups, extents), self.product(self.plan.rows, extents)
        return groups, rows, self.head[1], extents[self.plan.keys]

    def num_scores(self, extents: Mapping[str, Any]) -> Any:
        """Return how many scores `causal` does not hide, as floats: scalars or arrays."""
        return num_scores(self.plan, extents)

    def flops(self, extents: Mapping[str, Any]) -> Any:
        """Return the operations of all scores that are not hidden, as floats: scalars or arrays."""
        return attention_flops(self.plan, dict(extents) | self._heads())

    def _heads(self) -> dict[str, int]:
        return dict(zip((self.plan.depth, self.plan.width), self.head, strict=True))

    def _check_form(self) -> None:
        if not is_attention(self.nodes):
            raise ValueError(f"nodes {clip(list(self.nodes))}; allowed: an einsum of a softmax")
        try:
            plan = self.plan
        except SpecError as error:
            raise ValueError(str(error)) from error
        used = {index for own in self.indices.values() for index in own}
        if used != set(self.extents):
            raise ValueError(f"extents of {clip(sorted(self.extents))}; allowed: of {clip(sorted(used))}")
        if self.columns != (plan.width,) or set(self.rows) != set(plan.groups + plan.rows):
            raise ValueError(f"rows {clip(self.rows)}, columns {clip(self.columns)}")
        for index in (plan.depth, plan.width):
            if not 1 <= (self.extents[index] or 0) <= MAX_HEAD:
                raise ValueError(f"extent {clip(self.extents[index])} of {index}; allowed: 1 to {MAX_HEAD}")
        if self.constants:
            raise ValueError(f"constants {clip(self.constants)}; allowed: none")
