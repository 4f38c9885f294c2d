"""The dispatch rule: a decision tree over integer shape variables, total over all integers.

The library's host code is compiled from it. Every shape has a category, also those between and beyond the
instances that selection enumerated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dietcode.dispatcher.problem import IntArray
from dietcode.errors import LibraryError, ShapeError

MAX_DEPTH = 128
MAX_LEAVES = 65536
MAX_DIVISOR = 1 << 20
_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True)
class Leaf:
    """A leaf: all points that reach it go to `category`."""

    category: int


@dataclass(frozen=True)
class Branch:
    """Points with ``variable <= threshold`` go `below`, the others `above`."""

    variable: str
    threshold: int
    below: Node
    above: Node


@dataclass(frozen=True)
class Modulus:
    """Points whose variable is a multiple of `divisor`, from 1, go to `multiples`, the others to `others`."""

    variable: str
    divisor: int
    multiples: Node
    others: Node


Node: TypeAlias = Leaf | Branch | Modulus


@dataclass(frozen=True)
class Rule:
    """A total map from shapes to categories.

    Attributes
    ----------
    variables : tuple of str
        Shape variables, in the order of the columns of `predict`'s argument.
    num_categories : int
        Categories are 0 … num_categories − 1.
    root : Leaf, Branch or Modulus
    """

    variables: tuple[str, ...]
    num_categories: int
    root: Node

    def select(self, binding: Mapping[str, int]) -> int:
        """Return the category of one shape.

        Raises
        ------
        ShapeError
            A variable that is missing or not an integer.
        """
        for name in self.variables:
            value = binding.get(name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer):
                raise ShapeError(f"shape variable {name} is {value!r}; give an integer")
        node = self.root
        while not isinstance(node, Leaf):
            first, other = _children(node)
            value = binding[node.variable]
            goes = value <= node.threshold if isinstance(node, Branch) else value % node.divisor == 0
            node = first if goes else other
        return node.category

    def predict(self, bindings: ArrayLike) -> IntArray:
        """Return int64 [n], the categories of int64 [n, num_variables].

        Raises
        ------
        ShapeError
            An array of another shape.
        """
        points = np.asarray(bindings, dtype=np.int64)
        if points.ndim != 2 or points.shape[1] != len(self.variables):
            raise ShapeError(f"bindings have shape {points.shape}; give [n, {len(self.variables)}]")
        result = np.empty(len(points), dtype=np.int64)
        stack: list[tuple[Node, IntArray]] = [(self.root, np.arange(len(points)))]
        while stack:
            node, where = stack.pop()
            if isinstance(node, Leaf):
                result[where] = node.category
                continue
            values = points[where, self.variables.index(node.variable)]
            goes = values <= node.threshold if isinstance(node, Branch) else values % node.divisor == 0
            first, other = _children(node)
            stack += [(first, where[goes]), (other, where[~goes])]
        return result

    @property
    def num_leaves(self) -> int:
        """Number of leaves."""
        return sum(1 for _ in _leaves(self.root))

    @property
    def depth(self) -> int:
        """The most comparisons that a shape takes."""
        return max(depth for depth, _ in _leaves(self.root))

    def ranges(self, low: int, high: int) -> list[tuple[int, int, int]]:
        """Return the runs ``(low, high, category)``, both ends included, of one variable in [low, high].

        Raises
        ------
        ValueError
            A rule over several variables or with remainders, or an empty range.
        """
        if len(self.variables) != 1 or low > high or has_modulus(self.root):
            raise ValueError(
                f"ranges({low}, {high}) over {self.variables}; give one, by thresholds, and low <= high"
            )
        runs: list[tuple[int, int, int]] = []
        stack: list[tuple[Node, int, int]] = [(self.root, low, high)]
        while stack:
            node, first, last = stack.pop()
            if first > last:
                continue
            if isinstance(node, Branch):
                cut = node.threshold
                stack += [(node.above, max(first, cut + 1), last), (node.below, first, min(last, cut))]
            elif isinstance(node, Leaf):
                joins = bool(runs) and runs[-1][2] == node.category
                begin = runs.pop()[0] if joins else first
                runs.append((begin, last, node.category))
        return runs

    def to_json(self) -> dict[str, Any]:
        """Return the rule as JSON-able data; `from_json` reads it."""
        return {
            "variables": list(self.variables),
            "num_categories": self.num_categories,
            "tree": _node_to_json(self.root),
        }

    @classmethod
    def from_json(cls, obj: Any) -> Rule:
        """Read a rule from untrusted data.

        Raises
        ------
        LibraryError
            Anything but what `to_json` writes, more than `MAX_LEAVES` leaves, or deeper than `MAX_DEPTH`.
        """
        _check_keys(obj, {"variables", "num_categories", "tree"}, "rule")
        variables, num_categories = obj["variables"], obj["num_categories"]
        named = isinstance(variables, list) and all(isinstance(name, str) and name for name in variables)
        if not named or len(set(variables)) != len(variables):
            raise LibraryError("dispatch rule: variables must be a list of distinct names")
        if not _is_int(num_categories, range(1, MAX_LEAVES + 1)):
            raise LibraryError(f"dispatch rule: num_categories must be an integer from 1 to {MAX_LEAVES}")
        reader = _TreeReader(frozenset(variables), num_categories)
        return cls(tuple(variables), num_categories, reader.node(obj["tree"], 0))


def merged(node: Node) -> Node:
    """Merge sibling leaves of one category, all the way up."""
    if isinstance(node, Leaf):
        return node
    first, other = (merged(child) for child in _children(node))
    if isinstance(first, Leaf) and first == other:
        return first
    if isinstance(node, Modulus):
        return Modulus(node.variable, node.divisor, first, other)
    return Branch(node.variable, node.threshold, first, other)


def has_modulus(root: Node) -> bool:
    """Whether a tree asks for remainders."""
    return not isinstance(root, Leaf) and (
        isinstance(root, Modulus) or any(has_modulus(child) for child in _children(root))
    )


def _children(node: Branch | Modulus) -> tuple[Node, Node]:
    return (node.below, node.above) if isinstance(node, Branch) else (node.multiples, node.others)


def balanced(variable: str, ends: Sequence[int], categories: Sequence[int]) -> Node:
    """Build the shallowest tree over runs of one variable.

    Run ``r`` has ``categories[r]`` and ends, inclusive, at ``ends[r]``; the last run has no end, so `ends` is
    one shorter than `categories`.
    """
    if not ends:
        return Leaf(int(categories[0]))
    middle = len(ends) // 2
    return Branch(
        variable,
        int(ends[middle]),
        balanced(variable, ends[:middle], categories[: middle + 1]),
        balanced(variable, ends[middle + 1 :], categories[middle + 1 :]),
    )


def _leaves(root: Node) -> Iterator[tuple[int, Leaf]]:
    stack: list[tuple[int, Node]] = [(0, root)]
    while stack:
        depth, node = stack.pop()
        if isinstance(node, Leaf):
            yield depth, node
        else:
            stack += [(depth + 1, child) for child in reversed(_children(node))]


def _node_to_json(node: Node) -> dict[str, Any]:
    if isinstance(node, Leaf):
        return {"category": node.category}
    if isinstance(node, Modulus):
        return {
            "variable": node.variable,
            "divisor": node.divisor,
            "multiples": _node_to_json(node.multiples),
            "others": _node_to_json(node.others),
        }
    return {
        "variable": node.variable,
        "threshold": node.threshold,
        "below": _node_to_json(node.below),
        "above": _node_to_json(node.above),
    }


def _is_int(value: Any, allowed: range) -> bool:
    return type(value) is int and value in allowed


def _check_keys(obj: Any, keys: set[str], what: str) -> None:
    if not isinstance(obj, dict) or set(obj) != keys:
        raise LibraryError(
            f"dispatch rule: a {what} must be an object with exactly {', '.join(sorted(keys))}"
        )


class _TreeReader:
    """Reads the nodes of one rule, and counts the leaves."""

    def __init__(self, variables: frozenset[str], num_categories: int) -> None:
        self.variables, self.categories, self.num_leaves = variables, range(num_categories), 0

    def node(self, obj: Any, depth: int) -> Node:
        """Read one node and all below it."""
        if depth > MAX_DEPTH:
            raise LibraryError(f"dispatch rule: the tree is deeper than {MAX_DEPTH}")
        if isinstance(obj, dict) and "category" in obj:
            return self._leaf(obj)
        if isinstance(obj, dict) and "divisor" in obj:
            _check_keys(obj, {"variable", "divisor", "multiples", "others"}, "modulus")
            name, divisor = self._variable(obj["variable"]), obj["divisor"]
            if not _is_int(divisor, range(2, MAX_DIVISOR + 1)):
                raise LibraryError(f"dispatch rule: a divisor must be an integer from 2 to {MAX_DIVISOR}")
            multiples, others = (self.node(obj[key], depth + 1) for key in ("multiples", "others"))
            return Modulus(name, divisor, multiples, others)
        _check_keys(obj, {"variable", "threshold", "below", "above"}, "branch")
        name, threshold = self._variable(obj["variable"]), obj["threshold"]
        if not _is_int(threshold, _INT64):
            raise LibraryError("dispatch rule: a threshold must be a 64-bit integer")
        return Branch(name, threshold, self.node(obj["below"], depth + 1), self.node(obj["above"], depth + 1))

    def _variable(self, name: Any) -> str:
        if not isinstance(name, str) or name not in self.variables:
            raise LibraryError("dispatch rule: a branch names no variable of the rule")
        return name

    def _leaf(self, obj: Any) -> Leaf:
        _check_keys(obj, {"category"}, "leaf")
        self.num_leaves += 1
        if self.num_leaves > MAX_LEAVES:
            raise LibraryError(f"dispatch rule: more than {MAX_LEAVES} leaves")
        if not _is_int(obj["category"], self.categories):
            raise LibraryError(f"dispatch rule: a category must be an integer below {len(self.categories)}")
        return Leaf(obj["category"])
