"""Attention in NumPy, written from the definition; compiled code is compared with it in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dietcode.search_space.attention.problem import AttentionProblem

FloatArray = npt.NDArray[np.float64]


def attention_reference(problem: AttentionProblem, arrays: Mapping[str, Any]) -> FloatArray:
    """Compute attention in float64.

    Parameters
    ----------
    arrays : mapping of str to array
        The inputs by tensor name; others are ignored.
    """
    return compute(problem, {n: np.asarray(arrays[n], dtype=np.float64) for n in problem.inputs})


def compute(problem: AttentionProblem, arrays: Mapping[str, Any]) -> Any:
    """Compute attention in the precision of the arrays."""
    indices = problem.indices
    scores = "".join((*problem.groups, *problem.rows, problem.keys))
    query, key, value = (arrays[name] for name in (problem.query, problem.key, problem.value))
    with np.errstate(all="ignore"):
        z = np.einsum(f"{indices[problem.query]},{indices[problem.key]}->{scores}", query, key)
        z = z * np.asarray(problem.scale, dtype=z.dtype)
        if problem.mask is not None:
            own = indices[problem.mask]
            order = [own.index(index) for index in scores if index in own]
            mask = np.transpose(arrays[problem.mask], order)
            z = z + mask[tuple(slice(None) if index in own else None for index in scores)]
        if problem.causal is not None:
            at = scores.index(problem.causal)
            num_queries, num_keys = z.shape[at], z.shape[-1]
            seen = np.arange(num_keys) <= np.arange(num_queries)[:, None] + (num_keys - num_queries)
            shape = [1] * z.ndim
            shape[at], shape[-1] = seen.shape
            z = np.where(seen.reshape(shape), z, np.asarray(-np.inf, dtype=z.dtype))
        highest = z.max(axis=-1, keepdims=True)
        e = np.exp(z - np.where(np.isneginf(highest), np.asarray(0, dtype=z.dtype), highest))
        total = e.sum(axis=-1, keepdims=True)
        p = e / np.where(total == 0, np.asarray(1, dtype=z.dtype), total)
        return np.einsum(f"{scores},{indices[problem.value]}->{indices[problem.output]}", p, value)
