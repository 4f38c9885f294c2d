"""Micro-kernels for CPUs, in TIR.

In processing order: ``limits`` (what the machine holds), ``seed`` (MetaSchedule on the largest instance),
``space`` (tiles around the seeds), ``axes`` (what else a micro-kernel does), ``lowering`` (micro-kernel to
PrimFunc), ``packing`` (the constant operand's layout), ``host`` (a library's entry points),
``compiling`` (all of it to machine code).

Lowering puts a tile together from ``sources`` (what it reads: ``row_sources``, ``windowing``,
``column_sources``, with the copies of ``copying`` and ``panels``), ``kernel`` (the loop over the reduction),
``output`` (where it goes) and ``tails`` (what happens past an edge). ``squares`` transposes in registers.
"""
