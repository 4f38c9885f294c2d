"""What is to be computed, and over which shapes: pure data, never evaluated.

In processing order: `loader` (text to plain data), `parse` (plain data to a `Spec`), `spec` (the models),
`checks` (what fields must agree on), `expr` (one dimension), `contraction` (the roles of the two operands),
`binding` (from a call's shapes to shape variables), `instances` (the static bindings to tune for), `identity`
(digests).

This module stays empty so that `expr` and `binding`, which the runtime needs, import without pydantic.
"""
