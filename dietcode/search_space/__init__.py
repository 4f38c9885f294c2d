"""The shape-generic search space: problem, micro-kernels, their seeds, and lowering to TIR.

In processing order: ``problem`` (what is computed, in roles), ``limits`` (what the machine holds),
``seed`` (MetaSchedule on the largest instance), ``space`` (tiles around the seeds), ``partition`` (who
computes which tiles), ``lowering`` (micro-kernel to PrimFunc), ``packing`` (the constant operand's layout).
"""
