"""The cost model: ``Cost_M(W) = f_local(M) · f_spatial(W/M) · f_pad(W, M)`` as an array.

``counts`` (tiles, visits and padding of every instance), ``model`` (the fit of f_local and the three
factors). Higher is better everywhere; the currency is FLOP/s.
"""
