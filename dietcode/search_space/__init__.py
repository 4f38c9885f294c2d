"""The shape-generic search space: problem, micro-kernels, their seeds, and lowering.

Shared by all devices: ``problem`` (what is computed, in roles), ``stage`` (what runs after a product),
``access`` (layouts of tensors in memory), ``partition`` (tiles among cores), ``tails`` (tiles that reach
past an edge), ``seed`` (where a space begins), ``dispatch_tree`` (the rule), ``epilogue``,
``pointwise``, ``exponentials``, ``reference`` (float64), ``expected`` (that, or a sample of it, and the
error of an output). Below, a folder for each kind of device: ``cpu`` and ``cuda``, which import nothing of
each other.
"""
