"""Front doors: what a model is written in, as a `dietcode.graph.graph.Graph`.

Shared by all: ``builder`` what is done with the graph, ``spelled_out`` functions that graphs have no operator
for, ``resampled`` those that change sizes, ``refusals``, ``reader`` the process that reads. Programs of
``torch.export``: ``symbols`` sizes, ``dimensions``, ``context`` what a rule sees, ``pointwise``, ``layers``,
``layout``, ``scattering``, ``resizing`` the rules, ``mutations``, ``size_numbers``,
``exported``. Files of ONNX: the package ``onnx``.
"""
