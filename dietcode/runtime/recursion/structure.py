"""What a recursion runs over: trees, sequences, DAGs, or many of them at once."""

from __future__ import annotations

import itertools
import operator
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dietcode.errors import ShapeError, TensorError
from dietcode.runtime import native_loops
from dietcode.runtime.native_loops import Positions
from dietcode.runtime.tensors import check_values
from dietcode.workload.text import counted

_MAX_DEPTH = 1 << 20
Phases = tuple[bool, bool, int, bool, bool]  # as `Structure.ranges` takes them


class PreparedStructure(NamedTuple):
    """What a call asks of a structure, found once.

    Attributes
    ----------
    addresses : dict of str to int
        Of ``order``, and of ``child0`` and so on or of ``children``.
    ranges, without_leaves : int64 array [ranges, 3]
        All, and those of a call that asks for the roots alone: where the first level has a phase of its own,
        without phase 1 unless other nodes read leaves, or a leaf is a root.
    sizes : (int, int, int, int)
        Nodes, leaves, and the rows of the largest range of phase 2, and of phase 3.
    """

    addresses: dict[str, int]
    ranges: NDArray[np.int64]
    without_leaves: NDArray[np.int64]
    sizes: tuple[int, int, int, int]


class Structure:
    """Nodes and their children. Nothing in it changes.

    Parameters
    ----------
    children : integer array [nodes, columns]
        The numbers of each node's children, -1 where there is none; nodes may come in any order, and may be
        children of several. An empty list has no node.
    roots : integer array [roots], optional
        The nodes whose states are asked for; by default nobody's children, in the order of their numbers.
    objects : sequence, optional
        What the nodes were made from.

    Attributes
    ----------
    children : int32 array [nodes, columns]
    roots : int32 array [roots]
    objects : tuple
        In the order of the nodes, where the structure was made by `Structure.of`.
    order, positions : int32 array [nodes]
        The numbers of the nodes in linear order, leaves first and then level by level; and the reverse.
    level_begins : int32 array [levels + 1]
        Where each level begins in linear order, and where the last one ends. A level is the longest way down
        to a leaf.
    linearize_secs : float
        What that took.

    Raises
    ------
    TensorError
        Not an array of integers with two axes.
    ShapeError
        A child is no node, a node is its own descendant, or the structure is deeper than 2^20.
    """

    def __init__(self, children: Any, roots: Any = None, objects: Sequence[Any] = ()) -> None:
        self.children = _as_positions("children", children, 2)
        self.objects = tuple(objects)
        begin = time.perf_counter()
        self.order, self.positions, self.level_begins, found, problem = native_loops.linearize(self.children)
        self.linearize_secs = time.perf_counter() - begin
        self._check(*problem)
        self.roots = found if roots is None else self._checked_roots(roots)
        for one in (self.children, self.order, self.positions, self.level_begins, self.roots):
            one.flags.writeable = False
        self._places: dict[int, Positions] = {}
        self._ranges: dict[Phases, NDArray[np.int64]] = {}
        self._prepared: dict[Any, PreparedStructure] = {}
        self._root_positions: Positions | None = None

    @classmethod
    def of(cls, roots: Iterable[Any], children: Callable[[Any], Iterable[Any] | None] | str) -> Structure:
        """Make a structure of Python objects that point at each other; one that is met again is one node.

        Parameters
        ----------
        roots : iterable of object
            Results come in this order. A node that is below another one may be among them.
        children : callable or str
            Gives the children of an object, in their order, None for one that is not there; or the name of
            the attribute that holds them. None and an empty iterable are those of a leaf.

        Raises
        ------
        TensorError
            `roots` is no list of objects.
        ShapeError
            An object is its own descendant.
        """
        of = operator.attrgetter(children) if isinstance(children, str) else children
        try:
            given = list(roots)
        except TypeError as error:
            raise TensorError(f"roots: {type(roots).__name__}; allowed: a list of objects") from error
        if any(one is None for one in given):
            raise TensorError("roots: None is among them; allowed: objects")
        objects, rows = _walked(given, of)
        numbers = {id(one): number for number, one in enumerate(objects)}
        places = [[-1 if one is None else numbers[id(one)] for one in row] for row in rows]
        columns = list(itertools.zip_longest(*places, fillvalue=-1))
        array = np.array(columns, np.int32).reshape(len(columns), len(objects)).T
        return cls(array, [numbers[id(one)] for one in given], objects)

    def __reduce__(self) -> tuple[type[Structure], tuple[Any, ...]]:
        """Return what `pickle` keeps: what it was made from."""
        return type(self), (self.children, self.roots, self.objects)

    def __repr__(self) -> str:
        """Return one line with its sizes."""
        return (
            f"<dietcode.Structure: {counted(self.num_nodes, 'node')}, {counted(len(self.roots), 'root')}, "
            f"{counted(self.num_levels, 'level')}, at most {self.max_children} children>"
        )

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""
        return len(self.children)

    @property
    def max_children(self) -> int:
        """The number of columns of `children`."""
        return int(self.children.shape[1])

    @property
    def num_levels(self) -> int:
        """The number of levels, leaves among them."""
        return len(self.level_begins) - 1

    @property
    def num_leaves(self) -> int:
        """The number of nodes without any child."""
        return int(self.level_begins[1]) if self.num_levels else 0

    @property
    def root_positions(self) -> Positions:
        """Where the roots lie in linear order."""
        if self._root_positions is None:
            self._root_positions = self.positions[self.roots]
        return self._root_positions

    def child_places(self, num_slots: int) -> Positions:
        """Return where the children lie in linear order; the number of nodes for those that are not there.

        Parameters
        ----------
        num_slots : int
            Children that a cell takes.

        Returns
        -------
        int32 array [num_slots, nodes]

        Raises
        ------
        ShapeError
            A node may have more children.
        """
        found = self._places.get(num_slots)
        if found is None:
            if num_slots < self.max_children:
                raise ShapeError(
                    f"structure: {self.max_children} children; allowed: up to {num_slots} a node"
                )
            begin = time.perf_counter()
            own = self.children, self.order, self.positions
            found = self._places[num_slots] = native_loops.place_children(*own, num_slots)
            self.linearize_secs += time.perf_counter() - begin
        return found

    def ranges(
        self,
        has_before: bool,
        has_leaf: bool,
        max_rows: int,
        skips_leaves: bool = False,
        has_first: bool = False,
    ) -> NDArray[np.int64]:
        """Return the ranges that a recursion's program runs over: phase, begin and rows of each.

        Parameters
        ----------
        has_before : bool
            Whether phase 0 is run once, for all nodes.
        has_leaf : bool
            Whether phase 1 is run once, for the leaves; otherwise phase 2 takes them too.
        max_rows : int
            The most rows of a range of phases 2 and 3; a larger level has several.
        skips_leaves : bool
            Whether phase 0 is run for all nodes but the leaves.
        has_first : bool
            Whether phase 3 is run for the first level, whose nodes have leaves alone for children.
        """
        key = (has_before, has_leaf, max_rows, skips_leaves, has_first)
        found = self._ranges.get(key)
        if found is None:
            first = self.num_leaves if skips_leaves else 0
            before = (0, first, self.num_nodes - first)
            pieces = [before] * (has_before and before[2] > 0) + [(1, 0, self.num_leaves)] * has_leaf
            for begin, end in itertools.pairwise(self.level_begins[has_leaf:].tolist()):
                phase = 3 if has_first and begin == self.num_leaves else 2
                pieces += [(phase, at, min(max_rows, end - at)) for at in range(begin, end, max_rows)]
            found = self._ranges[key] = native_loops.ranges_of(pieces)
        return found

    def prepared(self, num_slots: int, phases: Phases) -> PreparedStructure:
        """Return what a call needs.

        Parameters
        ----------
        num_slots : int
            As for `child_places`.
        phases
            As for `ranges`.

        Raises
        ------
        ShapeError
            A node may have more children.
        """
        key = (num_slots, phases)
        found = self._prepared.get(key)
        if found is None:
            first = native_loops.address_of(self.child_places(num_slots))
            addresses = {f"child{slot}": first + 4 * self.num_nodes * slot for slot in range(num_slots)}
            addresses["order"] = native_loops.address_of(self.order)
            ranges = self.ranges(*phases)
            short = ranges
            if phases[-1] and not self._reads_leaves(num_slots):
                short = np.ascontiguousarray(ranges[ranges[:, 0] != 1])
            rows, of_first = (int(ranges[ranges[:, 0] == phase, 2].max(initial=0)) for phase in (2, 3))
            sizes = self.num_nodes, self.num_leaves, rows, of_first
            found = self._prepared[key] = PreparedStructure(addresses, ranges, short, sizes)
        return found

    def first_level(self) -> tuple[int, int]:
        """Return where the nodes above the leaves that have leaves alone for children begin, and end."""
        begins = self.level_begins.tolist()
        return (begins[1], begins[2]) if len(begins) > 2 else (self.num_leaves, self.num_leaves)

    def _reads_leaves(self, num_slots: int) -> bool:
        """Whether nodes above the first level have leaves for children, or a leaf is a root."""
        above = self.child_places(num_slots)[:, self.first_level()[1] :]
        return any(bool((one < self.num_leaves).any()) for one in (above, self.root_positions))

    def _check(self, problem: str, node: int) -> None:
        if problem == "out of range":
            last = self.num_nodes - 1
            wrong = next(one for one in self.children[node].tolist() if not -1 <= one <= last)
            raise ShapeError(f"children: node {node} has child {wrong}; allowed: -1 for none, or 0…{last}")
        if problem == "cycle":
            raise ShapeError(f"children: node {node} is its own descendant; allowed: trees and DAGs")
        if problem == "too deep":
            raise ShapeError(f"children: node {node} is over {_MAX_DEPTH} levels high; allowed: {_MAX_DEPTH}")
        if problem:
            raise MemoryError(f"children: no memory for {self.num_nodes} nodes")

    def _checked_roots(self, roots: Any) -> Positions:
        found = _as_positions("roots", roots, 1)
        wrong = found[(found < 0) | (found >= self.num_nodes)]
        if wrong.size:
            raise ShapeError(f"roots: {wrong[0]} is no node; allowed: 0…{self.num_nodes - 1}")
        return found


