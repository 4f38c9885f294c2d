"""Digests that say whether two specs are the same workload, or the same job; and of generated source."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import rfc8785

from dietcode.workload.spec import Spec

FORMAT = 1


def canonical_bytes(obj: object) -> bytes:
    """Return `obj` as canonical JSON (RFC 8785).

    Raises
    ------
    ValueError
        Not plain JSON data: odd types, keys that are no text, integers beyond 2**53, numbers that are not
        finite.
    """
    result: bytes = rfc8785.dumps(obj)
    return result


def workload_digest(spec: Spec) -> str:
    """Return ``sha256:<hex>`` of what defines the measured computation.

    That is op, tensors, output, accumulate, dims and the ranges of the shape variables: records measured for
    one workload serve every job on it, whatever its name, weights, joint instances, target, budget or
    objective.
    """
    plain = spec.to_json()
    fields = ("op", "output", "accumulate", "dims")
    measured: dict[str, Any] = {name: plain[name] for name in fields if name in plain}
    ranges = {
        name: {key: value for key, value in variable.items() if key != "weights"}
        for name, variable in plain["shape_vars"].items()
    }
    return _digest({"workload": FORMAT, **measured, "tensors": _in_order(plain), "shape_vars": ranges})


def job_digest(spec: Spec, resolved_target: Mapping[str, Any]) -> str:
    """Return ``sha256:<hex>`` of the whole spec with its resolved target, budget and objective.

    Parameters
    ----------
    spec : Spec
        The spec.
    resolved_target : mapping
        Plain data that takes the place of `Spec.target`.
    """
    plain = spec.to_json()
    return _digest({"job": FORMAT, **plain, "tensors": _in_order(plain), "target": dict(resolved_target)})


def source_digest(text: str) -> str:
    """Return the digest of a micro-kernel's generated source, by which its measurements are known."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _in_order(plain: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the operands as a list: canonical JSON sorts a mapping, and their order matters."""
    return [{"name": name, **tensor} for name, tensor in plain["tensors"].items()]


def _digest(obj: object) -> str:
    return "sha256:" + hashlib.sha256(canonical_bytes(obj)).hexdigest()
