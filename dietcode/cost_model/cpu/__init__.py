"""CPUs: ``counts`` (tiles, visits and padding of every instance), ``model`` (f_local fitted from measured
waves), ``fitting`` (every measured micro-kernel and instance), ``features`` (what f_local is learned from),
``terms`` and ``estimator`` (what all forms with counted terms share).
"""
