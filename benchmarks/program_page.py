"""Writes docs/programs-evidence.md, and the table of docs/programs.md, from what was counted and measured.

python -m benchmarks.program_page

Of the devices that measured programs it takes `DEVICE`. What something disturbed has no figure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from benchmarks.evidence.versions import note_generators
from benchmarks.facts import RESULTS, ROOT, between_marks, device_name, rows_before, withdrawn
from benchmarks.headline import notes
from benchmarks.headline_tables import commit
from benchmarks.markdown import table
from benchmarks.program_counts import ENTRIES, WITHOUT

_NAMES = {
    **{"tree_lstm": "TreeLSTM", "mv_rnn": "MV-RNN", "birnn": "BiRNN", "nested_rnn": "NestedRNN"},
    **{"drnn": "DRNN", "early_exit": "early exit (Berxit)", "stack_rnn": "StackRNN"},
    **{"rnn_transducer": "RNN-T, greedy", "beam_search": "beam search"},
}
# Table 5 of the paper, small and large sizes: DyNet's milliseconds and its own, at batch 8 and 64.
_PAPER = {
    "tree_lstm": (((4.31, 1.48), (26.18, 5.81)), ((4.58, 2.4), (26.53, 11.44))),
    "mv_rnn": (((2.11, 0.54), (12.45, 1.48)), ((2.27, 1.04), (13.89, 4.46))),
    "birnn": (((3.13, 2.16), (12.04, 4.86)), ((3.95, 4.43), (12.11, 13.11))),
    "nested_rnn": (((29.38, 31.01), (84.55, 65.73)), ((46.03, 35.61), (94.97, 100.17))),
    "drnn": (((6.7, 1.74), (25.3, 5.24)), ((8.44, 2.45), (26.5, 9.99))),
    "early_exit": (((63.54, 38.49), (None, 204.54)), ((113.18, 64.49), (None, 335.3))),
    "stack_rnn": (((47.78, 22.69), (213.98, 39.06)), ((64.67, 43.75), (230.74, 86.82))),
}
_SIZES = dict.fromkeys(_PAPER, (256, 512)) | {"mv_rnn": (64, 128)}
_MISSING = (
    (
        "Table 4: a VM (29 to 32 ms of TreeLSTM and BiRNN, 4 of MV-RNN) and compiled code (0.55 to 15.9 ms)",
        "one form, run by a machine in C; there is no slow one to compare with",
    ),
    ("Figure 5: over PyTorch", "eager, one by one, [in programs.md](programs.md#measured)"),
    ("Table 7: DyNet improved by hand", "not measured"),
    (
        "Table 8: Cortex and ACROBAT, small, batch 64: TreeLSTM 3.62 and 5.81 ms, MV-RNN 6.92 and 1.48",
        "as a [recursion](evidence/index.md) and as a program: not measured side by side on this page",
    ),
    ("Berxit as large as BERT", "not measured"),
)
DEVICE = "amd-epyc-family-25-model-17-2-cores"
COUNTED = "amd-epyc-family-25-model-17-2-cores"  # where counts were made; they are the same on all devices
EVIDENCE, PAGE = ROOT / "docs" / "programs-evidence.md", ROOT / "docs" / "programs.md"
Row = dict[str, Any]


def main() -> None:
    """Write both pages."""
    note_generators()
    EVIDENCE.write_text(evidence())
    PAGE.write_text(with_table(PAGE.read_text()))
    print(EVIDENCE, PAGE)


def times_of() -> Row:
    """What `benchmarks.programs` measured on the device."""
    path = RESULTS / DEVICE / "programs.json"
    found: Row = json.loads(path.read_text()) | {"rows": rows_before(path)}
    found["rows"].sort(key=lambda row: (list(_NAMES).index(row["program"]), row["hidden"], row["batch"]))
    return found


def with_table(text: str) -> str:
    """Return docs/programs.md with today's table between its marks.

    Raises
    ------
    SystemExit
        It has no marks.
    """
    heads = "program|hidden|instances|ours, ms|on one thread|in kernels|runs|eager, one by one|by hand|DyNet"
    heads += "|a recursion|commit"
    rows = times_of()["rows"]
    written = table(heads.split("|"), map(_timed, rows)).rstrip()
    summary = table(["faster than", "rows", "geometric mean", "least", "where"], _summed(rows)).rstrip()
    parts = [written, *notes(rows), *filter(None, [withdrawn(rows)]), summary]
    return between_marks(text, "benchmarks.program_page", parts, PAGE)


def _summed(rows: Sequence[Row]) -> Iterable[list[str]]:
    """How many times as long the others take, each over all rows that have its time."""
    calm = [row for row in rows if not row.get("disturbed")]
    for title, peers, ours in (
        ("eager PyTorch, one instance after the other", ("eager_ms",), "dietcode_ms"),
        ("PyTorch by hand", ("by_hand_ms", "by_hand_packed_ms"), "dietcode_ms"),
        ("DyNet, which has one thread", ("dynet_ms",), "dietcode_ms"),
        ("DyNet, ours on one thread", ("dynet_ms",), "one_thread_ms"),
        ("the recursion, given its structure", ("recursion_ms",), "dietcode_ms"),
        ("the recursion, given the trees", ("recursion_of_trees_ms",), "dietcode_ms"),
    ):
        found = {
            f"{row['program']}, {row['hidden']}, {row['batch']} instances": min(
                row[peer] for peer in peers if peer in row
            )
            / row[ours]
            for row in calm
            if ours in row and any(peer in row for peer in peers)
        }
        if found:
            least = min(found, key=lambda name: found[name])
            mean = float(np.exp(np.mean(np.log(list(found.values())))))
            yield [title, str(len(found)), f"{mean:.2f} ×", f"{found[least]:.2f} ×", least]


def _ms(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _timed(row: Row) -> list[str]:
    """One program and batch: milliseconds, by hand of the faster of the two ways."""
    named = [row["program"], str(row["hidden"]), str(row["batch"])]
    if row.get("disturbed"):
        return [*named, "disturbed", *[""] * 7, commit(row)]
    by_hand = [row[name] for name in ("by_hand_ms", "by_hand_packed_ms") if name in row]
    own = map(row.get, ("dietcode_ms", "one_thread_ms", "kernel_ms"))
    others = (row["eager_ms"], min(by_hand, default=None), row.get("dynet_ms"), row.get("recursion_ms"))
    return [*named, *map(_if_timed, own), str(row["block_runs"]), *map(_if_timed, others), commit(row)]


def _if_timed(msecs: float | None) -> str:
    return "" if msecs is None else _ms(msecs)


def evidence() -> str:
    """Return docs/programs-evidence.md."""
    counts, times = json.loads((RESULTS / COUNTED / "program-counts.json").read_text()), times_of()
    rows = {(row["program"], row["batch"], row["without"]): row for row in counts["rows"]}
    known = [name for name in ENTRIES if (name, 64, "") in rows]
    parts = [
        f"""# Evidence for programs

