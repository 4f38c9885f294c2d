"""Words of the method in a job's log are explained, and nothing of a line becomes markup."""

import pytest
from made_app import HOSTILE, text_of

from dietcode_server.dashboard.jargon import explained


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("κ = 0.98 on 2 cores, full waves 300 GFLOP/s", ["κ", "waves"]),
        ("T0 = 4x16", ["T0"]),
        ("round 1; tried 8, pruned 6; the learned f_local missed by 3%", ["pruned", "f_local"]),
        ("P = 2, `wave` and APT0 and waveform", ["P"]),
        ("space grown for m=1 (padding leaves 7%): 1x240", ["space grown"]),
        ("1 micro-kernel for 200 instances (2 with free choice)", ["free choice"]),
        ("nothing of it", []),
    ],
)
def test_words_are_explained(line: str, words: list[str]) -> None:
    found = str(explained(line))
    assert [part.partition("<")[0].partition(">")[2] for part in found.split("<abbr ")[1:]] == words
    assert text_of(found) == line.replace("`", "")


def test_a_hostile_line_stays_text() -> None:
    found = str(explained(f"{HOSTILE} `{HOSTILE}` wave"))
    assert "<script" not in found and found.count("<abbr") == 1
    assert text_of(found) == f"{HOSTILE} {HOSTILE} wave"
