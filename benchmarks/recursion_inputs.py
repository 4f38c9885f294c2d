"""Structures that recursions are measured on: perfect trees, random trees, syntax trees, grids, sequences."""

from __future__ import annotations

import ast
import math
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dietcode.runtime.recursion.structure import Structure

Rows = list[list[int]]
_MOST_STATEMENTS = 30  # of a syntax tree, so that it is about as large as a long sentence's


def perfect_tree(height: int = 7) -> Rows:
    """A binary tree with 2^height leaves; children before their parents."""
    rows: Rows = [[-1, -1] for _ in range(2**height)]
    level = range(len(rows))
    while len(level) > 1:
        begin = len(rows)
        rows += [[level[k], level[k + 1]] for k in range(0, len(level), 2)]
        level = range(begin, len(rows))
    return rows


def sentence_tree(rng: np.random.Generator) -> Rows:
    """A random binary tree about as the Stanford Sentiment Treebank's are.

    The leaves are Gamma(4.2, 19.1/4.2), in 2 to 52; each inner node gives Beta(0.6, 1.6) of its leaves to one
    side, either one.
    """
    rows: Rows = []

    def build(num_leaves: int) -> int:
        row = [-1, -1]
        if num_leaves > 1:
            share = rng.beta(0.6, 1.6)
            one = min(max(round(share * num_leaves), 1), num_leaves - 1)
            left = one if rng.random() < 0.5 else num_leaves - one
            row = [build(left), build(num_leaves - left)]
        rows.append(row)
        return len(rows) - 1

    build(int(np.clip(round(rng.gamma(4.2, 19.1 / 4.2)), 2, 52)))
    return rows


def grid(height: int = 10, width: int = 10) -> Rows:
    """Nodes that follow the ones above, to the left, and above to the left."""
    rows: Rows = []
    for y in range(height):
        for x in range(width):
            near = [(y - 1, x), (y, x - 1), (y - 1, x - 1)]
            rows.append([v * width + u if v >= 0 and u >= 0 else -1 for v, u in near])
    return rows


def sequence(length: int = 100) -> Rows:
    """One step after the other."""
    return [[step - 1] for step in range(length)]


def syntax_trees() -> Iterator[Rows]:
    """Functions of the standard library, as binary trees: a node's first child, and what follows the node."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        try:
            parsed = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        for node in ast.walk(parsed):
            if isinstance(node, ast.FunctionDef) and len(node.body) <= _MOST_STATEMENTS:
                yield _as_binary(node)


def _as_binary(root: ast.AST) -> Rows:
    links: dict[int, list[Any]] = {}
    for node in ast.walk(root):
        children = list(ast.iter_child_nodes(node))
        links.setdefault(id(node), [None, None])[0] = children[0] if children else None
        for one, other in pairwise(children):
            links.setdefault(id(one), [None, None])[1] = other
    return Structure.of([root], lambda node: links.get(id(node))).children.tolist()


def _forest(trees: Sequence[Rows]) -> Structure:
    """All trees as one structure."""
    rows: Rows = []
    for tree in trees:
        begin = len(rows)
        rows += [[-1 if one < 0 else begin + one for one in row] for row in tree]
    return Structure(rows)


def batch_of(kind: str, batch: int, seed: int = 0) -> Structure:
    """Return a batch of structures of a kind.

    Parameters
    ----------
    kind : str
        A key of `KINDS`.
    batch : int
        How many.
    seed : int
        For random ones.
    """
    return _forest(KINDS[kind](batch, np.random.default_rng(seed)))


def _every(trees: Iterator[Rows], batch: int) -> list[Rows]:
    """Some of many, spread over them."""
    found = [tree for tree in islice(trees, 160) if 20 <= len(tree) <= 400]
    return [found[k * len(found) // batch] for k in range(batch)]


KINDS: dict[str, Callable[[int, np.random.Generator], list[Rows]]] = {
    "perfect": lambda batch, rng: [perfect_tree()] * batch,
    "sentences": lambda batch, rng: [sentence_tree(rng) for _ in range(batch)],
    "syntax": lambda batch, rng: _every(syntax_trees(), batch),
    "grids": lambda batch, rng: [grid()] * batch,
    "sequences": lambda batch, rng: [sequence()] * batch,
}


def described(structure: Structure) -> dict[str, Any]:
    """Return what a result says of a structure, the nanoseconds that its order took among it."""
    sizes: NDArray[Any] = np.diff(structure.level_begins)
    return {
        "nodes": structure.num_nodes,
        "levels": structure.num_levels,
        "leaves": structure.num_leaves,
        "mean_level": float(sizes[1:].mean()) if len(sizes) > 1 else math.nan,
        "linearize_nsecs_a_node": 1e9 * structure.linearize_secs / structure.num_nodes,
    }


def products_of(kind: str, hidden: int, structure: Structure) -> float:
    """Return the FLOPs of the products that a model needs, where inputs are as wide as states.

    Products of what depends on a word alone are needed once, not for each call.

    Parameters
    ----------
    kind : str
        Of model, as ``benchmarks/recursion.py`` names them.
    hidden : int
        Elements of a state; of MV-RNN rows of a state.
    structure : Structure
    """
    nodes, leaves = structure.num_nodes, structure.num_leaves
    inner, edges = nodes - leaves, int((structure.children >= 0).sum())
    # Products of a row with a square matrix: of a leaf, of another node, of a child.
    of_leaf, of_node, of_child = {
        "tree-fc": (0, 0, 1),
        "tree-lstm": (3, 4 + 3, 1),
        "tree-gru": (2, 3 + 3, 0),
        "dag-rnn": (1, 2, 0),
        "lstm": (3, 4 + 4, 0),
        "mv-rnn": (0, 0, 2 + hidden),
    }[kind]
    of_words = {"tree-fc": 1, "mv-rnn": hidden}.get(kind, 0) * first_edges(structure)
    return 2.0 * hidden**2 * (of_leaf * leaves + of_node * inner + of_child * edges - of_words)


def first_edges(structure: Structure) -> int:
    """Return the children of nodes that have leaves alone for children."""
    begin, end = structure.first_level()
    return int((structure.children[structure.order[begin:end]] >= 0).sum())
