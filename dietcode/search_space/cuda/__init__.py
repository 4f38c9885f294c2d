"""Micro-kernels for CUDA, staged in shared memory: ``forms`` tells contractions and blocks apart."""
