"""The cost model: ``Cost_M(W) = f_local(M) · f_spatial(W/M) · f_pad(W, M)`` as an array.

``counts`` (tiles, visits and padding of every instance), ``model`` (f_local fitted from measured waves, the
three factors), ``fitting`` (every measured micro-kernel and instance); for what is not measured
``features`` and ``learned`` (f_local learned from all records of the device), ``pruning`` (f_local on one
wave). Higher is better everywhere; the currency is FLOP/s.
"""
