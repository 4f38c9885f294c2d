"""Whole models: an exported PyTorch program becomes a bundle of tuned libraries and a list of steps (Nimble).

``exporting`` (torch.export with what it cannot take replaced first; ``recurrent_operator``), ``importing``
(the program as a graph of `dietcode.graph`), ``rewriting`` (patterns, layouts, constants), ``units`` and
``grouping`` (which operators become one block), ``block_builder`` and the ``*_calls`` (a block as a
`KernelCall`), ``lowering`` (the graph as steps), ``memory`` (storages shared over symbolic sizes),
``budgets`` (seconds shared out among parts), ``compiling`` (parts tuned, bundle written).
What runs a bundle is `dietcode.runtime.models`.
"""
