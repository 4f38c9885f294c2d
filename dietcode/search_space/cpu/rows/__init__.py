"""Micro-kernels of row blocks for CPUs, in TIR.

``micro_kernel`` (what differs between them), ``space`` (which there are), ``functions`` (pointwise arithmetic
on a vector), ``streaming`` (stores past the caches), ``turning`` (rotations within a vector), ``reading``
(a vector of what a row reads), ``body`` (some rows, pass by pass), ``across`` (vectors across rows),
``group`` (rows on their way through the passes), ``lowering`` (micro-kernel to PrimFunc).
"""
