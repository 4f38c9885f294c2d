"""Limits on the size of a workload on this server. A spec has bounds of its own, which are wider."""

from __future__ import annotations

from dietcode.errors import SpecError
from dietcode.workload.sizes import largest_sizes
from dietcode.workload.spec import Spec
from dietcode.workload.text import field_path
from dietcode_server.settings import ENV_PREFIX, Settings


def check_limits(spec: Spec, settings: Settings) -> None:
    """Refuse what would keep the device or its memory busy for too long.

    Raises
    ------
    SpecError
        With the path of the field that is too large.
    """
    for name, indices in spec.operand_indices.items():
        _check(field_path(["tensors", name, "dims"]), len(indices), settings.max_rank, "max_rank", "axes")
    for indices in spec.outputs.values():
        _check("output", len(indices), settings.max_rank, "max_rank", "axes")
    sizes = largest_sizes(spec)
    for index, extent in sizes.extents.items():
        where = f"dims.{index}" if index in spec.dims else "dims"
        _check(where, extent, settings.max_extent, "max_extent", "as an extent")
    _check("dims", sizes.flops, settings.max_flops, "max_flops", "FLOPs at the largest instance")
    _check(
        "tensors",
        sizes.tensor_bytes,
        settings.max_tensor_bytes,
        "max_tensor_bytes",
        "bytes of all tensors at the largest instance",
    )
    budget = spec.budget
    _check("budget.trials", budget.trials, settings.max_trials, "max_trials", "trials")
    _check("budget.seconds", budget.seconds, settings.max_seconds, "max_seconds", "seconds")


def _check(field: str, given: float, limit: float, setting: str, what: str) -> None:
    if given > limit:
        allowed = f"this server allows up to {limit}, as {ENV_PREFIX}{setting.upper()} says"
        raise SpecError(field, f"given {given:.12g} {what}; {allowed}")
