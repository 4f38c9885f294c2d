"""Micro-kernels for CUDA: float32 on SIMT units, staged in shared memory."""
