"""Micro-kernels of attention for CPUs, in TIR.

``micro_kernel`` (what differs between them), ``space`` (which there are), ``arithmetic`` (on a vector),
``copying`` (keys transposed, values side by side), ``body`` (some queries and a block of keys), ``lowering``
(micro-kernel to PrimFunc).
"""
