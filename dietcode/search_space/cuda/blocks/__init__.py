"""Micro-kernels of blocks for GPUs, in TIR, on SIMT units and on tensor cores.

Products: ``product_tile`` (a tile of all sums, and the functions of them), ``products`` and
``product_tensor`` (how SIMT units and tensor cores multiply), ``product_layout``. Rows, each by some
threads: ``rows``. Attention: ``attention`` (queries, and one tile of keys after the other),
``attention_simt`` and ``attention_tensor`` (how scores and values are multiplied), ``attention_layout``,
``attention_shape``, ``attention_lowering``. All of them: ``arithmetic`` (functions of one element),
``copies`` (to shared memory), ``functions`` (device functions of a micro-kernel), ``signature`` (how they
begin), ``lowering`` (their code), ``shape`` (grids and workspace), ``demands`` (registers and shared
memory). Which micro-kernels there are says ``block_space`` beside this folder.
"""
