"""Blocks of rows without a product: ``problem`` (the problem), ``reference``, ``expected`` (in float64)."""
