"""Micro-kernels of blocks for GPUs, in TIR, on SIMT units.

``arithmetic`` (functions of one element), ``products`` (a tile of several products), ``rows`` (rows, each by
some threads), ``functions`` (device functions of a micro-kernel), ``lowering`` (their
code), ``shape`` (grids and workspace), ``demands``
(registers and shared memory). Which micro-kernels there are says ``block_space`` beside this folder.
"""
