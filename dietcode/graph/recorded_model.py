"""A recorded program as data: its blocks, what samples say of them, and where its source has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dietcode.errors import ModelError
from dietcode.graph.fields import read_list, read_mapping, read_name, read_text, read_whole
from dietcode.graph.program_model import (
    MAX_BLOCKS,
    MAX_ROWS,
    BlockModel,
    Bucket,
    check_sources,
    read_block,
    read_shown,
)
from dietcode.graph.reading import MAX_NODES

_FIELDS = (
    "name",
    "recorded",
    "blocks",
    "constants",
    "units",
    "num_samples",
    "max_rows",
    "shown",
    "passed_on",
    "waits",
    "eager",
    "assigned",
)
_MOST_LISTED, _MAX_COUNT = 4096, 1 << 24


@dataclass(frozen=True)
class RecordedModel:
    """A recorded program, and what samples say of it.

    Attributes
    ----------
    name : str
    blocks : tuple of BlockModel
    constants : tuple of (str, tuple of int)
        Weights that regions return: name and shape.
    units : tuple of dict
        Of each function its ``file``, ``qualname``, ``digest`` of the source, ``concurrent``, and
        ``regions``: of each ``region``, ``variants`` and the ``reason`` why it has none.
    num_samples : int
    max_rows : int
        The most rows of one kind of tensors in a call.
    shown : tuple of Bucket
        As `dietcode.graph.program_model.ProgramModel` has them.
    passed_on : tuple of str
        Attributes that an instance reads as the one before left them: instances run in order, then.
    waits : bool
        Whether instances wait for values; otherwise `dietcode.concurrent` and `dietcode.map` just call.
    eager : tuple of (str, str)
        Lines with tensor code that is no block, as ``trees.py:12``, and why.
    assigned : tuple of str
        Attributes that functions set, other than where an object is made.
    """

    name: str
    blocks: tuple[BlockModel, ...]
    constants: tuple[tuple[str, tuple[int, ...]], ...]
    units: tuple[dict[str, Any], ...]
    num_samples: int
    max_rows: int = MAX_ROWS
    shown: tuple[Bucket, ...] = ()
    passed_on: tuple[str, ...] = ()
    waits: bool = True
    eager: tuple[tuple[str, str], ...] = ()
    assigned: tuple[str, ...] = ()

    @property
    def sizes(self) -> dict[str, int]:
        """The largest tables."""
        return {"max_rows": self.max_rows}

    def to_json(self) -> dict[str, Any]:
        """Return plain data, the inverse of `read_recorded_model`."""
        return {
            "name": self.name,
            "recorded": True,
            "blocks": [one.to_json() for one in self.blocks],
            "constants": [[name, list(shape)] for name, shape in self.constants],
            "units": list(self.units),
            "num_samples": self.num_samples,
            "max_rows": self.max_rows,
            "shown": [list(one) for one in self.shown],
            "passed_on": list(self.passed_on),
            "waits": self.waits,
            "eager": [list(one) for one in self.eager],
            "assigned": list(self.assigned),
        }


def read_recorded_model(data: Any) -> RecordedModel:
    """Return what `RecordedModel.to_json` wrote, or what anybody else did.

    Raises
    ------
    ModelError
        It is none; names the field, what was given and what is allowed.
    """
    fields = read_mapping(data, "program", _FIELDS)
    blocks = tuple(
        read_block(one, f"blocks.{at}")
        for at, one in enumerate(read_list(fields.get("blocks"), "blocks", MAX_BLOCKS))
    )
    if sum(one.graph.num_nodes for one in blocks) > MAX_NODES:
        raise ModelError(f"blocks: have more than {MAX_NODES} operators together, which are allowed")
    constants = []
    for at, one in enumerate(read_list(fields.get("constants"), "constants", _MOST_LISTED)):
        name, shape = read_list(one, f"constants.{at}", 2)
        extents = tuple(
            read_whole(extent, f"constants.{at}", 0, _MAX_COUNT)
            for extent in read_list(shape, f"constants.{at}", 8)
        )
        constants.append((read_text(name, f"constants.{at}"), extents))
    found = RecordedModel(
        read_name(fields.get("name")),
        blocks,
        tuple(constants),
        tuple(dict(one) for one in read_list(fields.get("units"), "units", _MOST_LISTED)),
        read_whole(fields.get("num_samples"), "num_samples", 1, _MAX_COUNT),
        read_whole(fields.get("max_rows"), "max_rows", 2, MAX_ROWS),
        read_shown(fields.get("shown", []), max(1, len(blocks))),
        tuple(
            read_text(one, "passed_on")
            for one in read_list(fields.get("passed_on"), "passed_on", _MOST_LISTED)
        ),
        bool(fields.get("waits")),
        tuple(
            (read_text(where, "eager"), read_text(reason, "eager"))
            for where, reason in (
                read_list(one, "eager", 2)
                for one in read_list(fields.get("eager", []), "eager", _MOST_LISTED)
            )
        ),
        tuple(
            read_text(one, "assigned") for one in read_list(fields.get("assigned"), "assigned", _MOST_LISTED)
        ),
    )
    check_sources(found)
    return found
