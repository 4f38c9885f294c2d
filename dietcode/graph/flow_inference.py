"""Types of the results of control flow: nodes whose attributes are graphs.

The graphs are closed: all that they read is an operand of the node, and an input of the graph.
"""

from __future__ import annotations

from typing import Any

from dietcode.graph.inference import Attributes, Operands, Types, tensor
from dietcode.graph.tensor_type import GraphError, TensorType


def _named(types: Types) -> str:
    return ", ".join(map(str, types)) or "none"


def _need_inputs(word: str, graph: Any, given: Types) -> None:
    own = tuple(graph.inputs.values())
    if own != given:
        raise GraphError(f"{word} takes {_named(own)}; allowed: what the node gives, {_named(given)}")


def _need_truth(word: str, types: Types) -> None:
    if len(types) != 1 or types[0].dtype != "bool" or types[0].rank:
        raise GraphError(f"{word} is {_named(types)}; allowed: bool[]")


def branches(operands: Operands, attributes: Attributes) -> Types:
    """One of two graphs of the same operands, by a truth value; both have results of the same types."""
    truth, *given = (tensor(one) for one in operands)
    _need_truth("the predicate", (truth,))
    for word in ("then", "else"):
        _need_inputs(word, attributes[word], tuple(given))
    first, second = (attributes[word].output_types for word in ("then", "else"))
    if first != second:
        raise GraphError(f"then gives {_named(first)}, else {_named(second)}; allowed: the same types")
    _need_results(first)
    return tuple(first)


def while_loop(operands: Operands, attributes: Attributes) -> Types:
    """A graph again and again while another one holds; the first operands are the state before it."""
    given = tuple(tensor(one) for one in operands)
    state = given[: attributes["carried"]]
    for word in ("condition", "body"):
        _need_inputs(word, attributes[word], given)
    _need_truth("the condition", attributes["condition"].output_types)
    after = attributes["body"].output_types
    if after != state:
        raise GraphError(f"the body makes {_named(after)} of {_named(state)}; allowed: the same types")
    _need_results(state)
    return state


def scan(operands: Operands, attributes: Attributes) -> Types:
    """A graph for each position along the first axis of some operands, with a state that it carries along.

    Operands are the state before it, then those that have a position for each, then what all positions read.
    Results are the state after it, then what each position gives, stacked along a first axis.
    """
    given = tuple(tensor(one) for one in operands)
    num_carried, num_each = attributes["carried"], attributes["each"]
    state, each = given[:num_carried], given[num_carried : num_carried + num_each]
    lengths = {one.shape[0] if one.shape else None for one in each}
    if len(lengths) != 1 or None in lengths:
        raise GraphError(f"positions along {_named(each)}; allowed: tensors with one first extent")
    one_of_each = tuple(TensorType(one.dtype, one.shape[1:]) for one in each)
    _need_inputs("body", attributes["body"], (*state, *one_of_each, *given[num_carried + num_each :]))
    after = attributes["body"].output_types
    if after[:num_carried] != state:
        raise GraphError(f"the body makes {_named(after)} of {_named(state)}; allowed: the state first")
    _need_results(after)
    length = each[0].shape[0]
    return (*state, *(TensorType(one.dtype, (length, *one.shape)) for one in after[num_carried:]))


def _need_results(types: Types) -> None:
    if not types:
        raise GraphError("no results; allowed: one at least")
