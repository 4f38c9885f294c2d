"""Blocks with products: ``problem``. Their results in float64 are those of ``dietcode.search_space.rows``."""
