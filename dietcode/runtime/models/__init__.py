"""Whole models at run time, in the order in which a call passes them.

``executable`` the description, read and checked; ``guard`` inputs checked and dimensions bound; ``prepared``
all steps of one shape, ready to run; ``model`` what users call; ``loading`` a bundle opened. No compiler and
no PyTorch is imported.
"""
