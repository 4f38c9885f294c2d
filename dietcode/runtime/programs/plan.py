"""The description of a program, read and checked: ``program.json`` of a bundle.

    {"format", "name", "max_rows", "max_batch", "entry",
     "types": [{"dtype", "shape"}],               of tensors: float32 or int32
     "records": [{"name", "fields"}],             objects with these attributes
     "names": [text],                             of attributes
     "constants": [null, true, 3, 0.5, "text"],
    "lookups": [[[k, k], …]],                    what a constant is looked up in: keys and values
     "tensors": [{"value", "type"}],              weights, or what follows from them
     "blocks": [{"name", "phase", "max_batch", "operands": [type], "results": [type], "load": [step],
                 "steps": [step], "lowest_of": {"block", "sources": [[block, result, leader] or null]}}],
     "functions": [{"name", "file", "parameters", "registers", "code", "lines", "handlers"}],
     "weights", "values"}                         as a recursion has them

Steps are those of a recursion, of B rows, up to ``max_batch``; T, the rows of a table, is ``max_rows``. They
read

    operand0 …  [T, …]    the table of an operand's type, and
    rows0 …     [B]       int32: where the rows' operands lie in it
    ids0 …      [B]       in place of both where the type is int32 of no dimensions: the numbers themselves
    next0 …     [B, …]    results; to be written

A block with ``lowest_of`` takes over the calls of another one whose operands are results of blocks of one
whole number: it has that number in the place of all operands of one call, which ``leader`` names.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from keyword import iskeyword
from typing import Any

from dietcode.graph.extent import Extent, product_of
from dietcode.graph.tensor_type import TensorType
from dietcode.runtime.models.executable import (
    HostStep,
    KernelStep,
    TensorRead,
    read_described,
    read_load,
    read_types,
)
from dietcode.runtime.programs.code import FunctionCode, Surroundings, read_function, whole
from dietcode.runtime.recursion.moves import MoveStep, check_move
from dietcode.runtime.recursion.rows import (
    ReadingRule,
    RowDescription,
    RowStep,
    read_row_step,
    reads_by,
    written_by,
)

FORMAT, RECORDED_FORMAT = "dietcode-program/1", "dietcode-program/2"
_ROWS, _TABLE = Extent.of("B"), Extent.of("T")
_MOST_ROWS, _MOST_THINGS, _MOST_OPERANDS, _MOST_PHASE = 2**31 - 2, 1 << 16, 32, 100
_MOST_FIELDS, _MOST_BYTES = 1 << 20, 1 << 40
_INT64 = (-(2**63), 2**63 - 1)


@dataclass(frozen=True)
class LowestOf:
    """Whose calls a block takes over: those whose operands are results of blocks of whole numbers.

    Attributes
    ----------
    block : int
        Whose.
    sources : tuple of (int, int, int) or None
        Of each operand of that one: the block and the number of the result that it has to be, and the first
        operand of the same call, for all of which the block that takes over has the number that was given.
    """

    block: int
    sources: tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True)
class BlockPlan:
    """A block: what is run at once for all rows of a depth.

    Attributes
    ----------
    name : str
    phase : int
        Rows of a smaller phase are run before.
    max_batch : int
        The most rows of a run.
    operands, results : tuple of int
        Their types.
    steps : tuple of KernelStep or MoveStep
    rules : dict of str to ReadingRule
        What names stand for.
    lowest_of : LowestOf, optional
        Of a block that no instruction names.
    """

    name: str
    phase: int
    max_batch: int
    operands: tuple[int, ...]
    results: tuple[int, ...]
    steps: tuple[RowStep, ...]
    rules: dict[str, ReadingRule]
    lowest_of: LowestOf | None = None

    @cached_property
    def temporaries(self) -> tuple[str, ...]:
        """The values that its steps write and that are no results, each once."""
        written = dict.fromkeys(name for step in self.steps for name in written_by(step))
        return tuple(name for name in written if name not in self.outputs)

    def are_rows_of(self, positions: str | None, source: str) -> bool:
        """Whether positions are those of rows of a table: operands of one type have the same one."""
        types = {f"rows{number}": type_ for number, type_ in enumerate(self.operands)}
        own = types.get(source.replace("operand", "rows"))
        return positions in types and positions in self.rules and types[positions] == own

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """The names of its results."""
        return tuple(f"next{number}" for number in range(len(self.results)))


@dataclass(frozen=True)
class ProgramPlan(RowDescription):
    """A program as the runtime takes it."""

    name: str
    max_rows: int
    entry: int
    types: tuple[TensorType, ...]
    records: tuple[tuple[str, tuple[str, ...]], ...]
    names: tuple[str, ...]
    constants: tuple[bool | int | float | str | None, ...]
    lookups: tuple[tuple[tuple[int, int], ...], ...]
    tensors: tuple[tuple[str, int], ...]
    blocks: tuple[BlockPlan, ...]
    functions: tuple[FunctionCode, ...]
    weights: dict[str, TensorType]
    load: tuple[HostStep, ...]
    values: dict[str, TensorType]
    units: tuple[dict[str, Any], ...] = ()
    passed_on: tuple[str, ...] = ()
    assigned: tuple[str, ...] = ()
    waits: bool = True

    @property
    def groups(self) -> tuple[tuple[RowStep, ...], ...]:
        """The steps of each block."""
        return tuple(block.steps for block in self.blocks)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The constants that are read as they lie, though no kernel does."""
        return tuple(sorted({*super().outputs, *(name for name, _ in self.tensors)}))

    @property
    def makes_texts(self) -> bool:
        """Whether instances make texts."""
        return any(one.makes_texts for one in self.functions)

    @property
    def changes(self) -> bool:
        """Whether it changes lists or records, which instances may share."""
        return any(one.changes for one in self.functions)


