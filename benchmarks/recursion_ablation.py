"""What each pass of a recursion's planning gives: the same cells, compiled with one pass left out.

    python -m benchmarks.recursion_ablation tree-lstm examples/recursion/tree_lstm.py:model FOLDER \
        --samples structures.npz --max-level 10000 --seconds 25            # compiles what is not there yet
    python -m benchmarks.recursion_ablation tree-lstm examples/recursion/tree_lstm.py:model FOLDER --measure

Calls take turns, the medians of the rounds count. Without `by_level` ranges have one row each.
Replaces the rows of the model in ``recursion_ablation.json`` of this device in ``benchmarks/results``;
`others` is the part of all cores' time that other processes had meanwhile, `disturbed` why a row is no
figure.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from benchmarks.facts import result_path, write
from benchmarks.others import Others
from benchmarks.recursion import INPUTS, inputs_of, weights_of
from benchmarks.recursion_inputs import batch_of
from dietcode.measure.turns import interleave
from dietcode.models.compiling import Options
from dietcode.programs.reader import read_object
from dietcode.recursion.compiling import compile_recursion
from dietcode.recursion.passes import Passes
from dietcode.runtime.opening import load

RESULT = result_path("recursion_ablation")
VARIANTS = {
    "all": Passes(),
    **{one.name: Passes(**{one.name: False}) for one in fields(Passes)},
    "by_level": Passes(),
}
_FACTS = ("kernels", "multiply_adds", "moves")


def main() -> None:
    """Compile the variants, or measure them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("model", choices=INPUTS)
    parser.add_argument("object", metavar="FILE.py:NAME")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--samples")
    parser.add_argument("--max-nodes", type=int, default=20_000)
    parser.add_argument("--max-level", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=25.0)
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--batches", default="1,10,64")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--measure", action="store_true")
    arguments = parser.parse_args()
    names = arguments.variants.split(",")
    if not arguments.measure:
        for name in names:
            if not (arguments.folder / name).exists():
                _compile(arguments, name)
        return
    rows = json.loads(RESULT.read_text())["rows"] if RESULT.exists() else []
    for inputs in INPUTS[arguments.model]:
        for batch in map(int, arguments.batches.split(",")):
            row = {"model": arguments.model, "inputs": inputs, "batch": batch}
            rows = [one for one in rows if not row.items() <= one.items()]
            rows.append(row | measure(arguments, names, inputs, batch))
            print(rows[-1], flush=True)
            write(RESULT, {"rows": rows})


def _compile(arguments: argparse.Namespace, name: str) -> None:
    is_each = name == "by_level"
    found, weights = read_object(
        arguments.object, "variant", arguments.max_nodes, arguments.max_level, arguments.samples
    )
    result = compile_recursion(
        found.cells,
        weights,
        arguments.folder / name,
        max_nodes=found.max_nodes,
        max_level=1 if is_each else found.max_level,
        samples=None if is_each else found.samples,
        options=Options(32, arguments.seconds),
        passes=VARIANTS[name],
    )
    print(f"{name}: {result.num_tuned} tuned, {result.secs:.0f} s", flush=True)


def measure(arguments: argparse.Namespace, names: list[str], inputs: str, batch: int) -> dict[str, Any]:
    """Return the seconds and the counts of each variant."""
    structure = batch_of(inputs, batch)
    models = {name: load(arguments.folder / name) for name in names}
    x = inputs_of(models[names[0]], weights_of(arguments.model, arguments.folder / names[0]), structure)
    others = Others()
    secs = interleave(
        {name: (lambda model=model: model(structure, x)) for name, model in models.items()}, arguments.rounds
    )
    facts = {name: {key: model.report[key] for key in _FACTS} for name, model in models.items()}
    return {"secs": secs, "facts": facts, "others": others.share(), "disturbed": secs.disturbed}


if __name__ == "__main__":
    main()
