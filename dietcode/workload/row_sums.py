"""Sums that a product reads as rows: of tensors and of gathers, as what the children of a node add up to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # needs pydantic
    from dietcode.workload.block import BlockNode

MAX_SUMMANDS = 16


def summands(name: str, nodes: Mapping[str, BlockNode]) -> list[str]:
    """Return what rows of a product add up, in order; what is no sum alone.

    Parameters
    ----------
    name : str
        Of the product's operand.
    nodes : mapping of str to BlockNode
    """
    node = nodes.get(name)
    if node is None or node.operator != "add":
        return [name]
    return [one for operand in node.operands for one in summands(str(operand), nodes)]


def parts_of_sums(names: Iterable[str], nodes: Mapping[str, BlockNode]) -> set[str]:
    """Return what the sums among some names are sums of, sums within them too."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        node = nodes.get(waiting.pop())
        if node is not None and node.operator == "add":
            own = [str(operand) for operand in node.operands]
            found.update(own)
            waiting += own
    return found
