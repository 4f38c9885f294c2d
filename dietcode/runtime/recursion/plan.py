"""The description of a recursion, read and checked: ``recursion.json`` of a bundle.

    {"format", "name", "max_children",
     "x": {"dtype", "shape"} or null,                of one node; int32 without a shape: a row of a table
     "states": [{"dtype", "shape"}],                 of one node
     "num_results",               how many of these calls return, all where it is left out; nodes alone read
                                  the others, of their children
     "max_nodes", "max_level", "single_output",
     "weights": {name: {"dtype", "shape"}}, "load": [step],    as a model has them
     "values": {name: {"dtype", "shape"}},
     "before": [step], "leaf": [step], "cell": [step],
     "first": [step], "leaf_rows": number}           may be left out

Steps are calls of kernels, as a model has them, and moves (see `dietcode.runtime.recursion.moves`).
Extents follow from N, the nodes of a structure; B, the rows of a range;
and T, which is N + 1. Beside values that steps write, they read

    x        [N, …]    inputs of all nodes, in the user's order
    ids      [B]       the same where they are integers, of the rows
    order    [B]       int32: the user's numbers of the rows
    child0 … [B]       int32: where the rows' children lie in the tables, N where there is none
    leaf0 …  [B]       int32, `first` alone: which of `leaf_rows` leaves the rows' children are, `leaf_rows`
                       where there is none; their ids, or 0 where all leaves are the same
    state0 … [T, …]    tables of states, in linear order, whose last row is zeros
    next0 …  [B, …]    the rows of these tables; to be written

`before` runs once for all nodes, or for all but the leaves where `leaf` reads nothing of it, and what it
writes has rows for all; `leaf` once for the leaves; `cell` for each level, and for the leaves too where
`leaf` is empty; `first` in the place of `cell` for the first level, whose nodes have leaves for children. It
reads no states, so that `leaf` is not run where no other node reads leaves and nobody asks for their states.
What these write is theirs alone, and the next range overwrites it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
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
from dietcode.runtime.recursion.moves import MoveStep, check_move
from dietcode.runtime.recursion.rows import (
    ReadingRule,
    RowDescription,
    RowStep,
    read_row_step,
    reads_by,
    written_by,
)

FORMAT = "dietcode-recursion/1"
PHASES = ("before", "leaf", "cell", "first")  # in the order of their numbers in a program
FIRST = 3
_NODES, _ROWS, _TABLE = Extent.of("N"), Extent.of("B"), Extent.of("N") + 1
_MOST = 2**31 - 2  # positions are int32, and the one behind all nodes is one too


@dataclass(frozen=True)
class RecursionDescription(RowDescription):
    """A recursion as the runtime takes it."""

    name: str
    max_children: int
    x: TensorType | None
    states: tuple[TensorType, ...]
    max_nodes: int
    max_level: int
    single_output: bool
    weights: dict[str, TensorType]
    load: tuple[HostStep, ...]
    values: dict[str, TensorType]
    phases: tuple[tuple[RowStep, ...], ...]
    leaf_rows: int = 0
    num_results: int = 0

    @property
    def results(self) -> tuple[TensorType, ...]:
        """The states that calls return."""
        return self.states[: self.num_results]

    @property
    def groups(self) -> tuple[tuple[RowStep, ...], ...]:
        """The steps of each phase."""
        return self.phases

    @property
    def hoisted(self) -> dict[str, TensorType]:
        """The values that `before` writes, by name."""
        return {name: self.values[name] for step in self.phases[0] for name in written_by(step)}

    @cached_property
    def skips_leaves(self) -> bool:
        """Whether nothing reads what `before` writes for leaves."""
        read = {name for step in self.phases[1] for name in reads_by(step)}
        return bool(self.phases[1]) and read.isdisjoint(self.hoisted)

    @cached_property
    def inputs(self) -> dict[str, ReadingRule]:
        """What steps read that no step writes, but for constants and states."""
        found = {"order": ReadingRule("int32", (_ROWS,), True)}
        if self.x is not None:
            if self.takes_ids:
                found["ids"] = ReadingRule("int32", (_ROWS,), True)
            else:
                found["x"] = ReadingRule(self.x.dtype, (_NODES, *self.x.shape), False)
        for number in range(self.max_children):
            found[f"child{number}"] = ReadingRule("int32", (_ROWS,), True)
            if self.leaf_rows:
                found[f"leaf{number}"] = ReadingRule("int32", (_ROWS,), True)
        return found

    @property
    def takes_ids(self) -> bool:
        """Whether a node's input is one integer."""
        return self.x is not None and not self.x.shape and self.x.dtype.startswith("int")

    def rule(self, phase: int, name: str) -> ReadingRule:
        """Return what a name stands for that is no constant.

        Raises
        ------
        KeyError
            Nothing.
        """
        if name in self.inputs:
            return self.inputs[name]
        for number, state in enumerate(self.states):
            if name == f"state{number}":
                return ReadingRule(state.dtype, (_TABLE, *state.shape), False)
            if name == f"next{number}":
                return ReadingRule(state.dtype, (_ROWS, *state.shape), True)
        type_ = self.values[name]
        if not type_.shape or type_.shape[0] != (_NODES if name in self.hoisted else _ROWS):
            raise ValueError(f"{name[:40]!r} is {type_}, which has no row for each node")
        return ReadingRule(type_.dtype, (_ROWS, *type_.shape[1:]), True)


