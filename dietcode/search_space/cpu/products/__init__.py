"""Micro-kernels of blocks with products for CPUs, in TIR.

``micro_kernel`` (what differs between them), ``space`` (which there are), ``panels`` (tensors),
``tile`` (rows and vectors that are computed in registers), ``lowering`` (micro-kernel to PrimFunc).
"""
