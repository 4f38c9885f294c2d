"""Recurrent layers: the product with the input leaves the steps, and is computed for all of them at once.

The Cortex paper calls this recursion hoisting of input products (Section 3.1).
"""

from __future__ import annotations

from dietcode.graph.graph import Node, Value
from dietcode.models.rewriting.rewriter import Rewriter


def hoisted(r: Rewriter, node: Node) -> str | None:
    """``recurrent(x, states, W, U, b, d)`` -> ``recurrence(linear(x, W, b), states, U, d)``."""
    if node.operator != "recurrent":
        return None
    is_lstm = node.attributes["cell"] == "lstm"
    num_states = 2 if is_lstm else 1
    x, *states = node.operands[: 1 + num_states]
    w, u, *biases = node.operands[1 + num_states :]
    given: list[Value] = [one for one in biases if one is not None]
    more: list[Value] = []
    if len(given) == 2 and node.attributes["cell"] == "gru":
        given, more = given[:1], given[1:]
    elif len(given) == 2:  # both are added to the same sum
        given = [r.add("add", *given)]
    gates = r.add("linear", x, w, *given)
    return r.add("recurrence", gates, *states, u, *more, **node.attributes)


RECURRENT = (hoisted,)
