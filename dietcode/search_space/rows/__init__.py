"""Blocks of rows without a product: ``problem`` (the problem), ``passes`` (ways through a row), ``memory``
(tensors in code, and where a row of each begins), ``reference``, ``expected`` (in float64).
"""
