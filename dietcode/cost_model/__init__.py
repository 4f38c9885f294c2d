"""The cost model: ``Cost_M(W) = f_local(M) · f_spatial(W/M) · f_pad(W, M)`` as an array.

``model`` (the three factors, the array, and the interface of estimates), ``learned`` (f_local
learned from all records of the device), ``pruning`` (candidates that one wave
rules out), ``regression``; below them ``cpu`` and ``cuda``,
which count and fit. Higher is better everywhere; the currency is FLOP/s.
"""
