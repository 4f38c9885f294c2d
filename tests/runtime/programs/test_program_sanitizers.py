"""Programs under sanitizers: the machine with several calling threads, and what reads instances."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from fresh_process import python
from hand_programs import (
    HALF,
    HALVES,
    JOIN,
    NONE,
    ONE,
    TWO,
    WRONG,
    ZERO,
    Tree,
    blocks,
    function,
    leaf,
    load,
    random_tree,
)
from sanitized import run_sanitized, sanitized_library

from dietcode.runtime.compile_launcher import CALL_SOURCES, LOOP_SOURCES
from dietcode.runtime.compiled import CompiledCall
from dietcode.runtime.programs import machine
from dietcode.runtime.programs.instances import InstanceEncoder, Integers
from dietcode.runtime.programs.results import ResultDecoder, words_at

# Two tasks a node, a decision in each, an error in some, and a list of what was decided.
_ROOT = function("root", 1, [
    ["call", 1, 2, [0]], ["list", 1, []], ["call", 2, 1, [0, 1]],
    ["block", [3, 4], 1, [2]], ["value", 3, 3, "float"], ["value", 4, 4, "float"],
    ["tuple", 5, [3, 4, 1]], ["return", 5],
])  # fmt: skip
_NODE = function("node", 2, [
    ["field", 2, 0, 0], ["const", 3, NONE], ["binary", 4, "is", 2, 3], ["else", 4, 12],
    ["field", 5, 0, 2], ["const", 6, HALF], ["const", 7, TWO], ["binary", 8, "*", 7, 7],
    ["binary", 8, "!=", 5, 8], ["else", 8, 27], ["block", [9], 0, [5, 6]], ["return", 9],
    ["spawn", 5, 1, [2, 1]], ["field", 6, 0, 1], ["spawn", 6, 1, [6, 1]],  # 12
    ["wait", 5, 5], ["wait", 6, 6], ["block", [7, 8], 1, [5]], ["block", [9, 10], 1, [6]],
    ["value", 11, 7, "float"], ["append", 1, 11], ["const", 12, TWO], ["binary", 13, "<", 11, 12],
    ["else", 13, 25], ["block", [14], 0, [7, 9]],
    ["block", [14], 0, [9, 8]], ["return", 14],  # 25
    ["raise", WRONG],
])  # fmt: skip
# A task that fails, which is taken, and a text that is made of it.
_TEXTS = function("texts", 1, [
    ["spawn", 1, 3, [0]], ["wait", 2, 1], ["return", 2], ["const", 3, WRONG],
    ["join", 4, [2, 3]], ["order", 5, 4, 3], ["return", 4],
]) | {"handlers": [[1, 2, 3, 2]]}  # fmt: skip
_FAIL = function("fail", 1, [
    ["const", 1, ONE], ["const", 2, ZERO], ["binary", 3, "//", 1, 2], ["return", 3],
])  # fmt: skip
_BLOCKS = [blocks()[JOIN], blocks()[HALVES]]  # which have no weights, and no addresses of this process
_MAX_ROWS = 700  # so that some are given up on the way


def _cases() -> list[list[Tree]]:
    rng = np.random.default_rng(3)
    sizes = (0, 1, 2, 5, 20, 60)
    return [[random_tree(rng, int(rng.integers(1, 8))) for _ in range(size)] for size in sizes]


@pytest.mark.thorough
@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_threads_call_one_machine(tmp_path: Path, sanitizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its own results, whatever others do; calls that are cut off leave nothing behind."""
    made: list[array[int]] = []
    results: list[array[int]] = []
    own_function, own_decode = machine.loop_function, ResultDecoder.decode

    def recorded_function(name: str) -> Any:
        def make(*given: int) -> Any:
            made.extend(words_at(*given[at : at + 2]) for at in range(0, len(given), 2))
            return own_function(name)(*given)

        return make

    def recorded_decode(self: ResultDecoder, given: Integers, *others: Any) -> Any:
        results.append(words_at(given.address, given.length))
        return own_decode(self, given, *others)

    monkeypatch.setattr(machine, "loop_function", recorded_function)
    monkeypatch.setattr(ResultDecoder, "decode", recorded_decode)
    program = load(_ROOT, _NODE, _TEXTS, _FAIL, tensors=[], weights={}, blocks=_BLOCKS, max_rows=_MAX_ROWS)
    written = array("q")
    for one in made[:2]:  # of calls with NumPy's arrays
        written += array("q", [len(one)]) + one
    cases = _cases()
    written.append(len(cases))
    encoder, failed = InstanceEncoder(program.plan), 0
    for trees in cases:
        encoded = encoder.encode(list(trees))
        words = words_at(encoded.words.address, encoded.words.length)
        found = program(trees, errors="return")
        failed += sum(isinstance(one, Exception) for one in found)
        own = results.pop() if trees else array("q")
        written += array("q", [len(trees), encoded.num_objects, len(words)]) + words
        written += array("q", [len(own)]) + own
    assert 0 < failed < sum(map(len, cases))
    (tmp_path / "machine.bin").write_bytes(written.tobytes())
    main = Path(__file__).with_name("machine_stress.c")
    run_sanitized(tmp_path, sanitizer, LOOP_SOURCES, main, [str(tmp_path / "machine.bin")])


