"""Attention in one block: ``problem`` (the problem), ``reference`` and ``expected`` (in float64)."""
