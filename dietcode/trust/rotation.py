"""From a key that is trusted to the one that a server signs with now, over the rotations that it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dietcode.errors import LibraryError
from dietcode.trust.envelope import Envelope, read_envelope
from dietcode.trust.keys import PublicKey
from dietcode.trust.statements import open_rotation

MAX_ROTATIONS = 1000


def read_rotations(given: Sequence[Mapping[str, Any]], what: str) -> dict[str, Envelope]:
    """Rotations by the fingerprint of the key that is said to have signed them; none is verified.

    Raises
    ------
    LibraryError
        One is not an envelope, there are too many, or a key has two successors.
    """
    if len(given) > MAX_ROTATIONS:
        raise LibraryError(f"{what}: shows {len(given)} rotations of its key; allowed: {MAX_ROTATIONS}")
    found: dict[str, Envelope] = {}
    for plain in given:
        envelope = read_envelope(dict(plain), f"{what}: a rotation of its key")
        if envelope.keyid in found:
            raise LibraryError(f"{what}: shows two keys that follow {envelope.keyid}; allowed: 1")
        found[envelope.keyid] = envelope
    return found


def follow(
    start: PublicKey, goal: str, rotations: Mapping[str, Envelope], what: str
) -> list[PublicKey] | None:
    """Return the keys from `start` to the one with the fingerprint `goal`, each signed by the one before.

    None where no rotation leads there.

    Parameters
    ----------
    start : PublicKey
        The key that is trusted.
    goal : str
        Fingerprint of the key to reach.
    rotations : mapping of str to Envelope
        By fingerprint of the key that signed it.
    what : str
        Named by errors, like ``bert-dense@3``.

    Raises
    ------
    DietCodeError
        A rotation on the way has a wrong signature.
    """
    path = [start]
    while path[-1].fingerprint != goal:
        link = rotations.get(path[-1].fingerprint)
        if link is None or len(path) > len(rotations):
            return None
        path.append(open_rotation(link, path[-1], f"{what}: the rotation of its key"))
    return path
