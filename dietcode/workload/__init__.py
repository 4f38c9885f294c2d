"""Workloads: what is to be computed, and over which shapes: pure data, never evaluated.

In processing order: `loader` (text to plain data), `parse` (plain data to a `Spec`), `unchecked` and
`spec` (the models, their fields right each by itself and as a whole), `fields` and `checks` (what one field
must be, what several must agree on), `expr` (one dimension), `conv2d` and `quotient` (the indices of a
convolution, and extents that follow from others), `contraction` (the roles of the two operands), `binding`
(from a call's shapes to shape variables), `instances` (the static bindings to tune for), `identity`
(digests).

This module stays empty so that `expr`, `quotient` and `binding`, which the runtime needs, import without
pydantic.
"""
