"""Workloads: the computation and its shapes, as pure data that is never evaluated.

In processing order: `loader` (text to plain data), `parse` (plain data to a `Spec`), `spec_fields`
and `spec` (the models: fields checked by themselves, and as a whole), `field_checks` and `spec_checks`
(checks of one field, and of several), `expr` (one dimension), `conv2d` and `quotient` (the indices of a
convolution, and extents that follow from others), `contraction` (the roles of the two operands), `binding`
(from a call's shapes to shape variables), `instances` (the static bindings to tune for), `identity`
(digests), `positions` and `check` (all problems of a text, each at its line), `summary` (a valid spec in
figures).

This module stays empty so that `expr`, `quotient` and `binding`, which the runtime needs, import without
pydantic.
"""
