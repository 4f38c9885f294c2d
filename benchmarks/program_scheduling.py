"""What programs cost beside their blocks: nanoseconds a node, of blocks that only copy a number or a row.

python -m benchmarks.program_scheduling
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dietcode
from dietcode.runtime.manifest import MANIFEST, PROGRAM, PROGRAM_FORMAT, REPORT, file_facts, pretty_json
from dietcode.runtime.programs.loaded import LoadedProgram

INSTANCES, NODES, ROUNDS, ROWS = 64, 1000, 15, 1 << 21
_LOOP: list[list[Any]] = [["const", 1, 1], ["const", 2, 2]]


@dataclass
class BinaryTree:
    """A node of what the last case runs over."""

    left: BinaryTree | None
    right: BinaryTree | None
    word: int


def block(name: str, operands: int) -> dict[str, Any]:
    """Return a block whose result is its first operand, a number."""
    layout = [0, [1]]
    move = {"move": "operand0", "rows": "rows0", "shape": [1], "from": layout, "to": layout}
    step = {**move, "result": "next0", "filler": 0.0}
    return {"name": name, "operands": [0] * operands, "results": [0], "steps": [step], "max_batch": ROWS}


def loop(*body: list[Any]) -> list[list[Any]]:
    """Return instructions that run some as often as register 0 says; register 3 is a number."""
    test = [["const", 3, 3], ["binary", 4, "<", 1, 0], ["else", 4, 7 + len(body)]]
    return [*_LOOP, *test, *body, ["binary", 1, "+", 1, 2], ["jump", 3], ["return", 3]]


TREE: list[list[Any]] = [
    ["field", 1, 0, 0], ["const", 2, 0], ["binary", 3, "is", 1, 2], ["else", 3, 7],
    ["field", 4, 0, 2], ["block", [5], 0, [4]], ["return", 5],
    ["spawn", 5, 0, [1]], ["field", 6, 0, 1], ["spawn", 6, 0, [6]], ["wait", 5, 5], ["wait", 6, 6],
    ["block", [5], 1, [5, 6]], ["return", 5],
]  # fmt: skip
CASES = {
    "nothing": loop(),
    "nodes of one depth": loop(["block", [5], 0, [3]]),
    "nodes in a chain": loop(["block", [3], 0, [3]]),
    "trees, with tasks": TREE,
}


def write(folder: Path, code: list[list[Any]]) -> LoadedProgram:
    """Write a program of one function, and load it."""
    function = {
        "name": "f",
        "file": "f.py",
        "parameters": 1,
        "registers": 7,
        "code": code,
        "lines": [1] * len(code),
    }
    description = {
        **{"format": PROGRAM_FORMAT, "name": "f", "max_rows": ROWS, "entry": 0, "functions": [function]},
        **{"types": [{"dtype": "float32", "shape": []}], "constants": [None, 0, 1, 0.5], "tensors": []},
        **{"records": [{"name": "BinaryTree", "fields": ["left", "right", "word"]}]},
        **{"names": ["left", "right", "word"], "blocks": [block("one", 1), block("two", 2)]},
        **{"weights": {}, "values": {}},
    }
    files = {PROGRAM: pretty_json(description), REPORT: pretty_json({})}
    listed = {name: file_facts(data) for name, data in files.items()}
    manifest = {"format": PROGRAM_FORMAT, "name": "f", "files": listed, "libraries": {}}
    folder.mkdir()
    for name, data in {**files, MANIFEST: pretty_json(manifest)}.items():
        (folder / name).write_bytes(data)
    found = dietcode.load(folder)
    assert isinstance(found, LoadedProgram)
    return found


def tree(drawn: random.Random, leaves: int) -> BinaryTree:
    """Return a random tree of so many leaves."""
    if leaves == 1:
        return BinaryTree(None, None, drawn.randrange(9))
    left = drawn.randrange(1, leaves)
    return BinaryTree(tree(drawn, left), tree(drawn, leaves - left), 0)


def least_secs(program: LoadedProgram, instances: list[Any]) -> float:
    """Return the seconds of the fastest call."""
    found = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        program(instances)
        found.append(time.perf_counter() - begin)
    return min(found)


def main() -> None:
    """Print nanoseconds a node; of loops less those of the loop alone."""
    trees = [tree(random.Random(seed), (NODES + 1) // 2) for seed in range(INSTANCES)]
    nsecs: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, code) in enumerate(CASES.items()):
            given: list[Any] = trees if code is TREE else [NODES] * INSTANCES
            secs = least_secs(write(Path(folder) / str(number), code), given)
            nsecs[name] = round(secs * 1e9 / INSTANCES / NODES, 1)
    for name in list(CASES)[1:3]:
        nsecs[name] = round(nsecs[name] - nsecs["nothing"], 1)
    print(json.dumps(nsecs, indent=2))


if __name__ == "__main__":
    main()
