"""The same recursions in DyNet with automatic batching; the graph is made anew for each call, as users do.

DyNet batches products that share the nodes of their weight and their bias, and no reshapes: biases are added
once, and a table has words' matrices as they are multiplied. A product of x may be a part of the node that
has that of the children's states, or a node of its own, so that DyNet computes all of a call's together: one
way is faster for few structures, the other for many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from dietcode.runtime.recursion.structure import Structure

Cell = Callable[[Any, Sequence[Sequence[Any]]], Sequence[Any]]
# A bias, a weight and x, then nothing or a weight of h and h: what products of both are, added.
Sums = Callable[[Any, Any, Any], Callable[..., Any]]


class DynetRecursion:
    """A recursion over one structure, whose inputs are rows of a table of DyNet's.

    Parameters
    ----------
    kind : str
        A key of `CELLS`.
    weights : mapping of str to array
    structure : Structure
    x : array [nodes, width] or int32 [nodes]
        Numbers of rows where it is of integers.
    apart : bool
        Whether products of x are nodes of their own; of `APART` alone.
    """

    def __init__(
        self, kind: str, weights: Mapping[str, Any], structure: Structure, x: Any, apart: bool = False
    ) -> None:
        import dynet

        self._dynet = dynet
        self._parameters = dynet.ParameterCollection()
        arrays = {name: np.asarray(one) for name, one in weights.items()}
        if "bias_ih" in arrays:
            arrays["bias"] = arrays.pop("bias_ih") + arrays.pop("bias_hh")
        if "leaf_matrices" in arrays:  # `lookup_parameters_from_numpy` transposes them
            hidden = arrays["join"].shape[0]
            arrays["leaf_matrices"] = arrays["leaf_matrices"].reshape(-1, hidden, hidden).swapaxes(1, 2)
        self._weights = {
            name: self._parameters.parameters_from_numpy(one)
            for name, one in arrays.items()
            if name not in ("vectors", "leaf_matrices")
        }
        self._tables = {
            name: self._parameters.lookup_parameters_from_numpy(arrays[name])
            for name in ("vectors", "leaf_matrices")
            if name in arrays
        }
        if x.dtype.kind == "f":
            self._tables["x"] = self._parameters.lookup_parameters_from_numpy(x)
        self._sums = partial(_apart if apart else _joined, dynet)
        self._kind, self._ids = kind, x.tolist() if x.dtype.kind == "i" else list(range(len(x)))
        self._order = structure.order.tolist()
        self._rows = [[one for one in row if one >= 0] for row in structure.children.tolist()]
        self._roots = structure.roots.tolist()

    def __call__(self) -> Any:
        """Return the first states of all roots."""
        dynet = self._dynet
        dynet.renew_cg()
        cell = CELLS[self._kind](dynet, self._weights, self._tables, self._sums)
        states: list[Any] = [None] * len(self._rows)
        for node in self._order:
            states[node] = cell(self._ids[node], [states[child] for child in self._rows[node]])
        results = [states[root][0] for root in self._roots]
        dynet.forward(results)
        return np.stack([one.npvalue() for one in results])


def _joined(dy: Any, bias: Any, of_x: Any, x: Any) -> Callable[..., Any]:
    return lambda *of_h: dy.affine_transform([bias, of_x, x, *of_h])


def _apart(dy: Any, bias: Any, of_x: Any, x: Any) -> Callable[..., Any]:
    given = dy.affine_transform([bias, of_x, x])
    return lambda *of_h: given + of_h[0] * of_h[1] if of_h else given


def _tree_fc(dy: Any, w: Mapping[str, Any], tables: Mapping[str, Any], sums: Sums) -> Cell:
    join, bias, words = w["join"], w["join_bias"], tables["vectors"]

    def cell(word: int, below: Sequence[Any]) -> Sequence[Any]:
        if not below:
            return (dy.lookup(words, word),)
        (left,), (right,) = below
        return (dy.rectify(dy.affine_transform([bias, join, dy.concatenate([left, right])])),)

    return cell


def _tree_lstm(dy: Any, w: Mapping[str, Any], tables: Mapping[str, Any], sums: Sums) -> Cell:
    hidden = w["forget_of_h"].shape()[0]

    def cell(node: int, below: Sequence[Any]) -> Sequence[Any]:
        x = dy.lookup(tables["x"], node)
        of_h = [w["gates_of_h"], dy.esum([h for h, _ in below])] if below else []
        gates = sums(w["gates_bias"], w["gates_of_x"], x)(*of_h)
        i, o, u = (dy.pick_range(gates, k * hidden, (k + 1) * hidden) for k in range(3))
        terms = [dy.cmult(dy.logistic(i), dy.tanh(u))]
        if below:
            forget = sums(w["forget_bias"], w["forget_of_x"], x)
            terms += [dy.cmult(dy.logistic(forget(w["forget_of_h"], h)), c) for h, c in below]
        c = dy.esum(terms)
        return dy.cmult(dy.logistic(o), dy.tanh(c)), c

    return cell


def _tree_gru(dy: Any, w: Mapping[str, Any], tables: Mapping[str, Any], sums: Sums) -> Cell:
    hidden = w["new_of_h"].shape()[0]

    def cell(node: int, below: Sequence[Any]) -> Sequence[Any]:
        inputs = dy.affine_transform([w["of_x_bias"], w["of_x"], dy.lookup(tables["x"], node)])
        z, r, n = (dy.pick_range(inputs, k * hidden, (k + 1) * hidden) for k in range(3))
        if not below:
            return (dy.cmult(dy.logistic(z), dy.tanh(n)),)
        h = dy.esum([one for (one,) in below])
        gates = w["gates_of_h"] * h
        update = dy.logistic(z + dy.pick_range(gates, 0, hidden))
        reset = dy.logistic(r + dy.pick_range(gates, hidden, 2 * hidden))
        new = dy.tanh(n + w["new_of_h"] * dy.cmult(reset, h))
        return (h + dy.cmult(update, new - h),)

    return cell


def _mv_rnn(dy: Any, w: Mapping[str, Any], tables: Mapping[str, Any], sums: Sums) -> Cell:
    def cell(word: int, below: Sequence[Any]) -> Sequence[Any]:
        if not below:
            return dy.lookup(tables["vectors"], word), dy.lookup(tables["leaf_matrices"], word)
        (a, a_matrix), (b, b_matrix) = below
        both = dy.concatenate([b_matrix * a, a_matrix * b])
        vector = dy.tanh(dy.affine_transform([w["join_bias"], w["join"], both]))
        return vector, w["matrices"] * dy.concatenate([a_matrix, b_matrix])

    return cell


def _dag_rnn(dy: Any, w: Mapping[str, Any], tables: Mapping[str, Any], sums: Sums) -> Cell:
    def cell(node: int, below: Sequence[Any]) -> Sequence[Any]:
        of_h = [w["of_h"], dy.esum([one for (one,) in below])] if below else []
        return (dy.rectify(sums(w["of_x_bias"], w["of_x"], dy.lookup(tables["x"], node))(*of_h)),)

    return cell


def _lstm(dy: Any, w: Mapping[str, Any], tables: Mapping[str, Any], sums: Sums) -> Cell:
    hidden = w["weight_hh"].shape()[1]

    def cell(node: int, below: Sequence[Any]) -> Sequence[Any]:
        of_h = [w["weight_hh"], below[0][0]] if below else []
        gates = sums(w["bias"], w["weight_ih"], dy.lookup(tables["x"], node))(*of_h)
        i, f, g, o = (dy.pick_range(gates, k * hidden, (k + 1) * hidden) for k in range(4))
        c = dy.cmult(dy.logistic(i), dy.tanh(g))
        if below:
            c = c + dy.cmult(dy.logistic(f), below[0][1])
        return dy.cmult(dy.logistic(o), dy.tanh(c)), c

    return cell


CELLS: dict[str, Callable[[Any, Mapping[str, Any], Mapping[str, Any], Sums], Cell]] = {
    "tree-fc": _tree_fc,
    "tree-lstm": _tree_lstm,
    "tree-gru": _tree_gru,
    "mv-rnn": _mv_rnn,
    "dag-rnn": _dag_rnn,
    "lstm": _lstm,
}
APART = ("tree-lstm", "dag-rnn", "lstm")  # whose cells have products of x beside those of states
