"""Words of the method that a job's log has, each with its meaning for those who hover over it."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

_MEANINGS = {
    "κ": "how much of a call's time grows with the tiles of the most loaded core; fitted once for a device",
    "T0": "the tile where the search begins",
    "wave": "one tile on each core at the same time; a full wave leaves no core idle",
    "f_local": "the rate at which a micro-kernel computes where nothing is padded and no core idle",
    "pruned": "given up after its first wave, which was too slow for any instance",
    "P": "how many tiles run at the same time",
    "free choice": "what the instances would take if size cost nothing",
    "space grown": "candidates were added for a shape that is served badly: padding, say, leaves a part of "
    "the speed of whole tiles there",
    "vote": "each instance votes for the micro-kernels that are best for it",
}
_WORDS = re.compile(r"(?<![\w`])(κ|T0|f_local|free choice|space grown|waves?|pruned|votes?|P(?= = ))(?!\w)")


def explained(text: str) -> Markup:
    """Return a line of the log: escaped, what stands in backticks as code, words with their meanings."""
    parts = re.split(r"`([^`]+)`", text)
    shown = [
        Markup("<code>{}</code>").format(part)
        if at % 2
        else Markup(_WORDS.sub(_abbreviation, str(escape(part))))
        for at, part in enumerate(parts)
    ]
    return Markup("").join(shown)


def _abbreviation(found: re.Match[str]) -> str:
    word = found[0]
    meaning = _MEANINGS.get(word) or _MEANINGS[word.removesuffix("s")]
    return f'<abbr title="{escape(meaning)}">{word}</abbr>'
