"""Operators of graphs in NumPy, collected in `dietcode.runtime.host_operators`.

``pointwise`` elements, ``layers`` products, norms and reductions, ``windows`` convolutions and pooling,
``layout`` shapes and positions.
"""