Written by `python -m benchmarks.program_page`. The paper is ACROBAT (MLSys 2024); its numbers are of an
Nvidia RTX 3070 and of DyNet there: they stand beside ours, which are of an
{device_name(times)}, float32, and do not compare with them.
Counts (`python -m benchmarks.program_counts`, commit {counts["commit"]}, {counts["date"]};
recorded with 32 samples, of the beam search 8) are of the samples in [examples/programs](programs.md), and no
times. They are of an interpreter of the plan, whose buckets are those of the machine that bundles run on;
`tests/programs/test_program_examples.py` compares them.{_other_runs(rows, times["rows"])}

## What each optimisation saves, beside Figure 6

Runs of blocks in a call of 64 instances, and the kernels that they launch, with one optimisation left out.
*Operators*: kernels if each operator of a block were one of its own (the paper's fusion and gather fusion
left out). Where a number is that of the first column, the program has nothing for it: trees need no fibers
as long as no value decides. (Hoisting and *horizontal* do not show in counts.)
""",
        table(
            ["program", "runs", *(f"no {one}" for one in WITHOUT[:4])],
            ([_NAMES[name], *_of(rows, name, "runs", ("", *WITHOUT[:4]))] for name in known),
        ),
        table(
            ["program", "kernels", *(f"no {one}" for one in WITHOUT), "operators"],
            (
                [
                    _NAMES[name],
                    *_of(rows, name, "kernels", ("", *WITHOUT)),
                    str(rows[name, 64, ""]["operator_runs"]),
                ]
                for name in known
            ),
        ),
        f"""Hoisting takes work out of runs, which counts do not show: what depends on the instance alone is
computed for all rows at once, at full width. *Coarsening* joins calls in the text; of the MV-RNN it leaves
fewer runs and more kernels. Without *horizontal* products of the same rows are not made one product, which
changes no count in this table; in time it saves nothing that shows (the next table). Of NestedRNN at batch 64
calls were faster without *profile* and without *phases*. Hoisting and concurrency were not timed. The MV-RNN
has more kernels than operators: its matrices are copied together, four times a run, before they are
multiplied.

{_ablated()}
## Nodes that are scheduled, beside Table 6

