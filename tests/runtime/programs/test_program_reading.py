"""``program.json`` as hostile data: what describes no program is refused, and nothing crashes."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fresh_process import python
from hand_programs import (
    ENCODE,
    FIRST,
    LEAF,
    MERGE,
    H,
    described,
    function,
    leaf,
    load,
    lowest_block,
    write_program,
)
from sanitized import sanitized_library

import dietcode
from dietcode.errors import DietCodeError, LibraryError
from dietcode.runtime.compile_launcher import LOOP_SOURCES
from dietcode.runtime.programs.plan import read_program

Data = dict[str, Any]


def changed(change: Callable[[Data], Any], with_kernel: bool = False) -> Data:
    data = copy.deepcopy(described(ENCODE, with_kernel=with_kernel))
    change(data)
    return data


def set_code(code: list[Any], **fields: Any) -> Callable[[Data], Any]:
    return lambda data: data.update(functions=[function("f", 1, code) | fields])


def set_block(number: int, **fields: Any) -> Callable[[Data], Any]:
    return lambda data: data["blocks"][number].update(fields)


def set_step(number: int, **fields: Any) -> Callable[[Data], Any]:
    return lambda data: data["blocks"][number]["steps"][0].update(fields)


def add_lowest(**fields: Any) -> Callable[[Data], Any]:
    return lambda data: data["blocks"].append(lowest_block(**fields))


def lowest_of(block: int, *sources: Any) -> dict[str, Any]:
    return {"lowest_of": {"block": block, "sources": list(sources)}}


RETURN = ["return", 0]
OTHERS = "which has other operands"
WRONG: dict[str, tuple[Callable[[Data], Any], str]] = {
    "format": (lambda data: data.update(format="dietcode-program/2"), "format 'dietcode-program/2'"),
    "register": (set_code([["move", 24, 0], RETURN]), "instruction 0: register 24; allowed: 0…23"),
    "negative register": (set_code([["move", -1, 0], RETURN]), "register -1"),
    "text as a register": (set_code([["move", "1", 0], RETURN]), "register 1; allowed"),
    "bool as a register": (set_code([["move", True, 0], RETURN]), "register True"),
    "float as a register": (set_code([["move", 1.0, 0], RETURN]), "register 1.0"),
    "huge register": (set_code([["move", 2**70, 0], RETURN]), "register 1180591620717411303424"),
    "jump behind": (set_code([["jump", 2], RETURN]), "pc 2; allowed: 0…1"),
    "jump before": (set_code([["else", 0, -1], RETURN]), "pc -1"),
    "no end": (set_code([RETURN, ["move", 1, 0]]), "ends with 'move'; allowed: return, jump, raise"),
    "no code": (set_code([]), "number of instructions 0"),
    "no operation": (set_code([["leap", 1], RETURN]), "'leap' is no operation"),
    "an instruction that is none": (set_code([3, RETURN]), "instruction 0"),
    "an empty instruction": (set_code([[], RETURN]), "instruction 0"),
    "operands": (set_code([["move", 1], RETURN]), "move with 1 operands; allowed: 2"),
    "operator": (set_code([["binary", 1, "<>", 0, 0], RETURN]), "binary '<>'; allowed: + -"),
    "kind": (set_code([["value", 1, 0, "neg"], RETURN]), "kind 'neg'; allowed: float int bool"),
    "function": (set_code([["call", 1, 1, [0]], RETURN]), "function 1; allowed: 0…0"),
    "arguments": (set_code([["spawn", 1, 0, [0, 0]], RETURN]), "spawn with 2 values; allowed: 1"),
    "argument list": (set_code([["call", 1, 0, 0], RETURN]), "registers are a list"),
    "constant": (set_code([["const", 1, 10], RETURN]), "constant 10; allowed: 0…9"),
    "raise": (set_code([["raise", 3]]), "raise of a constant that is no text"),
    "tensor": (set_code([["tensor", 1, 1], RETURN]), "tensor 1; allowed: 0…0"),
    "record": (set_code([["record", 1, 1, []], RETURN]), "record 1"),
    "fields": (set_code([["record", 1, 0, [0]], RETURN]), "record with 1 values; allowed: 3"),
    "name": (set_code([["field", 1, 0, 3], RETURN]), "name 3; allowed: 0…2"),
    "block": (set_code([["block", [1], 5, [0]], RETURN]), "block 5; allowed: 0…4"),
    "block operands": (set_code([["block", [1], FIRST, []], RETURN]), "block with 0 values; allowed: 1"),
    "block results": (set_code([["block", [], FIRST, [0]], RETURN]), "0 results of a block; allowed: 1"),
    "registers": (set_code([RETURN], registers=1 << 13), "registers 8192; allowed: 1…4096"),
    "parameters": (set_code([RETURN], parameters=25), "parameters 25"),
    "lines": (set_code([RETURN], lines=[]), "0 lines of 1 instructions"),
    "entry": (lambda data: data.update(entry=1), "entry 1; allowed: 0…0"),
    "entry without": (set_code([["const", 0, 0], RETURN], parameters=0), "an entry without a parameter"),
    "no functions": (lambda data: data.update(functions=[]), "entry"),
    "max_rows": (lambda data: data.update(max_rows=2**31), "max_rows 2147483648"),
    "too large a table": (
        lambda data: data["types"].append({"dtype": "float32", "shape": [2**30]}), "of which a table has more"
    ),
    "too large a tensor": (
        lambda data: data["types"].append({"dtype": "float32", "shape": [2**40, 2**40]}), "a tensor float32"
    ),
    "dtype": (lambda data: data["types"].append({"dtype": "float64", "shape": []}), "a tensor float64[]"),
    "extent": (lambda data: data["types"].append({"dtype": "float32", "shape": [-1]}), "a tensor float32"),
    "a dimension": (lambda data: data["types"].append({"dtype": "float32", "shape": ["B"]}), "describes no"),
    "large constant": (lambda data: data["constants"].append(2**63), "constant 9223372036854775808"),
    "list constant": (lambda data: data["constants"].append([]), "a constant '[]'"),
    "tensor of no weight": (lambda data: data["tensors"][0].update(value="X"), "'X' is no weight"),
    "tensor of another size": (lambda data: data["tensors"][0].update(value="V"), "'V' is float32[16, 16]"),
    "tensor's type": (lambda data: data["tensors"][0].update(type=4), "type 4; allowed: 0…3"),
    "operand's type": (set_block(FIRST, operands=[-1]), "type -1"),
    "many operands": (set_block(FIRST, operands=[0] * 33), "operands or results of a block: 33"),
    "result not written": (set_block(FIRST, steps=[]), "first: no step writes next0"),
    "phase": (set_block(FIRST, phase=101), "phase 101; allowed: 0…100"),
    "max_batch": (set_block(FIRST, max_batch=0), "max_batch 0"),
    "rows of another type": (set_step(FIRST, rows="rows1"), "reads 'rows1' before it is computed"),
    "no rows": (set_step(FIRST, rows=None), "rows of 'operand0' at None"),
    "ids as rows": (set_step(FIRST, rows="ids0"), "before it is computed"),
    "a table that is no operand": (set_step(FIRST, move="operand1"), "before it is computed"),
    "elements behind": (set_step(FIRST, shape=[H + 1]), "a move of the elements 0 to 16"),
    "elements before": (set_step(FIRST, **{"from": [-1, [1]]}), "a move of the elements -1"),
    "a weight at rows": (set_step(FIRST, move="E"), "rows of 'E' at rows0"),
    "operands written": (set_step(FIRST, result="operand0"), "which is there already"),
    "rows written": (set_step(FIRST, result="rows0"), "which is there already"),
    "a weight written": (set_step(FIRST, result="E"), "describes no program"),
    "a value that is none": (set_step(FIRST, result="nothing"), "describes no program"),
    "values without rows": (lambda data: data["values"]["kept"].update(shape=[4]), "no row for each row"),
    "load": (set_block(FIRST, load=[{"host": "reshape", "operands": [{"value": "X"}], "attributes":
                                     {"shape": [1]}, "results": ["Y"]}]), "the load reads 'X'"),
    "names": (lambda data: data.update(names=["n"] * 60_000, records=[{"name": "r", "fields": []}] * 20),
              "20 records and 60000 names"),
    "takes over none": (add_lowest(**lowest_of(7, None, None)), "takes over calls of 7, which has none"),
    "takes over its own": (add_lowest(**lowest_of(5, None, None)), "takes over calls of 5, which has none"),
    "takes over twice": (
        lambda data: [add_lowest()(data), add_lowest()(data)], "takes over calls of 1, which has none for it"
    ),
    "sources of one operand": (add_lowest(**lowest_of(MERGE, [LEAF, 0, 0])), OTHERS),
    "a source that is none": (add_lowest(**lowest_of(MERGE, [LEAF, 0, 0], [9, 0, 1])), OTHERS),
    "a source of rows": (add_lowest(**lowest_of(MERGE, [LEAF, 0, 0], [FIRST, 0, 1])), OTHERS),
    "a result that is none": (add_lowest(**lowest_of(MERGE, [LEAF, 0, 0], [LEAF, 1, 1])), OTHERS),
    "a leader behind": (add_lowest(**lowest_of(MERGE, [LEAF, 0, 1], [LEAF, 0, 1])), "leader 1; allowed: 0…0"),
    "a leader that follows": (add_lowest(**lowest_of(MERGE, None, [LEAF, 0, 0])), OTHERS),
    "numbers of fewer": (add_lowest(**lowest_of(MERGE, [LEAF, 0, 0], [LEAF, 0, 0])), OTHERS),
    "numbers of more": (add_lowest(**lowest_of(MERGE, None, [LEAF, 0, 1])), OTHERS),
    "results of others": (add_lowest(**lowest_of(FIRST, [LEAF, 0, 0])), OTHERS),
    "a source of two numbers": (add_lowest(**lowest_of(MERGE, [LEAF, 0], None)), "describes no program"),
    "a list that is none": (lambda data: data.update(blocks={}), "blocks: no list"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_describes_no_program(what: str) -> None:
    change, said = WRONG[what]
    with pytest.raises(LibraryError, match=r"^program\.json: ") as caught:
        read_program(changed(change))
    assert said in str(caught.value)
    assert len(str(caught.value)) < 240
    assert "\n" not in str(caught.value)


OF_KERNELS: dict[str, tuple[Callable[[Data], Any], str]] = {
    "a whole table": (
        lambda data: data["blocks"][1]["steps"][0]["arguments"]["left"].update(value="rows0", shape=["B"])
        or data["blocks"][1].update(operands=[0, 3]), "reads operand0 at 'rows1'"),
    "another size": (
        lambda data: data["blocks"][1]["steps"][0]["arguments"]["V"].update(shape=[H, 2 * H]), "'V' as"),
    "more rows": (lambda data: data["blocks"][1].update(max_batch=25), "M of 0a is 1…25"),
    "other variables": (
        lambda data: data["blocks"][1]["steps"][0]["variables"].update(M="T"), "M of 0a is 4000…4000"),
    "a square": (
        lambda data: data["blocks"][1]["steps"][0]["variables"].update(M="B*B"), "an extent B*B"),
}  # fmt: skip


@pytest.mark.parametrize("what", OF_KERNELS)
def test_kernels_that_are_called_otherwise(what: str, tmp_path: Path) -> None:
    change, said = OF_KERNELS[what]
    data = changed(change, with_kernel=True)
    with pytest.raises(LibraryError) as caught:
        dietcode.load(write_program(tmp_path / "program", data))
    assert said in str(caught.value)


def test_other_bundles_and_altered_files(tmp_path: Path) -> None:
    folder = write_program(tmp_path / "program", described(ENCODE, with_kernel=False))
    (folder / "program.json").write_bytes((folder / "program.json").read_bytes() + b" ")
    with pytest.raises(LibraryError, match=r"program\.json"):
        dietcode.load(folder)


NUMBERS = (0, 1, 2, 3, 5, 9, 23, -1)
GIVEN = [3, leaf(2), [leaf(1), 2.5, [0]], "text", None]


def mutated(rng: random.Random) -> Data:
    """Random instructions that mostly find what they need: a number in register 1, a list in 2, and so on."""

    def r(wanted: int = 0) -> int:
        return wanted if wanted and rng.random() < 0.993 else rng.randrange(1, 7)

    kinds: list[Callable[[], list[Any]]] = [
        lambda: ["const", r(1), rng.choice([3, 4, 5, 6, 7])], lambda: ["tensor", r(3), 0],
        lambda: ["unary", r(1), rng.choice(["neg", "not", "abs", "int", "float", "bool"]), r(1)],
        lambda: ["binary", r(1), rng.choice(["+", "-", "*", "min", "==", "<", "is"]), r(1), r(1)],
        lambda: ["binary", r(2), "+", r(2), r(2)], lambda: ["else", r(1), rng.randrange(5, 13)],
        lambda: ["call", r(5), rng.randrange(2), [r(6)]], lambda: ["call", r(5), 1, [r(1)]],
        lambda: ["spawn", r(6), 1, [r(2)]], lambda: ["wait", r(5), r(6)], lambda: ["move", r(5), r()],
        lambda: ["tuple", r(5), [r(), r()]], lambda: ["list", r(2), [r() for _ in range(rng.randrange(4))]],
        lambda: ["record", r(4), 0, [r(), r(), r()]], lambda: ["get", r(5), r(2), r(1)],
        lambda: ["put", r(2), r(1), r()], lambda: ["slice", r(2), r(2), r(1), r(1)],
        lambda: ["append", r(2), r()], lambda: ["len", r(1), r(2)], lambda: ["pop", r(5), r(2), 7],
        lambda: ["field", r(5), r(4), rng.randrange(3)], lambda: ["setfield", r(4), rng.randrange(3), r()],
        lambda: ["block", [r(3)], 0, [r(1)]], lambda: ["block", [r(3)], 1, [r(3), r(3)]],
        lambda: ["block", [r(5)], 2, [r(1), r(1)]], lambda: ["block", [r(5)], 3, [r(3)]],
        lambda: ["block", [r(1), -1], 4, [r(5)]], lambda: ["argmax", r(1), r(3)],
        lambda: ["values", r(2), r(3)],
    ]  # fmt: skip
    functions = []
    for name in "fg":
        code = [["const", 1, 4], ["list", 2, [1, 1, 0]], ["tensor", 3, 0], ["record", 4, 0, [0, 1, 2]]]
        code += [rng.choice(kinds)() for _ in range(9)]
        functions.append(function(name, 1, [*code, ["return", r(2)]], 8))
    data = described(*functions, with_kernel=False)
    data["blocks"].append(lowest_block())
    return data


def run_mutated(seed: int, folder: Path) -> str:
    """Load and call a random program; returns how that ended."""
    program: Any = dietcode.load(write_program(folder, mutated(random.Random(seed))))
    program.max_steps, program.max_bytes = 100_000, 30_000_000
    try:
        return " ".join(type(one).__name__ for one in program(GIVEN, errors="return"))
    except (DietCodeError, MemoryError) as error:
        return type(error).__name__


def test_programs_of_random_instructions(tmp_path: Path) -> None:
    ends = Counter(run_mutated(seed, tmp_path / str(seed)) for seed in range(100))
    assert len(ends) > 2
    assert ends["ProgramError " * 4 + "ProgramError"] > 10
    assert ends["list " * 4 + "list"] > 10


def test_descriptions_with_other_numbers(tmp_path: Path) -> None:
    """One number of a good description is another one: refused, or it runs to some end."""
    outcomes = []
    for seed in range(150):
        rng = random.Random(seed)
        data = changed(lambda _: None)
        parent: Any = data
        key: Any = rng.choice(["functions", "blocks", "types", "tensors", "values", "entry", "max_rows"])
        while isinstance(parent[key], list | dict) and parent[key]:
            parent = parent[key]
            key = rng.choice(list(parent) if isinstance(parent, dict) else range(len(parent)))
        parent[key] = rng.choice([*NUMBERS, "B", None, [], 2**40])
        try:
            program: Any = dietcode.load(write_program(tmp_path / str(seed), data))
            program.max_steps, program.max_bytes = 100_000, 30_000_000
            program([leaf(3), 2, [leaf(1)]], errors="return")
            outcomes.append("ran")
        except (DietCodeError, MemoryError) as error:
            outcomes.append(type(error).__name__)
    assert outcomes.count("LibraryError") > 50
    assert outcomes.count("ran") > 10


@pytest.mark.thorough
def test_random_programs_under_a_sanitizer(tmp_path: Path) -> None:
    """No byte beside the machine's own is read or written, and all of it is given back."""
    made, env = sanitized_library(tmp_path, LOOP_SOURCES, "loops.so")
    script = """
import sys
from pathlib import Path
made, folder, *paths = sys.argv[1:]
sys.path[:0] = paths
from dietcode.runtime import native_loops
native_loops.LOOPS = Path(made)
from test_program_reading import run_mutated
print(len([run_mutated(seed, Path(folder) / str(seed)) for seed in range(100, 200)]))
"""
    here = Path(__file__).parent
    paths = [here, here.parent, here.parents[1]]
    ends = python(script, made, tmp_path / "programs", *paths, env=env, timeout_secs=120)
    assert int(ends) == 100


def test_a_program_is_given_back() -> None:
    """A workplace keeps its machine, which keeps the libraries."""
    for _ in range(50):
        program = load(ENCODE)
        program([leaf(1)])
        workplace = program._free[0][0]
        del program
        with pytest.raises(TypeError, match="takes ten integers, or two"):
            workplace(1)
