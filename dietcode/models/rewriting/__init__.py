"""Rewrites of a graph before it is taken apart into calls; each returns what computes the same."""

from __future__ import annotations

from dietcode.graph.graph import Graph


def rewrite(graph: Graph) -> None:
    """Apply all rewrites, in place."""
    graph.without_unused()
