"""Limits on the size of a workload on this server. A spec has bounds of its own, which are wider."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from dietcode.errors import ModelError, SpecError
from dietcode.graph.graph import Graph
from dietcode.graph.model_request import ModelRequest
from dietcode.graph.program_model import ProgramModel
from dietcode.graph.recursive_model import RecursiveModel
from dietcode.graph.tensor_type import TensorType
from dietcode.workload.sizes import largest_sizes
from dietcode.workload.spec import Budget, Spec
from dietcode.workload.text import clip, field_path
from dietcode_server.settings import ENV_PREFIX, Settings

_BYTES_OF_ELEMENT = 8


@dataclass(frozen=True)
class SizeLimits:
    """The settings of a server that bound what is submitted to it; see `dietcode_server.settings`."""

    max_rank: int
    max_extent: int
    max_flops: int
    max_tensor_bytes: int
    max_trials: int
    max_seconds: int

    @classmethod
    def of(cls, settings: Settings) -> SizeLimits:
        """Return those of some settings."""
        return cls(**{name: getattr(settings, name) for name in cls.__dataclass_fields__})

    def to_json(self) -> dict[str, int]:
        """Return plain data, for a worker's process."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, int]) -> SizeLimits:
        """Return what `to_json` gave."""
        return cls(**data)


def check_limits(spec: Spec, limits: Settings | SizeLimits) -> None:
    """Refuse what would keep the device or its memory busy for too long.

    Raises
    ------
    SpecError
        With the path of the field that is too large.
    """
    for name, indices in spec.operand_indices.items():
        _check(field_path(["tensors", name, "dims"]), len(indices), limits.max_rank, "max_rank", "axes")
    for indices in spec.outputs.values():
        _check("output", len(indices), limits.max_rank, "max_rank", "axes")
    sizes = largest_sizes(spec)
    for index, extent in sizes.extents.items():
        where = f"dims.{index}" if index in spec.dims else "dims"
        _check(where, extent, limits.max_extent, "max_extent", "as an extent")
    _check("dims", sizes.flops, limits.max_flops, "max_flops", "FLOPs at the largest instance")
    _check(
        "tensors",
        sizes.tensor_bytes,
        limits.max_tensor_bytes,
        "max_tensor_bytes",
        "bytes of all tensors at the largest instance",
    )
    _check_budget(spec.budget, limits)


def check_model_limits(model: ModelRequest, limits: Settings | SizeLimits) -> None:
    """Refuse a model with tensors, or a budget, that this server does not allow.

    Its parts are specs, which the engine compares with the same limits before it tunes one of them.

    Raises
    ------
    ModelError
        With the name of the tensor or field that is too large.
    """
    try:
        if isinstance(model.content, RecursiveModel):
            _check_recursion(model.content, limits)
        elif isinstance(model.content, ProgramModel):
            for block in model.content.blocks:
                for name, type_ in block.graph.types.items():
                    _check_tensor(block.graph, name, type_, limits)
        else:
            for name, type_ in model.content.types.items():
                _check_tensor(model.content, name, type_, limits)
        _check_budget(model.budget, limits)
    except SpecError as error:
        raise ModelError(str(error)) from None


def _check_recursion(model: RecursiveModel, limits: Settings | SizeLimits) -> None:
    """Refuse values of one node, or of all of a call, that are too large."""
    most = model.max_nodes
    _check("max_nodes", most, limits.max_extent, "max_extent", "as an extent")
    for graph in filter(None, (model.cells.cell, model.cells.leaf)):
        for name, type_ in graph.types.items():
            _check_tensor(graph, name, type_, limits)
    of_all = [*model.cells.states, *([] if model.cells.x is None else [model.cells.x])]
    for shape in of_all:
        num_bytes = most * math.prod(shape) * _BYTES_OF_ELEMENT
        _check("max_nodes", num_bytes, limits.max_tensor_bytes, "max_tensor_bytes", "bytes at most")


def _check_tensor(graph: Graph, name: str, type_: TensorType, limits: Settings | SizeLimits) -> None:
    where = clip(name)
    for extent in type_.shape:
        _check(where, extent.bounds(graph.ranges)[1], limits.max_extent, "max_extent", "as an extent")
    most = type_.num_elements.bounds(graph.ranges)[1] * _BYTES_OF_ELEMENT
    _check(where, most, limits.max_tensor_bytes, "max_tensor_bytes", "bytes at most")


def _check_budget(budget: Budget, limits: Settings | SizeLimits) -> None:
    _check("budget.trials", budget.trials, limits.max_trials, "max_trials", "trials")
    _check("budget.seconds", budget.seconds, limits.max_seconds, "max_seconds", "seconds")


def _check(field: str, given: float, limit: float, setting: str, what: str) -> None:
    if given > limit:
        allowed = f"this server allows up to {limit}, as {ENV_PREFIX}{setting.upper()} says"
        raise SpecError(field, f"given {given:.12g} {what}; {allowed}")
