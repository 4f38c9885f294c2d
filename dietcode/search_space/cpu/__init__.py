"""Micro-kernels for CPUs, in TIR.

In processing order: ``limits`` (what the machine holds), ``seed`` (MetaSchedule on the largest instance),
``space`` (tiles around the seeds), ``lowering`` (micro-kernel to PrimFunc), ``packing`` (the constant
operand's layout).
"""
