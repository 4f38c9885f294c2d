"""What rows of lists say of a job or library in a few words: its operator and its shapes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from dietcode.workload.text import counted
from dietcode_server.store.tables import Workload

_MAX_OPERATORS, _MAX_VARIABLES = 4, 3
_MAX_CHARS = 48
_OF_BUNDLES = ("dimensions", "children", "max_nodes", "num_samples")


@dataclass(frozen=True)
class WorkloadSummary:
    """The workload of a job or a library.

    Attributes
    ----------
    operator : str
        ``einsum mk,nk->mn``, ``conv2d``, ``block: add, rmsnorm``; ``model``, ``recursion`` or ``program``.
    shapes : str
        ``T 1–128``; values where there is no range; empty for one shape. Of a program how many samples.
    """

    operator: str
    shapes: str


def summaries(session: Session, digests: Collection[str]) -> dict[str, WorkloadSummary]:
    """Return the summaries of workloads by digest; only these fields of them are read: a spec can be long."""
    columns = [Workload.spec[name] for name in ("op", "shape_vars", *_OF_BUNDLES)]
    found = session.execute(select(Workload.digest, *columns).where(Workload.digest.in_(digests)))
    return {
        digest: summary(op, shape_vars) if op else _bundle_summary(*facts)
        for digest, op, shape_vars, *facts in found
    }


def _bundle_summary(dimensions: Any, children: Any, max_nodes: Any, num_samples: Any) -> WorkloadSummary:
    """Return the summary of a whole model, of a recursion, which has children, or of a program of samples."""
    if isinstance(children, int):
        many = "a sequence" if children == 1 else f"up to {children} children"
        return WorkloadSummary("recursion", _cut(f"{many}, nodes 1–{max_nodes}"))
    if isinstance(num_samples, int):
        return WorkloadSummary("program", counted(num_samples, "sample"))
    return WorkloadSummary("model", _cut(_shapes(dimensions)))


def summary(op: Any, shape_vars: Any) -> WorkloadSummary:
    """Return the summary of the fields `op` and `shape_vars` of a spec."""
    return WorkloadSummary(_cut(_operator(op)), _cut(_shapes(shape_vars)))


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_CHARS else f"{text[: _MAX_CHARS - 1]}…"


def _operator(op: Any) -> str:
    if not isinstance(op, Mapping) or not op:
        return ""
    kind, given = next(iter(op.items()))
    if isinstance(given, str):
        return f"{kind} {given}"
    if kind == "block" and isinstance(given, Mapping) and isinstance(given.get("graph"), Mapping):
        names = list(dict.fromkeys(str(next(iter(node))) for node in given["graph"].values() if node))
        return f"block: {', '.join(names[:_MAX_OPERATORS])}{', …' if len(names) > _MAX_OPERATORS else ''}"
    return str(kind)


def _shapes(shape_vars: Any) -> str:
    if not isinstance(shape_vars, Mapping):
        return ""
    parts = [f"{name} {_range(facts)}" for name, facts in list(shape_vars.items())[:_MAX_VARIABLES]]
    return ", ".join([*parts, "…"] if len(shape_vars) > _MAX_VARIABLES else parts)


def _range(facts: Any) -> str:
    if isinstance(facts, Mapping) and "min" in facts and "max" in facts:
        return f"{facts['min']}–{facts['max']}"
    values = facts.get("values") if isinstance(facts, Mapping) else facts
    if isinstance(values, list):
        return "/".join(map(str, values)) if len(values) <= 4 else f"{values[0]}…{values[-1]}"
    return str(values)