def read_recursion(data: Mapping[str, Any]) -> RecursionDescription:
    """Return the description of a recursion.

    Raises
    ------
    LibraryError
        The data are of another format, or describe none.
    """
    return read_described(data, "recursion", FORMAT, _read)


def _read(data: Mapping[str, Any]) -> RecursionDescription:
    x = None if data["x"] is None else read_types({"x": data["x"]})["x"]
    states = [read_types({"state": one})["state"] for one in data["states"]]
    first = data.get(PHASES[FIRST], [])
    found = RecursionDescription(
        str(data["name"]),
        int(data["max_children"]),
        x,
        tuple(states),
        int(data["max_nodes"]),
        int(data["max_level"]),
        bool(data["single_output"]),
        read_types(data["weights"]),
        read_load(data["load"]),
        read_types(data["values"]),
        tuple(tuple(map(read_row_step, one)) for one in (*(data[word] for word in PHASES[:FIRST]), first)),
        int(data.get("leaf_rows", 0)),
        int(data.get("num_results", len(states))),
    )
    _check(found)
    return found


def _check(found: RecursionDescription) -> None:
    """Refuse what reads what is not there, or beyond what is there."""
    if not (1 <= found.max_level <= found.max_nodes <= _MOST and 0 <= found.max_children <= 1024):
        raise ValueError(f"max_level {found.max_level}, max_nodes {found.max_nodes}; at most {_MOST}")
    if not found.states or any(one.dtype != "float32" for one in found.states):
        raise ValueError("states are one or several of float32")
    if not 1 <= found.num_results <= len(found.states):
        raise ValueError(f"{found.num_results} results of {len(found.states)} states")
    if found.single_output and found.num_results > 1:
        raise ValueError(f"{found.num_results} states as a single output")
    own = (found.x, *found.states)
    for extent in (extent for type_ in own if type_ is not None for extent in type_.shape):
        if extent.constant < 0:
            raise ValueError(f"an extent of {extent.constant}")
    found.check_constants()
    if not found.phases[2]:
        raise ValueError("no step of the cell")
    has_first, most = bool(found.phases[FIRST]), _MOST - 1
    if (found.leaf_rows and not found.phases[1]) or not has_first <= found.leaf_rows <= has_first * most:
        raise ValueError(f"leaf_rows {found.leaf_rows}, and {len(found.phases[FIRST])} steps of first")
    taken = {*found.constant_names, *found.inputs}
    taken |= {f"{word}{number}" for number in range(len(found.states)) for word in ("state", "next")}
    for name in sorted(found.hoisted):
        if name in taken:
            raise ValueError(f"before writes {name[:40]!r}, which is there already")
    for number, steps in enumerate(found.phases):
        _check_phase(found, number, steps)


def _check_phase(found: RecursionDescription, phase: int, steps: Sequence[RowStep]) -> None:
    """Refuse steps that read what is not written yet, or that are of another size than what they read."""
    states = {f"state{number}" for number in range(len(found.states))}
    wanted = {f"next{number}" for number in range(len(found.states))} if phase else set()
    children, leaves = ({one for one in found.inputs if one.startswith(word)} for word in ("child", "leaf"))
    known = {*found.inputs, *found.constant_names} - (set() if phase == FIRST else leaves)
    known = known | set(found.hoisted) if phase else known
    known = known | states if phase in (1, 2) else known - children
    written: set[str] = set()
    moved: set[str] = set()  # which several moves may write to
    for step in steps:
        for name in written_by(step):
            if phase and name not in wanted and name not in found.values and name not in known:
                raise ValueError(f"a step writes {name[:40]!r}, which is no value")
        if isinstance(step, MoveStep):
            _check_names((one for one in step.reads if one not in known), {step.value} & known - moved)
            check_move(step, *_row_types(found, phase, step))
            moved.add(step.value)
        else:
            _check_kernel(found, phase, step, known)
        written.update(written_by(step))
        known |= written
    if steps and not wanted <= written:
        raise ValueError(f"{PHASES[phase]} does not write {min(wanted - written)}")