def read_program(data: Mapping[str, Any]) -> ProgramPlan:
    """Return the description of a program.

    Raises
    ------
    LibraryError
        The data are of another format, or describe none.
    """
    return read_described(data, "program", FORMAT, _read)


def _listed(data: Mapping[str, Any], name: str) -> list[Any]:
    found = data[name]
    if not isinstance(found, list) or len(found) >= _MOST_THINGS:
        raise ValueError(f"{name}: no list of up to {_MOST_THINGS - 1}")
    return found


def _read(data: Mapping[str, Any]) -> ProgramPlan:
    own = _read_blocks(data)
    blocks = own["blocks"]
    records = tuple(map(record_of, _listed(data, "records")))
    names = tuple(map(str, _listed(data, "names")))
    if len(records) * len(names) > _MOST_FIELDS:
        raise ValueError(f"{len(records)} records and {len(names)} names")
    constants = tuple(_constant(one) for one in _listed(data, "constants"))
    if "" not in constants:  # the machine has to know it
        constants = (*constants, "")
    lookups = tuple(lookup_of(one, constants) for one in data.get("lookups", ()))
    functions = _listed(data, "functions")
    around = Surroundings(
        {
            **{
                "constant": len(_listed(data, "constants")),
                "tensor": len(_listed(data, "tensors")),
                "record": len(records),
            },
            **{"name": len(names), "block": len(blocks), "function": len(functions)},
            "lookup": len(lookups),
        },
        frozenset(number for number, one in enumerate(constants) if isinstance(one, str)),
        tuple(whole(one["parameters"], 0, 4096, "parameters") for one in functions),
        tuple(len(fields) for _, fields in records),
        tuple((len(one.operands), len(one.results)) for one in blocks),
    )
    found = ProgramPlan(
        **own,
        entry=whole(data["entry"], 0, len(functions) - 1, "entry"),
        records=records,
        names=names,
        constants=constants,
        lookups=lookups,
        functions=tuple(read_function(one, around) for one in functions),
    )
    if not found.types or found.functions[found.entry].parameters < 1:
        raise ValueError("no type, or an entry without a parameter")
    return _checked(found)


def read_recorded(data: Mapping[str, Any]) -> ProgramPlan:
    """Return the description of a recorded program: its blocks, and of its source its units.

    Raises
    ------
    LibraryError
        The data are of another format, or describe none.
    """
    return read_described(data, "program", RECORDED_FORMAT, _read_recorded)


