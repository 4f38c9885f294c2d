"""``mutated_bundles.py FOLDER KIND FIRST LAST``: loads and calls bundles in which one value is another one.

Digests are made again, as whoever alters a bundle can do where no signature is asked for. What each comes to
is printed as JSON: ``ran``, the name of an error of DietCode's, or what else was raised, with the seed.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from hostile_models import at, changed, leaves

import dietcode
from dietcode.errors import DietCodeError
from dietcode.runtime.manifest import file_facts, kind_of_bundle, sha256_file

_VALUES: tuple[Any, ...] = (
    *(
        0,
        1,
        2,
        3,
        7,
        99,
        -1,
        2**31 - 1,
        2**31,
        2**40,
        2**63,
        10**30,
        0.5,
        1e308,
        True,
        None,
        "",
        "B",
        "N",
        "L",
    ),
    *("B*B*B", "2**40*B", "-B", "nothing", "float64", "<m8[s]", [], [0], [2**40] * 3, {}, {"value": "x"}),
)
_BYTES = 6 << 30


def mutated(data: Any, rng: random.Random) -> Any:
    """The same data with one value that is another one, is left out, or belongs to something else."""
    path = rng.choice(list(leaves(data)))
    if rng.random() < 0.1 and isinstance(at(data, path[:-1]), dict):
        made = changed(data, path, None)
        del at(made, path[:-1])[path[-1]]
        return made
    if rng.random() < 0.3:
        return changed(data, path, at(data, rng.choice(list(leaves(data)))))
    return changed(data, path, rng.choice(_VALUES))


def mutate(folder: Path, rng: random.Random) -> str:
    """Change one document of a bundle, and all digests above it; returns its name."""
    description = folder / kind_of_bundle(folder)[1]
    manifest = json.loads((folder / "manifest.json").read_bytes())
    documents = [description] * 4 + sorted((folder / "libraries").glob("*/manifest.json"))
    path = rng.choice(documents)
    path.write_text(json.dumps(mutated(json.loads(path.read_bytes()), rng)))
    if path == description:
        manifest["files"][path.name] = file_facts(path.read_bytes())
    else:
        manifest["libraries"][path.parent.name]["manifest"] = sha256_file(path)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return path.name


class Pair:
    left = right = None
    word = 0


def call(loaded: Any, kind: str) -> None:
    """Call what was loaded."""
    if kind == "model":
        loaded(np.ones((3, 16), np.float32))
    elif kind == "recursion":
        structure = dietcode.Structure(children=np.array([[-1, -1], [-1, -1], [0, 1]], np.int32))
        loaded(structure, np.ones((3, 6), np.float32))
    else:
        both = Pair()
        both.left, both.right = Pair(), Pair()
        loaded.max_steps, loaded.max_bytes = 100_000, 1 << 28
        loaded([both, Pair()], errors="return")


def outcome(folder: Path, kind: str, seed: int, place: Path) -> str:
    """What one mutation comes to."""
    shutil.copytree(folder, place)
    try:
        name = mutate(place, random.Random(seed))
        call(dietcode.load(str(place)), kind)
    except DietCodeError as error:
        text = str(error)
        is_designed = text.isprintable() and len(text) < 1000
        return type(error).__name__ if is_designed else f"{seed}: {text!r}"
    except MemoryError as error:  # which calls of programs say
        return "MemoryError" if kind == "program" else f"{seed}: {error!r}"
    except Exception as error:
        return f"{seed}: {name}: {type(error).__name__}: {error}"
    finally:
        shutil.rmtree(place)
    return "ran"


def main() -> None:
    folder, kind, first, last = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
    place = Path(folder).with_name(f"mutated-{kind}")
    for seed in range(int(first), int(last)):
        sys.stdout.write(json.dumps(outcome(Path(folder), kind, seed, place)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
