"""Blocks along rows, without a product: ``problem`` (what is computed), ``reference`` (the same in float64)."""
