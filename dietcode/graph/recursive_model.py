"""A recursion as a service is asked for it: cells, how large structures are, what samples say of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dietcode.errors import ModelError
from dietcode.graph.cells import Cells, read_cells
from dietcode.graph.samples import MARGIN, Samples, read_samples
from dietcode.workload.text import clip

MAX_NODES, MAX_LEVEL = 8192, 1024  # where nothing is said of structures
MOST_NODES = 2**24
_SIZES = ("max_nodes", "max_level")


@dataclass(frozen=True)
class RecursiveModel:
    """A recursion, and the structures that it is compiled for.

    Attributes
    ----------
    cells : Cells
    max_nodes : int
        Of a call, all of its structures together.
    max_level : int
        The most nodes of a level that are computed at once; leaves are at most `max_nodes`.
    samples : Samples or None
        None where none were given: sizes count evenly in the logarithm.
    """

    cells: Cells
    max_nodes: int
    max_level: int
    samples: Samples | None = None

    @property
    def name(self) -> str:
        """What its bundle is published as."""
        return self.cells.name

    @property
    def sizes(self) -> dict[str, int]:
        """The largest structures."""
        return {"max_nodes": self.max_nodes, "max_level": self.max_level}

    def to_json(self) -> dict[str, Any]:
        """Return plain data, the inverse of `read_recursive_model`."""
        samples = {} if self.samples is None else {"samples": self.samples.to_json()}
        return {**self.cells.to_json(), **self.sizes, **samples}


def read_recursive_model(data: Any) -> RecursiveModel:
    """Return what `RecursiveModel.to_json` wrote, or what anybody else did.

    Raises
    ------
    ModelError
        It is none; names the field, what was given and what is allowed.
    """
    if not isinstance(data, Mapping):
        raise ModelError(f"recursion: given {clip(data)}; allowed: a mapping of cells and sizes")
    cells = read_cells({key: value for key, value in data.items() if key not in (*_SIZES, "samples")})
    sizes = [data.get(key) for key in _SIZES]
    for key, given in zip(_SIZES, sizes, strict=True):
        if type(given) is not int:
            raise ModelError(f"{key}: given {clip(given)}; allowed: a number of nodes")
    max_nodes, max_level = (int(str(one)) for one in sizes)
    check_sizes(max_nodes, max_level)
    samples = None if data.get("samples") is None else read_samples(data["samples"])
    if samples is not None:
        check_samples(samples, cells, max_nodes)
    return RecursiveModel(cells, max_nodes, max_level, samples)


def default_sizes(
    max_nodes: int | None, max_level: int | None, samples: Samples | None = None
) -> tuple[int, int]:
    """Return the largest structures, where they are not all given: of samples with a margin."""
    if samples is None:
        nodes, level = MAX_NODES, MAX_LEVEL
    else:
        nodes, level = (min(MOST_NODES, MARGIN * one) for one in (samples.max_nodes, samples.max_level))
    nodes = nodes if max_nodes is None else max_nodes
    return nodes, min(level, nodes) if max_level is None else max_level


def check_sizes(max_nodes: int, max_level: int) -> None:
    """Refuse sizes of structures that cannot be.

    Raises
    ------
    ModelError
        What is allowed is said.
    """
    if not 1 <= max_nodes <= MOST_NODES:
        raise ModelError(f"--max-nodes: given {max_nodes}; allowed: 1 to {MOST_NODES}")
    if not 1 <= max_level <= max_nodes:
        allowed = f"1 to {max_nodes}, which --max-nodes is"
        raise ModelError(f"--max-level: given {max_level}; allowed: {allowed}")


def check_samples(samples: Samples, cells: Cells, max_nodes: int) -> None:
    """Refuse samples that a call would refuse.

    Raises
    ------
    ModelError
        One is too large, or a node of the one that is shown has too many children.
    """
    if samples.max_nodes > max_nodes:
        raise ModelError(
            f"samples: a call of {samples.max_nodes} nodes; allowed: {max_nodes}, as --max-nodes says"
        )
    widest = max(map(len, samples.shown), default=0)
    if widest > cells.children:
        raise ModelError(
            f"samples: a node of {widest} children; allowed: {cells.children}, as the recursion says"
        )
