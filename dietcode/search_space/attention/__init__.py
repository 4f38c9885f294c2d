"""Attention in one block: ``problem``."""
