"""Micro-kernels of depthwise convolutions for CPUs, in TIR: channels in vectors.

``micro_kernel`` (what differs between them), ``space`` (which there are), ``body`` (some positions of some
vectors of channels), ``lowering`` (micro-kernel to PrimFunc).
"""
