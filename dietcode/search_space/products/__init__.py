"""Blocks with products: ``problem``, ``memory`` (tensors in code). Their results in float64 are those of
``dietcode.search_space.rows``.
"""