_READ = """
import importlib.machinery, importlib.util, sys
import tvm_ffi  # whose functions it calls
made, *paths = sys.argv[1:]
sys.path[:0] = paths
name = "dietcode.runtime.compiled_call"
loader = importlib.machinery.ExtensionFileLoader(name, made)
module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
import dietcode.runtime
sys.modules[name] = dietcode.runtime.compiled_call = module
from dietcode.runtime import compiled
assert compiled.compiled_call.__file__ == made
from test_program_sanitizers import read_all
for _ in range(5):
    read_all()
print("right")
"""


@pytest.mark.thorough
def test_the_reader_of_instances_under_a_sanitizer(tmp_path: Path) -> None:
    made, env = sanitized_library(tmp_path, CALL_SOURCES, "compiled_call.abi3.so")
    env["PYTHONMALLOC"] = "malloc"
    here = Path(__file__).parent
    done = python(_READ, made, here, here.parent, here.parents[1], env=env, timeout_secs=120)
    assert done.strip() == "right"


class Computed:
    """An object that gives the same list under two names."""

    def __init__(self, word: int) -> None:
        self._list, self.word = [word], word

    left = right = property(lambda self: self._list)


def given_values() -> list[Any]:
    """Instances of everything that is allowed, shared, nested in itself, or long."""
    shared, cycle = [1, 2.5, "text"], [None]
    cycle.append(cycle)
    rows = np.arange(16, dtype=np.float32)
    tree = Tree(leaf(1), leaf(2), 3)
    deep: list[Any] = []
    for _ in range(3000):
        deep = [deep]
    pair = (rows, (shared, (True, None), shared), [rows])
    same = [np.float32(1.5), np.int32(4), "wrong", "own text", -(2**63), 2**63 - 1, 1e300]
    many = [Tree(leaf(at), leaf(at + 1), at) for at in range(300)]
    return [shared, shared, cycle, tree, Tree(tree, tree, 0), deep, pair, same, [], (), Computed(4), many]


def facts_of(value: Any) -> list[Any]:
    """What is in a value, one after the other, with the numbers of lists and objects that come again."""
    found: list[Any] = []
    known: dict[int, int] = {}
    waiting = [value]
    while waiting:
        one = waiting.pop()
        is_sequence = isinstance(one, list | tuple)
        if isinstance(one, np.ndarray) or not (is_sequence or hasattr(one, "__dict__")):
            found.append(repr(one))
            continue
        is_known = id(one) in known
        found += [type(one).__name__, known.setdefault(id(one), len(known))]
        if not is_known:
            waiting += one if is_sequence else [vars(one)[name] for name in sorted(vars(one))]
    return found


def read_all() -> None:
    """Values go in and come out as they were, in C as in Python; what is wrong is refused alike."""
    program = load(function("same", 1, [["list", 1, []], ["return", 0]]))
    wrong: list[Any] = [object(), {1: 2}, 2**63, np.zeros((3, 3), np.float32), [leaf(1), {1}], b"bytes"]
    errors, results = [], []
    for in_c in (True, False):
        program._encoder = InstanceEncoder(program.plan, in_c)
        program._decoder = ResultDecoder(program.plan, in_c)
        found = program(given_values())
        results.append([facts_of(one) for one in found])
        assert (
            found[2][1] is found[2] and found[4].left is found[4].right and found[6][1][0] is found[6][1][2]
        )
        assert found[0] == found[1] == [1, 2.5, "text"] and found[7][2:] == given_values()[7][2:]
        assert found[10].left is found[10].right and found[10].left == [4]
        errors.append([])
        for one in wrong:
            with pytest.raises(Exception) as caught:
                program([[1], one])
            errors[-1].append(str(caught.value))
    assert results[0] == results[1] and errors[0] == errors[1]


@pytest.mark.skipif(CompiledCall is None, reason="this installation has no way in C")
def test_both_ways_read_and_write_the_same() -> None:
    read_all()


def test_a_list_that_a_class_has_is_one_list() -> None:
    """Several objects give the same one, though a single place holds it."""

    class Shared:
        left: ClassVar[list[Any]] = [1]
        right = None
        word = 0

    code = [["const", 1, ZERO], ["get", 2, 0, 1], ["field", 2, 2, 0], ["const", 1, TWO], ["append", 2, 1]]
    program = load(function("first", 1, [*code, ["return", 0]]))
    one, other = program([[Shared(), Shared()]])[0]
    assert one.left is other.left and one.left == [1, 2] and Shared.left == [1]
