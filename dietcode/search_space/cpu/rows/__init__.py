"""Micro-kernels of row blocks for CPUs, in TIR.

``micro_kernel`` (what differs between them), ``space`` (which there are), ``passes`` (the ways through a row,
and what is kept between them), ``functions`` (pointwise arithmetic on a vector), ``memory`` (tensors, and
where a row of each begins), ``streaming`` (stores past the caches), ``body`` (some rows, pass by pass),
``lowering`` (micro-kernel to PrimFunc).
"""
