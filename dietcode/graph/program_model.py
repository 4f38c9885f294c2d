"""A program as data, without PyTorch: control flow, the graphs of its blocks, what samples say of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dietcode.errors import ModelError
from dietcode.graph.extent import Extent
from dietcode.graph.fields import read_list, read_mapping, read_name, read_text, read_whole
from dietcode.graph.graph import Graph
from dietcode.graph.limits import MAX_EXTENT
from dietcode.graph.reading import MAX_NODES, read_graph
from dietcode.graph.samples import read_histogram
from dietcode.graph.tensor_type import FLOATS, TensorType
from dietcode.workload.text import clip, one_line

Type = tuple[str, tuple[int, ...]]
Bucket = tuple[int, int, int, int]
NUMBER: Type = ("int32", ())
MAX_ROWS = 1 << 20
MAX_BLOCKS, MAX_OPERANDS, MAX_PHASE = 256, 32, 100
_TABLE_ELEMENTS = 1 << 28
MAX_SHOWN = 400  # buckets of the run that is kept
_MAX_AXES, _MAX_LISTED, _MAX_KEY, _MAX_COUNT = 6, (1 << 16) - 1, 1 << 40, 1 << 24
_IDS = ("int32", "int64")
_FORM = ("types", "records", "names", "constants", "lookups", "tensors", "functions", "entry")
_FUNCTION_FIELDS = ("name", "file", "parameters", "registers", "code", "lines")
_FIELDS = ("name", "form", "blocks", "num_samples", "max_rows", "shown")
_BLOCK_FIELDS = ("graph", "operands", "results", "is_made", "phase", "buckets", "together", "lowest")
_LOWEST_FIELDS = ("sources", "rows", "rest")


@dataclass(frozen=True)
class NumberSource:
    """Where an operand comes from that a block computes of a whole number alone.

    Attributes
    ----------
    block, result : int
        Which result of which block.
    leader : int
        The first operand of the same call of that block.
    """

    block: int
    result: int
    leader: int

    def to_json(self) -> list[int]:
        """Return plain data."""
        return [self.block, self.result, self.leader]


@dataclass(frozen=True)
class Lowest:
    """The calls of a block whose computed operands are all of whole numbers alone: most often of leaves.

    Attributes
    ----------
    sources : tuple of NumberSource or None
        Of each operand; None where it comes with the instance, or is a constant.
    rows : dict of int to int
        How often so many of these calls were noted between two decisions.
    rest : dict of int to int
        How often a bucket had so many other calls.
    """

    sources: tuple[NumberSource | None, ...]
    rows: dict[int, int]
    rest: dict[int, int]

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "sources": [one and one.to_json() for one in self.sources],
            "rows": {str(rows): count for rows, count in self.rows.items()},
            "rest": {str(rows): count for rows, count in self.rest.items()},
        }


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
    lowest : Lowest or None
        Which of its calls read rows of tables; None where none do.
    """

    graph: Graph
    operands: tuple[Type, ...]
    results: tuple[Type, ...]
    is_made: tuple[bool, ...]
    phase: int
    buckets: dict[int, int]
    together: dict[int, int]
    lowest: Lowest | None = None

    @property
    def is_of_number(self) -> bool:
        """Whether it takes one whole number and nothing else."""
        return self.operands == (NUMBER,)

    def to_json(self) -> dict[str, Any]:
        """Return plain data, the inverse of `read_block`."""
        found: dict[str, Any] = {
            "graph": self.graph.to_json(),
            "operands": [[dtype, list(shape)] for dtype, shape in self.operands],
            "results": [[dtype, list(shape)] for dtype, shape in self.results],
            "is_made": list(self.is_made),
            "phase": self.phase,
            "buckets": {str(rows): count for rows, count in self.buckets.items()},
            "together": {str(rows): count for rows, count in self.together.items()},
        }
        if self.lowest is not None:
            found["lowest"] = self.lowest.to_json()
        return found


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
    shown : tuple of Bucket
        The buckets of one call of samples, for a picture, in the order in which they ran: between which
        decisions (0, 1, …), key (depth, behind the phase), block, and rows.
    """

    name: str
    form: dict[str, Any]
    blocks: tuple[BlockModel, ...]
    num_samples: int
    max_rows: int = MAX_ROWS
    shown: tuple[Bucket, ...] = ()

    @property
    def sizes(self) -> dict[str, int]:
        """The largest tables."""
        return {"max_rows": self.max_rows}

    def to_json(self) -> dict[str, Any]:
        """Return plain data, the inverse of `read_program_model`."""
        return {
            "name": self.name,
            "form": self.form,
            "blocks": [one.to_json() for one in self.blocks],
            "num_samples": self.num_samples,
            "max_rows": self.max_rows,
            "shown": [list(one) for one in self.shown],
        }


def rows_of_tables(blocks: Sequence[BlockModel]) -> int:
    """Return how many rows a table may have: the tables that a block reads are of 1 GiB together."""
    sizes = (sum(math.prod(shape) for _, shape in one.operands) for one in blocks)
    most = _TABLE_ELEMENTS // max(sizes, default=1)
    return max(2, min(MAX_ROWS, 1 << (max(1, most).bit_length() - 1)))


def read_program_model(data: Any) -> ProgramModel:
    """Return what `ProgramModel.to_json` wrote, or what anybody else did.

    The instructions are read by `dietcode.runtime.programs.form.check_form`.

    Raises
    ------
    ModelError
        It is none; names the field, what was given and what is allowed.
    """
    fields = read_mapping(data, "program", _FIELDS)
    name = read_name(fields.get("name"))
    form = _form(fields.get("form"))
    blocks = tuple(
        read_block(one, f"blocks.{at}")
        for at, one in enumerate(read_list(fields.get("blocks"), "blocks", MAX_BLOCKS))
    )
    if not blocks:
        raise ModelError("blocks: there is none; allowed: a program that computes tensors of an instance")
    if sum(one.graph.num_nodes for one in blocks) > MAX_NODES:
        raise ModelError(f"blocks: have more than {MAX_NODES} operators together, which are allowed")
    found = ProgramModel(
        name,
        form,
        blocks,
        read_whole(fields.get("num_samples"), "num_samples", 1, _MAX_COUNT),
        read_whole(fields.get("max_rows"), "max_rows", 2, MAX_ROWS),
        read_shown(fields.get("shown", []), len(blocks)),
    )
    _check_weights(found)
    check_sources(found)
    return found


def _form(data: Any) -> dict[str, Any]:
    """Return a form; all but its functions is checked."""
    form = dict(read_mapping(data, "form", _FORM))
    form.setdefault("lookups", [])  # which older clients do not send
    lists = {key: read_list(form.get(key), f"form.{key}", _MAX_LISTED) for key in _FORM if key != "entry"}
    for at, one in enumerate(lists["lookups"]):
        for pair in read_list(one, f"form.lookups.{at}", _MAX_LISTED):
            read_list(pair, f"form.lookups.{at}", 2)
    for at, one in enumerate(lists["types"]):
        own = read_mapping(one, f"form.types.{at}", ("dtype", "shape"))
        _type([own.get("dtype"), own.get("shape")], f"form.types.{at}", ("float32", "int32"))
    for at, one in enumerate(lists["tensors"]):
        field = f"form.tensors.{at}"
        own = read_mapping(one, field, ("value", "type"))
        read_text(own.get("value"), f"{field}.value")
        number = read_whole(own.get("type"), f"{field}.type", 0, len(lists["types"]) - 1)
        if lists["types"][number]["dtype"] != FLOATS[0]:
            raise ModelError(f"{field}.type: given int32; allowed: {FLOATS[0]}")
    for at, one in enumerate(lists["records"]):
        field = f"form.records.{at}"
        own = read_mapping(one, field, ("name", "fields"))
        read_text(own.get("name"), f"{field}.name")
        for name in read_list(own.get("fields"), f"{field}.fields", _MAX_LISTED):
            read_text(name, f"{field}.fields")
    for at, one in enumerate(lists["names"]):
        read_text(one, f"form.names.{at}")
    for at, one in enumerate(lists["constants"]):
        is_number = type(one) is int and -(2**63) <= one < 2**63
        if not is_number and one is not None and type(one) not in (bool, float, str):
            allowed = "null, true, false, a number of 64 bits, or a text"
            raise ModelError(f"form.constants.{at}: given {clip(one)}; allowed: {allowed}")
    for at, one in enumerate(lists["functions"]):
        read_mapping(one, f"form.functions.{at}", _FUNCTION_FIELDS)
    read_whole(form.get("entry"), "form.entry", 0, len(lists["functions"]) - 1)
    return form


def read_block(data: Any, field: str) -> BlockModel:
    own = read_mapping(data, field, _BLOCK_FIELDS)
    try:
        graph = read_graph(own.get("graph"))
    except ModelError as error:
        raise ModelError(one_line(f"{field}.graph.{error}")) from None
    if graph.ranges:
        raise ModelError(f"{field}.graph: has dimensions; allowed: none, a block is of one instance")
    operands, results = (
        tuple(
            _type(one, f"{field}.{key}.{at}", dtypes)
            for at, one in enumerate(read_list(own.get(key), f"{field}.{key}", MAX_OPERANDS))
        )
        for key, dtypes in (("operands", ("float32", "int32")), ("results", ("float32",)))
    )
    if any(dtype == "int32" and shape for dtype, shape in operands):
        raise ModelError(f"{field}.operands: given int32 with extents; allowed: int32 without, a number")
    _check_types(f"{field}.graph.inputs", list(graph.inputs.values()), operands)
    _check_types(f"{field}.graph.outputs", [graph.types[one] for one in graph.outputs], results)
    if not operands or not results:
        raise ModelError(f"{field}: has no operands or no results; allowed: 1 to {MAX_OPERANDS} of each")
    made = read_list(own.get("is_made"), f"{field}.is_made", MAX_OPERANDS)
    if len(made) != len(operands) or any(type(one) is not bool for one in made):
        raise ModelError(f"{field}.is_made: given {clip(made)}; allowed: true or false for each operand")
    phase = read_whole(own.get("phase"), f"{field}.phase", 0, MAX_PHASE)
    buckets, together = (read_histogram(own.get(key), f"{field}.{key}") for key in ("buckets", "together"))
    given = own.get("lowest")
    lowest = None if given is None else _lowest(given, f"{field}.lowest", len(operands))
    return BlockModel(graph, operands, results, tuple(made), phase, buckets, together, lowest)


def _lowest(data: Any, field: str, num_operands: int) -> Lowest:
    own = read_mapping(data, field, _LOWEST_FIELDS)
    given = read_list(own.get("sources"), f"{field}.sources", MAX_OPERANDS)
    sources: list[NumberSource | None] = []
    for at, one in enumerate(given):
        if one is None:
            sources.append(None)
            continue
        numbers = read_list(one, f"{field}.sources.{at}", 3)
        if len(numbers) != 3:
            raise ModelError(f"{field}.sources.{at}: given {clip(one)}; allowed: [block, result, leader]")
        limits = (MAX_BLOCKS, MAX_OPERANDS, at)
        block, result, leader = (
            read_whole(number, f"{field}.sources.{at}", 0, most)
            for number, most in zip(numbers, limits, strict=True)
        )
        sources.append(NumberSource(block, result, leader))
    if len(sources) != num_operands or not any(sources):
        raise ModelError(f"{field}.sources: given {clip(given)}; allowed: one for each operand, or null")
    rows, rest = (read_histogram(own.get(key), f"{field}.{key}") for key in ("rows", "rest"))
    return Lowest(tuple(sources), rows, rest)


def check_sources(model: Any) -> None:
    """Refuse sources that are no results of blocks of one whole number, or of another type."""
    for number, block in enumerate(model.blocks):
        if block.lowest is None:
            continue
        for at, one in enumerate(block.lowest.sources):
            if one is None:
                continue
            leader = block.lowest.sources[one.leader]
            known = model.blocks[one.block] if one.block < len(model.blocks) else None
            if (
                known is None
                or not known.is_of_number
                or known.results[one.result : one.result + 1] != (block.operands[at],)
                or leader is None
                or (leader.block, leader.leader) != (one.block, one.leader)
            ):
                field = f"blocks.{number}.lowest.sources.{at}"
                raise ModelError(
                    f"{field}: given {one.block}, {one.result}, {one.leader}; allowed: a result of this type "
                    "of a block that takes one whole number, and the first operand of the same call"
                )


def _check_types(field: str, types: Sequence[TensorType], wanted: Sequence[Type]) -> None:
    """Refuse a graph that takes or gives something else than what is declared."""
    fits = len(types) == len(wanted) and all(
        one.shape == tuple(map(Extent.of, shape)) and one.dtype in (_IDS if dtype == "int32" else FLOATS[:1])
        for one, (dtype, shape) in zip(types, wanted, strict=True)
    )
    if not fits:
        declared = clip([f"{dtype}{list(shape)}" for dtype, shape in wanted], 200)
        raise ModelError(
            f"{field}: given {clip(list(map(str, types)), 200)}; allowed: what is declared, {declared}"
        )


def _type(data: Any, field: str, dtypes: Sequence[str]) -> Type:
    """Return a type of tensors."""
    dtype, shape = data if isinstance(data, list) and len(data) == 2 else ("", None)
    is_dtype = isinstance(dtype, str) and dtype in dtypes
    extents = shape if isinstance(shape, list) and len(shape) <= _MAX_AXES else [0]
    if not is_dtype or any(type(one) is not int or not 1 <= one <= MAX_EXTENT for one in extents):
        allowed = f"{' or '.join(dtypes)}, and up to {_MAX_AXES} extents"
        raise ModelError(f"{field}: given {clip(data)}; allowed: {allowed}")
    if math.prod(extents) > MAX_EXTENT:
        raise ModelError(f"{field}: given {clip(data)}; allowed: up to {MAX_EXTENT} elements")
    return str(dtype), tuple(extents)


def _check_weights(model: ProgramModel) -> None:
    """Refuse a weight that is of two types."""
    known: dict[str, TensorType] = {}
    pairs = [pair for block in model.blocks for pair in block.graph.weights.items()]
    for one in model.form["tensors"]:
        own = model.form["types"][one["type"]]
        pairs.append((one["value"], TensorType(own["dtype"], tuple(map(Extent.of, own["shape"])))))
    for name, type_ in pairs:
        if known.setdefault(name, type_) != type_:
            raise ModelError(f"weight {clip(name)}: is {type_}, and {known[name]} elsewhere; make them one")


def read_shown(data: Any, num_blocks: int) -> tuple[Bucket, ...]:
    rows = read_list(data, "shown", MAX_SHOWN)
    limits = (_MAX_COUNT, _MAX_KEY, num_blocks - 1, _MAX_COUNT)
    found = []
    for at, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != len(limits):
            raise ModelError(f"shown.{at}: given {clip(row)}; allowed: [decisions before, key, block, rows]")
        flush, key, block, count = (
            read_whole(one, f"shown.{at}", 0, most) for one, most in zip(row, limits, strict=True)
        )
        found.append((flush, key, block, count))
    return tuple(found)