The paper schedules the DFG of a TreeLSTM at batch 64 in 0.4 ms where DyNet takes 9.7, and launches 183
kernels where DyNet launches 1653; of the BiRNN (large) 380 and 580. Ours, at batch 8 and 64 (`python -m
benchmarks.program_scheduling` reads what scheduling takes a node):
""",
        table(
            ["program", "batch", "nodes", "if each operator were one", "runs", "kernels", "waits"],
            (
                [_NAMES[name], str(batch), *_of_row(rows[name, batch, ""])]
                for name in known
                for batch in (8, 64)
            ),
        ),
        f"""## Over DyNet, beside Table 5

DyNet 2.2 on one thread, which is all that it uses, and ours on two and on one: the rows of
[programs.md](programs.md#measured), which has their commits and says how they were tuned and measured.
{withdrawn(times["rows"])}
""",
        table(
            [
                *("program", "hidden", "batch", "paper: DyNet, ACROBAT ms", "×"),
                *("here: DyNet, ours ms", "×", "on one thread", "×"),
            ],
            _beside_paper(times["rows"]),
        ),
        "## Not measured, or not there\n",
        table(["in the paper", "here"], _MISSING),
    ]
    return "\n".join(parts)


def _ablated() -> str:
    """What calls take with one optimisation left out, as far as that was measured."""
    record = RESULTS / DEVICE / "program_ablation.json"
    if not record.exists():
        return ""
    found: Row = json.loads(record.read_text())
    variants = list(dict.fromkeys(name for row in found["rows"] for name in row["secs"] if name != "all"))
    rows = []
    for row in found["rows"]:
        named = [_NAMES[row["program"]], str(row["batch"])]
        if row["disturbed"]:
            rows.append([*named, "disturbed", *[""] * len(variants)])
            continue
        secs = row["secs"]
        ratios = [f"{secs[name] / secs['all']:.2f}" if name in secs else "" for name in variants]
        rows.append([*named, _ms(1e3 * secs["all"]), *ratios])
    return f"""## Time without each optimisation, beside Figure 6 and Table 9

Milliseconds of a call with all of them, and how many times as long a call takes with one left out; *profile*
is tuning for the numbers of rows that samples have, as against all alike, of which Table 9 is. The paper's
Table 9, of its NestedRNN at batch 8, has 41.08/42.49 ms after 100 rounds of tuning, 31.61/24.4 after 500,
25.63/24.34 after 1000: with and without a profile, as its title says. Kernels were tuned for 10 s each
(`python -m benchmarks.program_ablation`, commit {found["commit"]}, {found["date"]}); calls of all variants
take turns, medians of seven rounds.

{table(["program", "batch", "all, ms", *(f"no {name}" for name in variants)], rows)}"""


def _other_runs(rows: dict[Any, Row], times: Sequence[Row]) -> str:
    """A sentence on bundles that were timed and ran another number of blocks than was counted."""
    found = [
        f"{_NAMES[row['program']]} at batch {row['batch']} {row['block_runs']} times"
        for row in times
        if row["hidden"] == _SIZES.get(row["program"], (None,))[0]
        and (row["program"], row["batch"], "") in rows
        and row["block_runs"] != rows[row["program"], row["batch"], ""]["runs"]
    ]
    if not found:
        return ""
    return (
        f" Of the bundles that were timed below some ran otherwise, {', '.join(found)}, "
        "in one call each; why is not known."
    )


def _of(rows: dict[Any, Row], name: str, what: str, without: Sequence[str]) -> list[str]:
    return [str(rows[name, 64, one][what]) for one in without]


def _of_row(row: Row) -> list[str]:
    return [str(row[key]) for key in ("nodes", "operator_nodes", "runs", "kernels", "waits")]


def _beside_paper(rows: Sequence[Row]) -> Iterable[list[str]]:
    known = {(row["program"], row["hidden"], row["batch"]): row for row in rows if not row.get("disturbed")}
    for name, sizes in _PAPER.items():
        for hidden, pairs in zip(_SIZES[name], sizes, strict=True):
            for batch, (dynet, paper) in zip((8, 64), pairs, strict=True):
                row = known.get((name, hidden, batch), {})
                here = [_pair(row.get("dynet_ms"), row.get(own)) for own in ("dietcode_ms", "one_thread_ms")]
                named = [_NAMES[name], str(hidden), str(batch)]
                yield [*named, *_pair(dynet, paper), *here[0], *here[1]]


def _pair(peer: float | None, ours: float | None) -> list[str]:
    if ours is None:
        return ["not measured", ""]
    return [
        f"{'-' if peer is None else f'{peer:.2f}'}, {ours:.2f}",
        "" if peer is None else f"{peer / ours:.1f}",
    ]


if __name__ == "__main__":
    main()
