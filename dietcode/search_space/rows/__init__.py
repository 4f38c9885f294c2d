"""Blocks of rows without a product: ``problem`` (what is computed); ``reference``, ``expected`` (in float64)."""