def _check_names(unknown: Iterable[str], taken: Iterable[str]) -> None:
    for name in unknown:
        raise ValueError(f"a step reads {name[:40]!r} before it is computed")
    for name in taken:
        raise ValueError(f"a step writes {name[:40]!r}, which is there already")


def _check_kernel(found: RecursionDescription, phase: int, step: KernelStep, known: set[str]) -> None:
    if step.repeat is not None:
        raise ValueError("a step that is repeated")
    if len({one.value for one in step.results}) < len(step.results):
        raise ValueError("a step writes a value twice")
    reads = [one for one in step.arguments.values() if one.value not in found.constant_names]
    _check_names(
        [one.value for one in step.arguments.values() if one.value not in known],
        [one.value for one in step.results if one.value in known],
    )
    for one in (*reads, *step.results):
        _check_size(found, phase, one)
    for one in step.arguments.values():
        if one.value in found.constant_names:
            given = [extent.constant for extent in one.shape]
            if (
                min(given, default=0) < 0
                or prod(given) != found.constant_type(one.value).num_elements.constant
            ):
                raise ValueError(f"{one.value[:40]!r} as {given}")
    for extent in step.variables.values():
        linear(extent)


def _row_types(
    found: RecursionDescription, phase: int, step: MoveStep
) -> tuple[TensorType, TensorType | None]:
    """Return the type of a row that a move writes, and of one that it reads.

    Raises
    ------
    ValueError
        Its positions are those of rows of something else.
    """
    own = found.rule(phase, step.value)
    target = own.row_type
    if step.source is None:
        return target, None
    if step.source in found.constant_names:
        type_ = found.constant_type(step.source)
        source = TensorType(type_.dtype, type_.shape[1:] if step.positions else type_.shape)
        allowed = {None, *positions_in(found, phase, step.source, type_.shape)}
    else:
        rule = found.rule(phase, step.source)
        source = rule.row_type
        allowed = {None} if rule.is_rows else positions_in(found, phase, step.source, rule.whole)
    if step.positions not in allowed:
        raise ValueError(f"rows of {step.source[:40]!r} at {str(step.positions)[:40]}")
    return target, source


def positions_in(
    found: RecursionDescription, phase: int, source: str, shape: Sequence[Extent]
) -> set[str | None]:
    """Return the inputs that are positions of rows of a table, whatever structure a call has.

    Parameters
    ----------
    source : str
        The table: a constant, inputs or states of all nodes.
    shape : sequence of Extent
        In which it is read.
    """
    if source in found.constant_names:
        words = ["ids"]
        if phase == FIRST and tuple(shape[:1]) == (Extent.of(found.leaf_rows + 1),):
            words.append("leaf")
    elif found.rule(phase, source).is_rows:
        words = []
    else:
        words = ["child"] if source.startswith("state") else ["order"]
    return {name for name in found.inputs if name.rstrip("0123456789") in words}


def _check_size(found: RecursionDescription, phase: int, read: TensorRead) -> None:
    """Refuse a read of another size than what is there."""
    own = found.rule(phase, read.value).whole
    _ = found.rule(phase, read.value).row_elements
    given, there = (product_of(map(_plain, shape)) for shape in (read.shape, own))
    if given != there:
        raise ValueError(f"{read.value[:40]!r} as {[str(extent) for extent in read.shape]}")
    for extent in read.shape:
        if any(number < 0 for number in linear(extent)):
            raise ValueError(f"an extent {extent}")


def _plain(extent: Extent) -> Extent:
    """Return an extent over N and B."""
    total = Extent()
    for coefficient, monomial in extent.terms:
        product = Extent.of(coefficient)
        for factor, power in monomial:
            if factor not in ("N", "B", "T"):
                raise ValueError(f"an extent {extent}; allowed: of N, B and T")
            for _ in range(power):
                product = product * (_TABLE if factor == "T" else Extent.of(str(factor)))
        total = total + product
    return total


def linear(extent: Extent) -> tuple[int, int, int]:
    """Return an extent as a number, and what each node and each row adds to it.

    Raises
    ------
    ValueError
        It is of another form.
    """
    found = {(): 0, (("N", 1),): 0, (("B", 1),): 0}
    for coefficient, monomial in _plain(extent).terms:
        if monomial not in found:
            raise ValueError(f"an extent {extent}; allowed: a sum of multiples of N, B and T")
        found[monomial] += coefficient  # type: ignore[index]
    number, nodes, rows = found.values()
    return number, nodes, rows
