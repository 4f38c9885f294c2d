"""Recursions beside PyTorch batched by level by hand, and beside DyNet with automatic batching.

    dietcode compile examples/recursion/tree_lstm.py:model -o build/benchmarks/tree-lstm
    python -m benchmarks.recursion tree-lstm=build/benchmarks/tree-lstm … [--batches 1,10,64] [--threads 2]

Batches of 64 perfect trees have more nodes than a recursion takes by default: ``--max-nodes 16384`` when
tree_fc is compiled.

Calls take turns, and the medians of the rounds count. Structures are put into the order of their levels once,
on all sides but DyNet's, which has its own way; what that takes is reported beside. DyNet computes on one
thread; without it (an extra, `bench`) it is left out. Beside each row the FMA peak of the threads
is read, and how fast they read as many bytes as the weights have. Writes ``recursion.json`` of this device in
``benchmarks/results``; with ``--append`` other rows of this file stay, and those of this commit are not
measured again, but for rows during which other processes had more than a twentieth of the cores' time
(`others`), of which the quieter reading is kept: a run of all takes longer than a machine is quiet.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file

from benchmarks.facts import facts, result_path, rows_before, write
from benchmarks.others import Others
from benchmarks.recursion_by_level import BY_LEVEL, Levels, packed, plain, tree_fc_of_tables
from benchmarks.recursion_inputs import batch_of, described, products_of
from dietcode.bench.roofline import Roofline
from dietcode.measure.turns import interleave
from dietcode.runtime.cpu import available_cores
from dietcode.runtime.manifest import WEIGHTS
from dietcode.runtime.opening import load
from dietcode.runtime.recursion.loaded import LoadedRecursion
from dietcode.runtime.recursion.structure import Structure

ROOT = Path(__file__).resolve().parent.parent
INPUTS = {
    "tree-fc": ("perfect",),
    "tree-lstm": ("sentences", "syntax"),
    "tree-gru": ("sentences", "syntax"),
    "mv-rnn": ("sentences",),
    "dag-rnn": ("grids",),
    "lstm": ("sequences",),
}
# Where the names of the examples' modules say less than the peers have to know.
_NAMES = {
    "join.weight": "join",
    "join.bias": "join_bias",
    "gates_of_x.bias": "gates_bias",
    "forget_of_x.bias": "forget_bias",
    "of_x.bias": "of_x_bias",
}
_TABLES = ("vectors", "leaf_matrices")  # of which a call reads some rows
_MOST_OTHERS = 0.05
_MAX_ERROR = 2e-4  # of what three programs compute in float32, relative to the largest


def main() -> None:
    """Measure every bundle with every kind of structure and batch."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("bundles", nargs="+", metavar="MODEL=DIR")
    parser.add_argument("--batches", default="1,10,64")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=available_cores())
    parser.add_argument("--output", type=Path, default=result_path("recursion"))
    parser.add_argument("--append", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if importlib.util.find_spec("dynet_config") is not None:
        import dynet_config

        dynet_config.set(mem=2048, autobatch=1)
    rows = rows_before(arguments.output) if arguments.append else []
    now = {name: facts()[name] for name in ("commit", "date")}
    there = {key_of(row): row for row in rows}
    for one in arguments.bundles:
        kind, _, folder = one.partition("=")
        hidden = hidden_of(load(folder))
        for inputs in INPUTS[kind]:
            for batch in map(int, arguments.batches.split(",")):
                row = {
                    "model": kind,
                    "hidden": hidden,
                    "inputs": inputs,
                    "batch": batch,
                    "threads": arguments.threads,
                }
                old = there.get(key_of(row))
                known = old is not None and old["commit"] == now["commit"]
                if known and old["others"] <= _MOST_OTHERS:
                    continue
                row |= now | measure(kind, Path(folder), batch_of(inputs, batch), arguments)
                print(line_of(row), flush=True)
                if known and old["others"] <= row["others"]:
                    continue
                rows = [one for one in rows if one is not old] + [row]
                write(arguments.output, {"rows": rows})


def hidden_of(model: Any) -> int:
    """Return the elements of a recursion's first state."""
    assert isinstance(model, LoadedRecursion)
    return model.description.results[0].shape[-1].constant


def key_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what a row is of."""
    return tuple(row[word] for word in ("model", "hidden", "inputs", "batch", "threads"))


def measure(kind: str, folder: Path, structure: Structure, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the seconds of a call of each path over one structure."""
    model = load(folder, num_threads=arguments.threads)
    assert isinstance(model, LoadedRecursion)
    weights = weights_of(kind, folder)
    x = inputs_of(model, weights, structure)
    given = torch.from_numpy(x)
    calls: dict[str, Callable[[], Any]] = {"dietcode": lambda: model(structure, x)}
    levels = Levels(structure, model.description.max_children)
    for name, product in {"by level": plain, "by level, packed": packed}.items():
        run = BY_LEVEL[kind](weights, levels, product)
        calls[name] = torch.inference_mode()(lambda run=run: run(given))
        if kind == "lstm":
            break
        if kind == "tree-fc":
            of_tables = tree_fc_of_tables(weights, levels, product)
            calls[f"{name}, tables"] = torch.inference_mode()(lambda run=of_tables: run(given))
    if importlib.util.find_spec("dynet") is not None:
        from benchmarks.recursion_dynet import APART, DynetRecursion

        for name, apart in {"dynet": False, "dynet, x apart": True}.items():
            calls[name] = DynetRecursion(kind, weights, structure, x, apart)
            if kind not in APART:
                break
    wanted = first_of(calls["dietcode"]())
    for name, call in calls.items():
        found = first_of(call())
        error = float(np.abs(found - wanted).max() / np.abs(wanted).max())
        if not error < _MAX_ERROR:
            raise SystemExit(f"{kind}: {name} differs by {error:.1e}")
    others = Others()
    secs = interleave(calls, arguments.rounds)
    share = others.share()
    spent = model.range_secs(structure, x)
    begin = time.perf_counter()
    fresh = Structure(structure.children)
    fresh.child_places(model.description.max_children)
    made_secs = time.perf_counter() - begin
    flops = products_of(kind, hidden_of(model), structure)
    weight_bytes = sum(one.nbytes for name, one in weights.items() if name not in _TABLES)
    roofline = Roofline(arguments.threads).read(flops, weight_bytes, flops / secs["dietcode"] / 1e9)
    return {
        **described(fresh),
        "mflops": flops / 1e6,
        "weight_bytes": weight_bytes,
        "peak_gflops": roofline.peak_gflops,
        "read_gbytes_per_sec": roofline.read_gbytes_per_sec,
        "gflops_a_sec": {name: flops / one / 1e9 for name, one in secs.items()},
        "structure_secs": made_secs,
        "others": share,
        "secs": secs,
        "disturbed": secs.disturbed,
        "over": {name: one / secs["dietcode"] for name, one in secs.items() if name != "dietcode"},
        "ranges": [{"phase": phase, "rows": rows, "secs": each} for phase, rows, each in spent],
    }


def weights_of(kind: str, folder: Path) -> dict[str, torch.Tensor]:
    """Return a bundle's weights by the names that the peers have for them."""
    found = {}
    for name, array in load_file(folder / WEIGHTS).items():
        word, _, own = name.partition(".")
        own = _NAMES.get(own, own).removeprefix("step.").removesuffix(".weight")
        if kind == "mv-rnn" and word == "leaf" and own == "matrices":
            own = "leaf_matrices"
        found[own] = torch.from_numpy(array)
    return found


def inputs_of(model: LoadedRecursion, weights: Mapping[str, Any], structure: Structure) -> Any:
    """Return random inputs of all nodes."""
    rng = np.random.default_rng(1)
    x = model.description.x
    if model.description.takes_ids:
        return rng.integers(0, len(weights["vectors"]), structure.num_nodes).astype(np.int32)
    assert x is not None  # every model of these has inputs
    width = x.shape[0].constant
    return rng.standard_normal((structure.num_nodes, width), np.float32)


def first_of(results: Any) -> Any:
    """Return the first states of the roots as an array."""
    return np.asarray(results[0] if isinstance(results, tuple) else results)


def line_of(row: Mapping[str, Any]) -> str:
    """Return one line of a row."""
    over = ", ".join(f"{name} {ratio:.2f} ×" for name, ratio in row["over"].items())
    own, speed = 1e3 * row["secs"]["dietcode"], row["gflops_a_sec"]["dietcode"]
    what = f"{row['model']} {row['hidden']}, {row['inputs']}, batch {row['batch']}"
    return f"{what}: {own:.3f} ms, {speed:.0f} GFLOP/s; {over}; others had {row['others']:.0%}"


if __name__ == "__main__":
    main()
