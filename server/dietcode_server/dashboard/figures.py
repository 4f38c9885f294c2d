"""Figures as people read them; templates use these as functions."""

from __future__ import annotations

_PREFIXES = ("", "k", "M", "G", "T", "P", "E")


def si(value: float) -> str:
    """Three digits and a prefix: ``7.25 G``."""
    step = 0
    while abs(value) >= 999.5 and step < len(_PREFIXES) - 1:
        value, step = value / 1000, step + 1
    return f"{value:.3g} {_PREFIXES[step]}".rstrip()


def grouped(number: int) -> str:
    """Digits in groups of three, thin spaces between them."""
    return f"{number:,}".replace(",", "\u202f")
