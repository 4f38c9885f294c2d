"""The shape-generic search space: problem, micro-kernels, their seeds, and lowering.

Shared by all devices: ``problem`` (what is computed, in roles), ``access`` (where tensors lie in memory),
``partition`` (who computes which tiles), ``epilogue``, ``reference`` (float64), ``expected`` (that, or a
sample of it, and how far an output is off). Below, a folder for each kind of device: ``cpu`` and ``cuda``.
"""
