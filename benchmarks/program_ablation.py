"""What each optimisation of programs gives in time: the same program, compiled with one left out.

    python -m benchmarks.program_ablation tree_lstm FOLDER --seconds 10       # compiles what is not there yet
    python -m benchmarks.program_ablation tree_lstm FOLDER --measure [--batches 8,64]

Calls take turns, and the medians of the rounds count; results are compared with those of the whole first.
Replaces the rows of the program in ``program_ablation.json`` of this device in ``benchmarks/results``;
`others` is the part of all cores' time that other processes had meanwhile, `disturbed` why a row is no
figure.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.facts import result_path, write
from benchmarks.others import Others
from benchmarks.program_sizes import program_of, samples_of
from benchmarks.programs import arrays_of, error_of
from dietcode.measure.turns import interleave
from dietcode.models.compiling import Options
from dietcode.programs.compiling import compile_program
from dietcode.programs.modeling import model_of
from dietcode.programs.optimisations import Optimisations
from dietcode.runtime.opening import load

RESULT = result_path("program_ablation")
VARIANTS = {
    "all": Optimisations(),
    **{one.name: Optimisations(**{one.name: False}) for one in fields(Optimisations)},
}
_MAX_ERROR = 2e-4


def main() -> None:
    """Compile the variants, or measure them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("program", help="as benchmarks.program_sizes has it")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--batches", default="8,64")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--measure", action="store_true")
    arguments = parser.parse_args()
    names = arguments.variants.split(",")
    if not arguments.measure:
        for name in names:
            if not (arguments.folder / arguments.program / name).exists():
                _compile(arguments, name)
        return
    rows = json.loads(RESULT.read_text())["rows"] if RESULT.exists() else []
    rows = [one for one in rows if one["program"] != arguments.program]
    for batch in map(int, arguments.batches.split(",")):
        rows.append({"program": arguments.program, "batch": batch} | measured(arguments, names, batch))
        print(rows[-1], flush=True)
        write(RESULT, {"rows": rows})


def _compile(arguments: argparse.Namespace, name: str) -> None:
    model, weights = model_of(
        program_of(arguments.program), samples_of(arguments.program), "variant", VARIANTS[name]
    )
    folder = arguments.folder / arguments.program / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    options = Options(seconds=arguments.seconds)
    result = compile_program(model, weights, folder, options=options, optimisations=VARIANTS[name])
    print(f"{name}: {result.secs:.0f} s, {result.num_tuned} tuned", flush=True)


def measured(arguments: argparse.Namespace, names: list[str], batch: int) -> dict[str, Any]:
    """Return the seconds of a call of each variant, its runs of blocks, and what else the machine did.

    Parameters
    ----------
    arguments : namespace
        As `main` reads it.
    names : list of str
        Of variants.
    batch : int
        How many instances a call has.
    """
    instances = samples_of(arguments.program, batch)
    loaded = {name: load(arguments.folder / arguments.program / name) for name in names}
    wanted = arrays_of(loaded[names[0]](instances))
    for name, one in loaded.items():
        error = error_of(arrays_of(one(instances)), wanted)
        if error > _MAX_ERROR:
            raise SystemExit(f"{name}: another result, by {error}")
    others = Others()
    secs = interleave({name: partial(one, instances) for name, one in loaded.items()}, arguments.rounds)
    return {
        "secs": dict(secs),
        "block_runs": {name: len(one.block_runs(instances)) for name, one in loaded.items()},
        "others": others.share(),
        "disturbed": secs.disturbed,
    }


if __name__ == "__main__":
    main()
