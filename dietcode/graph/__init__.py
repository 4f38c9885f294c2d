"""Whole models as data, in the order in which they build on each other.

``extent`` sizes that follow from dimensions, ``tensor_type`` dtypes and shapes, ``attributes`` what operators
take, ``inference`` types of results, ``operators`` the closed list, ``graph`` inputs, weights, nodes and
outputs, ``signature`` how a call gives and gets tensors, ``reading`` a graph out of plain data,
``cells``, ``samples`` and ``recursive_model`` a recursion,
``model_request`` what is asked of a service about one. Imports no compiler and no PyTorch: the runtime uses
it.
"""
