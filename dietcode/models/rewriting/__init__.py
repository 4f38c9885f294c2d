"""Rewrites of a graph before it is taken apart into calls; each gives a graph that computes the same.

``rewriter`` how a graph is written anew, ``patterns`` and ``activations`` functions put together again,
``dense`` products with weights, ``convolutions`` scales folded and channels put last, ``group_norms`` norms
of these, ``transposition`` transposes moved to where they cost nothing, ``causal`` masks that hide what comes
later, ``tables`` and ``sharing`` what follows from shapes alone.
"""

from __future__ import annotations

from dietcode.graph.graph import Graph
from dietcode.models.rewriting.activations import ACTIVATIONS
from dietcode.models.rewriting.causal import causal
from dietcode.models.rewriting.convolutions import CHANNELS_LAST, FOLDING
from dietcode.models.rewriting.dense import DENSE
from dietcode.models.rewriting.group_norms import GROUP_NORMS
from dietcode.models.rewriting.patterns import PATTERNS
from dietcode.models.rewriting.recurrent import RECURRENT
from dietcode.models.rewriting.rewriter import rewritten
from dietcode.models.rewriting.sharing import sharing
from dietcode.models.rewriting.tables import tables
from dietcode.models.rewriting.transposition import TRANSPOSITION

__all__ = ["rewrite"]


def rewrite(graph: Graph) -> Graph:
    """Return the graph that is taken apart."""
    together = (*PATTERNS, *ACTIVATIONS, *DENSE)
    of_shapes = ((causal,), (tables(),), (sharing(),))
    for rules in (
        (*together, *RECURRENT),
        together,
        FOLDING,
        (*CHANNELS_LAST, *GROUP_NORMS, *TRANSPOSITION),
        *of_shapes,
    ):
        graph = rewritten(graph, rules)
    return graph
