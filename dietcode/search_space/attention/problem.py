"""Attention as code generation takes it: softmax(scale · Q·Kᵀ + mask)·V, in one pass over the keys."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dietcode.workload.dtypes import STORAGE
from dietcode.workload.field_checks import MAX_EXTENT
from dietcode.workload.text import clip

_DTYPE = "float32"
_FLOAT_BYTES = 4
MAX_HEAD = 1024
"""Largest extent of what a score is added up over, and of what the result has for each query."""
FLOPS_OF_SOFTMAX = 5  # of a score: scale or mask, maximum, difference, exponential, sum


@dataclass(frozen=True, eq=False)
class AttentionProblem:
    """``O[g, r, e] = Σ_k softmax_k(scale · Σ_d Q[g, r, d] · K[g, k, d] + mask) · V[g, k, e]``.

    Attributes
    ----------
    inputs : tuple of str
        Tensors that a kernel reads, in argument order.
    outputs : tuple of str
        The result alone.
    query, key, value : str
        Names of Q, K and V.
    mask : str or None
        Name of what is added to the scores: a tensor of some indices of `groups` and `rows`, then `keys` or not.
    indices : dict of str to str
        Of every tensor and the result, outer first; those of Q and K end with `depth`, the others but the
        mask with `width`.
    groups : tuple of str
        Indices that all of Q, K, V and the result have.
    rows : tuple of str
        Indices of Q and the result alone: queries, and heads that share keys.
    keys, depth, width : str
        The index of the softmax; that of a score's sum; the last one of the result, which may be `depth` again.
    scale : float
        Of the scores.
    causal : str or None
        The index of `rows` whose positions see no later key; the last position sees all.
    extents : dict of str to int or None
        Extent of each index; None where it is known only at run time.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    query: str
    key: str
    value: str
    mask: str | None
    indices: dict[str, str]
    groups: tuple[str, ...]
    rows: tuple[str, ...]
    keys: str
    depth: str
    width: str
    scale: float
    causal: str | None
    extents: dict[str, int | None]

    form: ClassVar[str] = "attention"
    batch: ClassVar[tuple[str, ...]] = ()
    windows: ClassVar[tuple[Any, ...]] = ()
    column_operand: ClassVar[str | None] = None
    column_operand_constant: ClassVar[bool] = False

    @property
    def output(self) -> str:
        """Name of the result."""
        return self.outputs[0]

    @property
    def columns(self) -> tuple[str, ...]:
        """The index along which the scores of a query lie."""
        return (self.keys,)

    @property
    def reduction(self) -> tuple[str, ...]:
        """Indices that the result lacks."""
        return (self.keys,)

    @property
    def head(self) -> tuple[int, int]:
        """Extents of `depth` and `width`."""
        depth, width = self.extents[self.depth], self.extents[self.width]
        assert depth is not None and width is not None
        return depth, width

    @property
    def dynamic(self) -> tuple[str, ...]:
        """Indices whose extents are arguments of a kernel, in alphabetical order."""
        return tuple(sorted(index for index, extent in self.extents.items() if extent is None))

    def dtype(self, tensor: str) -> str:
        """Return the dtype in which callers hold `tensor`."""
        return _DTYPE

    def storage(self, tensor: str) -> np.dtype[Any]:
        """Return the dtype in which generated code holds `tensor`."""
        return STORAGE[_DTYPE]

    def shape(self, tensor: str, extents: Mapping[str, Any]) -> list[Any]:
        """Return the shape of `tensor`."""
        return [extents[index] for index in self.indices[tensor]]

    def product(self, indices: tuple[str, ...], extents: Mapping[str, Any]) -> Any:
        """Return the product of the extents of `indices`: scalars or arrays; 1 without indices."""
        result: Any = 1
        for index in indices:
            result = result * extents[index]
        return result

    def sizes(self, extents: Mapping[str, Any]) -> tuple[Any, Any, Any, Any]:
        """Return the extents of the roles that all problems have: ``(groups, rows, keys, 1)``."""
        groups, rows = self.product(self.groups, extents), self.product(self.rows, extents)
        return groups, rows, extents[self.keys], 1

    def scores(self, extents: Mapping[str, Any]) -> Any:
        """Return how many scores are not hidden by `causal`, as floats: scalars or arrays."""
        groups, rows, keys, _ = self.sizes(extents)
        if self.causal is None:
            return 1.0 * groups * rows * keys
        queries = extents[self.causal]
        seeing = np.minimum(queries, keys)  # position i of the last `seeing` ones sees keys - i keys
        return groups * (rows / queries) * (seeing * keys - seeing * (seeing - 1.0) / 2)

    def flops(self, extents: Mapping[str, Any]) -> Any:
        """Return the operations of all scores that are not hidden, as floats: scalars or arrays."""
        depth, width = self.head
        return self.scores(extents) * (2.0 * depth + 2.0 * width + FLOPS_OF_SOFTMAX)

    def num_bytes(self, extents: Mapping[str, Any]) -> Any:
        """Return the bytes of all tensors once: what a call moves at least."""
        names = (*self.inputs, *self.outputs)
        return sum(1.0 * _FLOAT_BYTES * self.product(tuple(self.indices[n]), extents) for n in names)

    def to_json(self) -> dict[str, Any]:
        """Return plain data, which `from_json` reads."""
        return {
            "form": self.form,
            "inputs": list(self.inputs),
            "outputs": list(self.outputs),
            "query": self.query,
            "key": self.key,
            "value": self.value,
            "mask": self.mask,
            "subscripts": dict(self.indices),
            "groups": list(self.groups),
            "rows": list(self.rows),
            "keys": self.keys,
            "depth": self.depth,
            "width": self.width,
            "scale": self.scale,
            "causal": self.causal,
            "extents": dict(self.extents),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> AttentionProblem:
        """Read what `to_json` returns.

        Raises
        ------
        KeyError, TypeError, ValueError
            The data describe no problem.
        """
        mask, causal = data["mask"], data["causal"]
        problem = cls(
            inputs=tuple(str(name) for name in data["inputs"]),
            outputs=tuple(str(name) for name in data["outputs"]),
            query=str(data["query"]),
            key=str(data["key"]),
            value=str(data["value"]),
            mask=None if mask is None else str(mask),
            indices={str(name): str(indices) for name, indices in data["subscripts"].items()},
            groups=tuple(str(k) for k in data["groups"]),
            rows=tuple(str(k) for k in data["rows"]),
            keys=str(data["keys"]),
            depth=str(data["depth"]),
            width=str(data["width"]),
            scale=float(data["scale"]),
            causal=None if causal is None else str(causal),
            extents={str(k): None if v is None else operator.index(v) for k, v in data["extents"].items()},
        )
        problem.check()
        return problem

    def check(self) -> None:
        """Refuse what no spec lowers to.

        Raises
        ------
        ValueError
            Names, indices and extents do not fit together.
        """
        tensors = [self.query, self.key, self.value, *([] if self.mask is None else [self.mask])]
        if sorted(self.inputs) != sorted(tensors) or len(self.outputs) != 1:
            raise ValueError(
                f"inputs {clip(self.inputs)}, outputs {clip(self.outputs)}; allowed: {clip(tensors)}, one"
            )
        groups, rows = set(self.groups), set(self.rows)
        wanted = {
            self.query: groups | rows | {self.depth},
            self.key: groups | {self.keys, self.depth},
            self.value: groups | {self.keys, self.width},
            self.output: groups | rows | {self.width},
        }
        if set(self.indices) != {*self.inputs, self.output}:
            raise ValueError(f"subscripts of {clip(sorted(self.indices))}; allowed: of {clip(self.inputs)}")
        for name, own in self.indices.items():
            last = {self.query: self.depth, self.key: self.depth, self.mask: ""}.get(name, self.width)
            if name == self.mask:
                fits = set(own) <= groups | rows | {self.keys} and self.keys not in own[:-1]
            else:
                fits = set(own) == wanted[name] and own.endswith(last)
            if not fits or len(set(own)) != len(own):
                raise ValueError(f"subscripts {clip(own)} of {clip(name)}; allowed: of {clip(self.extents)}")
        every = (*self.groups, *self.rows, self.keys)
        if len(set(every)) != len(every) or {self.depth, self.width} & set(every):
            raise ValueError(f"groups {clip(self.groups)}, rows {clip(self.rows)}, keys {clip(self.keys)}")
        if self.causal is not None and self.causal not in self.rows:
            raise ValueError(f"causal {clip(self.causal)}; allowed: one of {clip(self.rows)}")
        if set(self.extents) != {*every, self.depth, self.width}:
            raise ValueError(f"extents of {clip(sorted(self.extents))}; allowed: of {clip(every)}")
        for index, extent in self.extents.items():
            is_head = index in (self.depth, self.width)
            most = MAX_HEAD if is_head else MAX_EXTENT
            if (extent is None and is_head) or (extent is not None and not 1 <= extent <= most):
                raise ValueError(f"extent {clip(extent)} of {index}; allowed: 1 to {most}")