def _as_positions(name: str, values: Any, rank: int) -> Positions:
    """Return a contiguous copy as int32.

    Raises
    ------
    TensorError
        It is no array of integers of that rank.
    ShapeError
        A number is outside of int32, or there are as many nodes.
    """
    check_values(name, values)
    try:
        array = np.asarray(values)
    except Exception as error:
        given = type(values).__name__
        is_ragged = (
            rank == 2 and isinstance(values, list | tuple) and all(hasattr(one, "__len__") for one in values)
        )
        if is_ragged and len({len(one) for one in values}) > 1:
            given += " of rows of several lengths, which -1 fills up"
        raise TensorError(f"{name}: {given}; allowed: an array of integers") from error
    if array.shape == (0,):
        array = array.reshape((0,) * rank)
    if array.size == 0 and array.ndim == rank:  # an empty list has no dtype of its own
        array = array.astype(np.int32)
    if array.ndim != rank or array.dtype.kind not in "iu":
        given = f"{array.dtype}{list(array.shape)}"
        allowed = "int32 [nodes, children of a node], -1 for none" if rank == 2 else "int32 [roots]"
        raise TensorError(f"{name}: {given}; allowed: {allowed}")
    limits = np.iinfo(np.int32)
    if len(array) >= limits.max:
        raise ShapeError(f"{name}: {len(array)} nodes; allowed: below {limits.max}")
    if array.dtype != np.int32 and array.size:
        low, high = int(array.min()), int(array.max())
        if low < limits.min or high > limits.max:
            wrong = low if low < limits.min else high
            raise ShapeError(f"{name}: {wrong}; allowed: -1 for none, or the number of a node")
    return np.array(array, np.int32, order="C")


def _walked(
    roots: Iterable[Any], children: Callable[[Any], Iterable[Any] | None]
) -> tuple[list[Any], list[list[Any]]]:
    """Return all objects, children before their parents, and the children of each."""
    objects: list[Any] = []
    rows: list[list[Any]] = []
    is_done: dict[int, bool] = {}  # False while its children are being walked
    for root in roots:
        stack: list[tuple[Any, list[Any], int]] = []
        if id(root) not in is_done:
            is_done[id(root)] = False
            stack.append((root, list(children(root) or ()), 0))
        while stack:
            node, row, next_one = stack.pop()
            while next_one < len(row) and (row[next_one] is None or is_done.get(id(row[next_one]))):
                next_one += 1
            if next_one == len(row):
                is_done[id(node)] = True
                objects.append(node)
                rows.append(row)
                continue
            child = row[next_one]
            if id(child) in is_done:
                shown = " ".join(repr(child).split())[:80]
                raise ShapeError(f"roots: {shown} is its own descendant; allowed: trees and DAGs")
            stack.append((node, row, next_one + 1))
            is_done[id(child)] = False
            stack.append((child, list(children(child) or ()), 0))
    return objects, rows