def _read_recorded(data: Mapping[str, Any]) -> ProgramPlan:
    units = tuple(dict(one) for one in _listed(data, "units"))
    return _checked(
        ProgramPlan(
            **_read_blocks(data),
            entry=0,
            records=(),
            names=(),
            constants=("",),
            lookups=(),
            functions=(),
            units=units,
            passed_on=tuple(map(str, _listed(data, "passed_on"))),
            assigned=tuple(map(str, _listed(data, "assigned"))),
            waits=bool(data["waits"]),
        )
    )


def _read_blocks(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return what programs of both kinds have, as `ProgramPlan` takes it."""
    types = tuple(_tensor_type(one) for one in _listed(data, "types"))
    max_rows = whole(data["max_rows"], 1, _MOST_ROWS, "max_rows")
    if max(map(row_bytes, types), default=0) * max_rows > _MOST_BYTES:
        raise ValueError(f"max_rows {max_rows}, of which a table has more than {_MOST_BYTES} bytes")
    weights, values = read_types(data["weights"]), read_types(data["values"])
    load = _read_load(_listed(data, "blocks"))
    fixed = {name for step in load for name in step.results} | set(weights)
    return {
        "name": str(data["name"]),
        "max_rows": max_rows,
        "types": types,
        "tensors": tuple((str(one["value"]), _type_number(one["type"], types)) for one in data["tensors"]),
        "blocks": tuple(
            _block({"max_batch": data.get("max_batch"), **one}, types, values, fixed)
            for one in _listed(data, "blocks")
        ),
        "weights": weights,
        "load": load,
        "values": values,
    }


def _checked(found: ProgramPlan) -> ProgramPlan:
    """Return a program whose parts fit together; raises ValueError where they do not."""
    _check_constants(found)
    _check_lowest(found)
    for block in found.blocks:
        try:
            _check_block(found, block)
        except ValueError as error:
            raise ValueError(f"{block.name}: {error}") from error
    return found


def _read_load(blocks: Iterable[Mapping[str, Any]]) -> tuple[HostStep, ...]:
    """Return what all blocks need that follows from weights; two may need the same."""
    found: dict[tuple[str, ...], HostStep] = {}
    for step in (step for block in blocks for step in read_load(block.get("load", ()))):
        if found.setdefault(step.results, step) != step:
            raise ValueError(f"the load computes {str(step.results)[:40]} in two ways")
    names = [name for results in found for name in results]
    if len(set(names)) < len(names):
        raise ValueError("the load computes a value twice")
    return tuple(found.values())


def _constant(value: Any) -> bool | int | float | str | None:
    if type(value) is int:
        return whole(value, *_INT64, "constant")
    if value is None or isinstance(value, bool | str | float):
        return value
    raise ValueError(f"a constant {str(value)[:40]!r}")


def record_of(data: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Return the name and the fields of a record; raises ValueError for fields that cannot be attributes."""
    name, fields = str(data["name"]), tuple(map(str, _listed(data, "fields")))
    if len(set(fields)) < len(fields) or not all(one.isidentifier() and not iskeyword(one) for one in fields):
        raise ValueError(f"fields {fields} of {name[:40]}")
    return name, fields


def lookup_of(data: Any, constants: Sequence[Any]) -> tuple[tuple[int, int], ...]:
    """Return the pairs of a table of constants; raises ValueError for keys that are equal or no number."""
    pairs = [
        tuple(whole(one, 0, len(constants) - 1, "constant of a lookup") for one in pair) for pair in data
    ]
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError("a lookup of what are no pairs")
    keys = [constants[pair[0]] for pair in pairs]
    if len(set(keys)) < len(keys) or any(isinstance(key, float) and math.isnan(key) for key in keys):
        raise ValueError("a lookup has a key twice, or one that is no number")
    return tuple((key, value) for key, value in pairs)


def _tensor_type(data: Mapping[str, Any]) -> TensorType:
    found = read_types({"type": data})["type"]
    if found.dtype not in ("float32", "int32") or any(one.constant < 0 for one in found.shape):
        raise ValueError(f"a tensor {found}")
    if math.prod(one.constant for one in found.shape) > _MOST_BYTES:
        raise ValueError(f"a tensor {found}, of more than {_MOST_BYTES} elements")
    return found


def _type_number(value: Any, types: Sequence[TensorType]) -> int:
    return whole(value, 0, len(types) - 1, "type")


def row_bytes(type_: TensorType) -> int:
    """Return the bytes of a tensor of 32-bit elements."""
    return 4 * type_.num_elements.constant


def is_number(type_: TensorType) -> bool:
    """Whether a block reads a tensor as a whole number, as the row of a table."""
    return type_.dtype == "int32" and not type_.shape


def _block(
    data: Mapping[str, Any], types: Sequence[TensorType], values: Mapping[str, TensorType], fixed: set[str]
) -> BlockPlan:
    operands, results = (
        tuple(_type_number(one, types) for one in _listed(data, word)) for word in ("operands", "results")
    )
    for numbers in (operands, results):
        whole(len(numbers), 0, _MOST_OPERANDS, "operands or results of a block:")
    rules: dict[str, ReadingRule] = {}
    for number, type_ in ((number, types[one]) for number, one in enumerate(operands)):
        rows = ReadingRule("int32", (_ROWS,), True)
        if is_number(type_):
            rules[f"ids{number}"] = rows
        else:
            rules[f"rows{number}"] = rows
            rules[f"operand{number}"] = ReadingRule(type_.dtype, (_TABLE, *type_.shape), False)
    for number, type_ in ((number, types[one]) for number, one in enumerate(results)):
        rules[f"next{number}"] = ReadingRule(type_.dtype, (_ROWS, *type_.shape), True)
    steps = tuple(map(read_row_step, _listed(data, "steps")))
    for name in (name for step in steps for name in written_by(step) if name not in rules):
        type_ = values[name]
        if name in fixed or not type_.shape or type_.shape[0] != _ROWS:
            raise ValueError(f"{name[:40]!r} is {type_}, which has no row for each row of a block")
        rules[name] = ReadingRule(type_.dtype, type_.shape, True)
    return BlockPlan(
        str(data["name"])[:200],
        whole(data.get("phase", 0), 0, _MOST_PHASE, "phase"),
        whole(data["max_batch"], 1, _MOST_ROWS, "max_batch"),
        operands,
        results,
        steps,
        rules,
        None if "lowest_of" not in data else _lowest_of(data["lowest_of"]),
    )


def _lowest_of(data: Mapping[str, Any]) -> LowestOf:
    sources: list[tuple[int, int, int] | None] = []
    for at, one in enumerate(_listed(data, "sources")):
        if one is None:
            sources.append(None)
            continue
        block, result, leader = one
        own = whole(block, 0, _MOST_THINGS, "block"), whole(result, 0, _MOST_OPERANDS, "result")
        sources.append((*own, whole(leader, 0, at, "leader")))
    return LowestOf(whole(data["block"], 0, _MOST_THINGS, "lowest_of"), tuple(sources))


def _check_lowest(found: ProgramPlan) -> None:
    """Refuse blocks that take over calls whose operands or results are others than theirs."""
    taken: set[int] = set()
    for block in found.blocks:
        own = block.lowest_of
        if own is None:
            continue
        known = found.blocks[own.block] if own.block < len(found.blocks) else None
        if known is None or own.block in taken or known.lowest_of is not None:
            raise ValueError(f"{block.name}: takes over calls of {own.block}, which has none for it")
        taken.add(own.block)
        fits = len(own.sources) == len(known.operands) and block.results == known.results
        wanted: list[int] = []
        for at, (type_, source) in enumerate(zip(known.operands, own.sources, strict=False)):
            if source is None:
                wanted.append(type_)
                continue
            maker, result, leader = source
            of = found.blocks[maker] if maker < len(found.blocks) else None
            fits = (
                fits
                and of is not None
                and len(of.operands) == 1
                and is_number(found.types[of.operands[0]])
                and of.results[result : result + 1] == (type_,)
                and (own.sources[leader] or (-1,))[::2] == (maker, leader)
            )
            if fits and of is not None and leader == at:
                wanted.append(of.operands[0])
        if not fits or tuple(wanted) != block.operands:
            raise ValueError(f"{block.name}: takes over calls of block {own.block}, which has other operands")


def _check_constants(found: ProgramPlan) -> None:
    found.check_constants()
    for name, number in found.tensors:
        if name not in found.constant_names:
            raise ValueError(f"{name[:40]!r} is no weight, and follows from none")
        own, wanted = found.constant_type(name), found.types[number]
        if own.dtype != wanted.dtype or own.num_elements != wanted.num_elements:
            raise ValueError(f"{name[:40]!r} is {own}, and no {wanted}")


def _check_block(found: ProgramPlan, block: BlockPlan) -> None:
    """Refuse steps that read what is not written yet, or that are of another size than what they read."""
    numbers = range(len(block.operands))
    inputs = {f"{word}{number}" for word in ("operand", "rows", "ids") for number in numbers}
    known = (inputs & set(block.rules)) | found.constant_names
    written: set[str] = set()
    moved: set[str] = set()  # which several moves may write to
    for step in block.steps:
        for name in written_by(step):
            if name in known - moved or (name in written and isinstance(step, KernelStep)):
                raise ValueError(f"a step writes {name[:40]!r}, which is there already")
        for name in reads_by(step):
            if name not in known | written:
                raise ValueError(f"a step reads {name[:40]!r} before it is computed")
        if isinstance(step, MoveStep):
            check_move(step, *_row_types(found, block, step))
            moved.add(step.value)
        else:
            _check_kernel(found, block, step)
        written.update(written_by(step))
    if not set(block.outputs) <= written:
        raise ValueError(f"no step writes {min(set(block.outputs) - written)}")


def _row_types(found: ProgramPlan, block: BlockPlan, step: MoveStep) -> tuple[TensorType, TensorType | None]:
    """Return the type of a row that a move writes, and of one that it reads."""
    own = block.rules[step.value]
    target = own.row_type
    if step.source is None:
        return target, None
    if step.source in found.constant_names:
        type_ = found.constant_type(step.source)
        source = TensorType(type_.dtype, type_.shape[1:] if step.positions else type_.shape)
        fits = step.positions is None or step.positions.startswith("ids")
    else:
        rule = block.rules[step.source]
        source = rule.row_type
        fits = step.positions is None if rule.is_rows else block.are_rows_of(step.positions, step.source)
    if not fits:
        raise ValueError(f"rows of {step.source[:40]!r} at {str(step.positions)[:40]}")
    return target, source


def _check_kernel(found: ProgramPlan, block: BlockPlan, step: KernelStep) -> None:
    if step.repeat is not None:
        raise ValueError("a step that is repeated")
    if len({one.value for one in step.results}) < len(step.results):
        raise ValueError("a step writes a value twice")
    for one in (*step.arguments.values(), *step.results):
        _check_size(found, block, one)
    for extent in step.variables.values():
        linear(extent, found.max_rows)


def _check_size(found: ProgramPlan, block: BlockPlan, read: TensorRead) -> None:
    """Refuse a read of another size than what is there."""
    if read.value in found.constant_names:
        there = found.constant_type(read.value).shape
    else:
        there = block.rules[read.value].whole
    if product_of(read.shape) != product_of(there):
        raise ValueError(f"{read.value[:40]!r} as {[str(extent) for extent in read.shape]}")
    for extent in read.shape:
        if any(number < 0 for number in linear(extent, found.max_rows)):
            raise ValueError(f"an extent {extent}")


def linear(extent: Extent, max_rows: int) -> tuple[int, int, int]:
    """Return an extent as a number, 0, and what each row adds to it.

    Raises
    ------
    ValueError
        It is of another form.
    """
    number = rows = 0
    for coefficient, monomial in extent.terms:
        if monomial == (("B", 1),):
            rows += coefficient
        elif monomial in ((), (("T", 1),)):
            number += coefficient * (max_rows if monomial else 1)
        else:
            raise ValueError(f"an extent {extent}; allowed: a sum of multiples of B and T")
    return number, 0, rows
