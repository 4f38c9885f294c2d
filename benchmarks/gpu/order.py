"""In which order instances are compared, and so which of them a baseline of one shape each is packed for."""

from __future__ import annotations

MOST_COMPARED = 32  # instances of a workload


def picked(count: int, most: int) -> list[int]:
    """Up to `most` of `count` instances, evenly spread: the last, the first, then the middle of others.

    The last is the largest: what compiles for ranges of shapes tunes itself on what it sees first. The rest
    is in such an order that those before any place in it are spread over all.
    """
    last = min(count, most) - 1
    places = [last, 0] if last else [0]
    gaps = [(0, last)]
    for low, high in gaps:  # which grows
        middle = (low + high) // 2
        if middle > low:
            places.append(middle)
            gaps += [(low, middle), (middle, high)]
    return [place if count <= most else round(place * (count - 1) / max(1, last)) for place in places]
