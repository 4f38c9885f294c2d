"""Recursion (Cortex): a cell of one node, applied over structures, becomes kernels for whole levels.

What is applied, as data, is `dietcode.graph.cells`. ``eager`` the reference node by node, ``module`` what a
user writes (`Recursion`, `ChildSum`), ``exporting`` its cells as graphs of one node, ``kinds`` of operators,
``unrolling`` children that are rows of one tensor, ``batching`` graphs of one node as graphs of many rows,
``refactoring`` what is multiplied of several children, ``slices``, ``squeezing`` and ``rewriting`` products
and gates in the form that one kernel has, ``uniform`` what zero states make of a cell, ``hoisting`` what
depends on a node's input alone, ``stages`` which nodes one kernel computes, ``lowering`` the steps,
``planning`` all of these in order for one of the ``schedules``, ``sampling`` what sample structures count,
``trials`` which schedule is kept, ``reader`` a recursion out of a file, ``compiling`` the bundle. What runs
it is `dietcode.runtime.recursion`.
"""
