"""What each optimisation of programs saves, in counts, which need no quiet machine.

    python -m benchmarks.program_counts tree_lstm birnn … [--batches 8,64]

The samples of examples/programs are run as they are planned, blocks by PyTorch, row by row. Counted are
nodes (calls of blocks that are scheduled), runs of blocks (buckets, none of which is cut), kernels that they
launch, and how often instances wait for values; beside them how many nodes there were if each operator were
one, and how many kernels if none were fused. Adds to ``program-counts.json`` of this device in
``benchmarks/results``; another device counts the same.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.facts import facts, result_path, write
from benchmarks.program_sizes import example_of
from dietcode.programs.interpreter import FormRun, InstanceError
from dietcode.programs.modeling import ModelledProgram, record
from dietcode.programs.optimisations import Optimisations
from dietcode.programs.planning import Split, plan_program, row_blocks
from dietcode.programs.profiling import tensors_of, torch_blocks

ENTRIES = {
    **{"tree_lstm": "encode", "mv_rnn": "encode", "birnn": "tag", "nested_rnn": "read", "drnn": "generate"},
    **{"early_exit": "classify", "stack_rnn": "parse", "rnn_transducer": "transcribe"},
    "beam_search": "search",
}
WITHOUT = ("coarsening", "concurrency", "phases", "hoisting", "horizontal")
_RECORDED = ("coarsening", "concurrency", "phases")  # the others are of planning alone
OUTPUT = result_path("program-counts")


def main() -> None:
    """Count the runs of examples."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("names", nargs="+", choices=ENTRIES)
    parser.add_argument("--batches", default="8,64")
    parser.add_argument("--samples", type=int, default=8, help="with which a program is recorded")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    arguments = parser.parse_args()
    known = json.loads(arguments.output.read_text())["rows"] if arguments.output.exists() else []
    for name in arguments.names:
        rows = counted(name, [int(one) for one in arguments.batches.split(",")], arguments.samples)
        known = [one for one in known if one["program"] != name] + rows
        order = {own: at for at, own in enumerate(ENTRIES)}
        known.sort(key=lambda one: order[one["program"]])
        write(arguments.output, {**facts(), "rows": known})
        for row in rows:
            print(row, flush=True)


def counted(name: str, batches: Sequence[int], samples: int) -> list[dict[str, Any]]:
    """Return the counts of an example, with all optimisations, and without each of them.

    Parameters
    ----------
    name : str
        Of the example.
    batches : sequence of int
        How many instances a call has.
    samples : int
        With how many the program is recorded; they have to reach each line that others do.
    """
    module = example_of(name)
    program, instances = getattr(module, ENTRIES[name]), module.samples(max(batches))
    found = []
    whole = record(program, instances[:samples], name)
    for off in ("", *WITHOUT):
        chosen = Optimisations(**{off: False}) if off else Optimisations()
        own = record(program, instances[:samples], name, chosen) if off in _RECORDED else whole
        plan = plan_program(own.model, {}, chosen)
        for batch in batches:
            given = [own.recording.instance(one) for one in instances[:batch]]
            row = run_counts(own, plan.description, chosen, given)
            blocks = plan.facts["blocks"]
            found.append({"program": name, "batch": batch, "without": off, "blocks": len(blocks), **row})
    return found


def run_counts(
    own: ModelledProgram,
    description: Mapping[str, Any],
    chosen: Optimisations,
    given: Sequence[Sequence[Any]],
) -> dict[str, int]:
    """Return what a call schedules and launches.

    Parameters
    ----------
    own : ModelledProgram
    description : mapping
        ``program.json``.
    chosen : Optimisations
    given : sequence of sequence
        The arguments of each instance.
    """
    compute = torch_blocks(own.formed)
    rows, splits = row_blocks(own.model, chosen)
    places: dict[int, tuple[str, int]] = {}
    for number, split in enumerate(splits):
        if isinstance(split, Split):
            places |= {split.first: ("first", number), split.second: ("second", number)}
        else:
            places[split] = ("whole", number)
    for number, one in enumerate(rows):  # which the interpreter counts among those of the block
        if one.lowest_of is not None:
            places[number] = places[one.lowest_of.block]

    def run(block: int, rows: list[list[Any]]) -> list[list[Any]]:
        word, number = places[block]
        split = splits[number]
        if word == "whole" or not isinstance(split, Split):
            return compute(number, rows)
        if word == "first":  # what it computes is left to the second one, which gets its operands
            return [[row] * split.num_hoisted for row in rows]
        return compute(number, [_joined(split, row) for row in rows])

    blocks = description["blocks"]
    form = FormRun(description, [one["phase"] for one in blocks], run, tensors_of(own.formed))
    for one in form.run(given):
        if isinstance(one, InstanceError):
            raise SystemExit(f"an instance fails: {one}")
    steps = [sum("kernel" in step for step in one["steps"]) for one in blocks]
    operators = [0 if word == "first" else own.model.blocks[at].graph.num_nodes for word, at in
                 (places[number] for number in range(len(blocks)))]  # fmt: skip
    return {
        "nodes": sum(rows for _, _, _, rows in form.buckets),
        "runs": len(form.buckets),
        "kernels": sum(steps[block] for _, _, block, _ in form.buckets),
        "waits": len(form.flushes),
        "operator_nodes": sum(rows * operators[block] for _, _, block, rows in form.buckets),
        "operator_runs": sum(operators[block] for _, _, block, _ in form.buckets),
    }


def _joined(split: Split, row: list[Any]) -> list[Any]:
    """Return the operands of the whole block out of those of its second part."""
    many = len(split.second_operands)
    known = dict(zip(split.second_operands, row[:many], strict=True))
    known |= dict(zip(split.first_operands, row[many], strict=True))
    return [known[k] for k in sorted(known)]


if __name__ == "__main__":
    main()
