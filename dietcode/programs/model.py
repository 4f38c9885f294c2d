"""A program as data, without PyTorch: what a child process that read it hands over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dietcode.graph.graph import Graph
from dietcode.graph.reading import read_graph

Type = tuple[str, tuple[int, ...]]
MAX_ROWS = 1 << 20


@dataclass(frozen=True)
class BlockModel:
    """A block of a program.

    Attributes
    ----------
    graph : Graph
        Of one instance; its inputs are its operands.
    operands, results : tuple of Type
        Dtype and shape; int32 of shape () is a whole number, which is given as it is.
    is_made : tuple of bool
        Of each operand, whether blocks compute it; others come with the instance.
    phase : int
        After those of the blocks that it reads and that do not read it.
    buckets, together : dict of int to int
        How often a bucket had so many rows; how often so many were noted between two decisions.
    """

    graph: Graph
    operands: tuple[Type, ...]
    results: tuple[Type, ...]
    is_made: tuple[bool, ...]
    phase: int
    buckets: dict[int, int]
    together: dict[int, int]

    def to_json(self) -> dict[str, Any]:
        """Return plain data, the inverse of `read_block`."""
        return {
            "graph": self.graph.to_json(),
            "operands": [[dtype, list(shape)] for dtype, shape in self.operands],
            "results": [[dtype, list(shape)] for dtype, shape in self.results],
            "is_made": list(self.is_made),
            "phase": self.phase,
            "buckets": {str(rows): count for rows, count in self.buckets.items()},
            "together": {str(rows): count for rows, count in self.together.items()},
        }


def read_block(data: Mapping[str, Any]) -> BlockModel:
    """Return what `BlockModel.to_json` wrote."""
    counts = ({int(rows): int(count) for rows, count in data[key].items()} for key in ("buckets", "together"))
    operands, results = (
        tuple((str(dtype), tuple(map(int, shape))) for dtype, shape in data[key])
        for key in ("operands", "results")
    )
    made = tuple(map(bool, data["is_made"]))
    return BlockModel(read_graph(data["graph"]), operands, results, made, int(data["phase"]), *counts)


@dataclass(frozen=True)
class ProgramModel:
    """A program, and what samples say of it.

    Attributes
    ----------
    name : str
    form : dict
        Its control flow; block instructions name `blocks`.
    blocks : tuple of BlockModel
    num_samples : int
    max_rows : int
        The most rows of one kind of tensors in a call.
    """

    name: str
    form: dict[str, Any]
    blocks: tuple[BlockModel, ...]
    num_samples: int
    max_rows: int = MAX_ROWS

    def to_json(self) -> dict[str, Any]:
        """Return plain data, the inverse of `read_program`."""
        return {
            "name": self.name,
            "form": self.form,
            "blocks": [one.to_json() for one in self.blocks],
            "num_samples": self.num_samples,
            "max_rows": self.max_rows,
        }


def read_program(data: Mapping[str, Any]) -> ProgramModel:
    """Return what `ProgramModel.to_json` wrote."""
    blocks = tuple(map(read_block, data["blocks"]))
    return ProgramModel(
        str(data["name"]), dict(data["form"]), blocks, int(data["num_samples"]), int(data["max_rows"])
    )
