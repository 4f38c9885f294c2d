"""Front doors: what a model is written in, as a `dietcode.graph.graph.Graph`.

``symbols`` sizes, ``context`` what a rule sees, ``pointwise``, ``layers``, ``layout`` the rules,
``exported`` programs of ``torch.export``.
"""
