"""A file of ONNX as a graph: needs the package ``onnx``, and neither PyTorch nor a runtime of ONNX.

``file`` the model and its weights, ``known`` values that follow from shapes and constants, ``context`` what a
rule sees, ``pointwise``, ``layers``, ``layout``, ``recurrent``, ``slices`` the rules, ``model`` the graph as
a whole.
"""
