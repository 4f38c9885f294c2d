"""Whole models (Nimble): an exported program becomes a bundle of tuned libraries and steps.

``exporting`` (torch.export with what it cannot take replaced first; ``recurrent_operator``), ``sources``
(where an author wrote what), ``importing`` (a program or a file of ONNX as a graph of `dietcode.graph`),
``rewriting`` (patterns, layouts, constants),
``units`` and ``grouping`` (which operators become one block), ``gates`` (of products), ``block_builder`` and
the ``*_calls`` (a block as a `KernelCall`), ``lowering`` (the graph as steps; ``nested`` its sub-graphs,
``lifetimes`` when values are in use), ``memory`` (storages shared over symbolic sizes), ``planning`` (parts
to tune, as plain data), ``budgets`` (seconds shared out among them), ``bundling`` (what is written of a
bundle), ``bundle_files`` (which is loaded once), ``schedule_rows`` (a recursion's schedules in words),
``compiling`` (all of it, and the tuning between).
What runs a bundle is `dietcode.runtime.models`.
"""
