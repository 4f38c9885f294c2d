"""Calls of programs: against float64, what is run together, fibers that wait, errors, limits, memory."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from fresh_process import python
from hand_programs import (
    ENCODE,
    FIRST,
    HALF,
    HALVES,
    JOIN,
    LEAF,
    MAX_BATCH,
    MAX_ROWS,
    MERGE,
    NUM_WORDS,
    ONE,
    TWO,
    ZERO,
    H,
    Tree,
    blocks,
    encoded,
    function,
    leaf,
    load,
    lowest_block,
    merged,
    random_tree,
    weights,
)
from small_libraries import SAFE_ERROR, error

import dietcode
from dietcode.errors import ProgramError, ShapeError
from dietcode.runtime.cgroups import memory_bytes
from dietcode.runtime.programs.loaded import LoadedProgram

COUNT = function("count", 1, [  # down to zero, by calls
    ["const", 1, ZERO], ["binary", 2, "<", 1, 0], ["else", 2, 7],
    ["const", 1, ONE], ["binary", 0, "-", 0, 1], ["call", 1, 0, [0]], ["return", 1],
    ["return", 0],
], 3)  # fmt: skip
FOREVER = function("forever", 1, [["jump", 0]])


def trees(seed: int, count: int, most: int = 30) -> list[Tree]:
    rng = np.random.default_rng(seed)
    return [random_tree(rng, int(rng.integers(1, most))) for _ in range(count)]


def check(program: LoadedProgram, given: list[Tree]) -> None:
    for own, tree in zip(program(given), given, strict=True):
        assert error(own, encoded(tree)) < SAFE_ERROR


@pytest.fixture(scope="module")
def merging() -> LoadedProgram:
    return load(ENCODE, with_kernel=True)


@pytest.mark.parametrize("count", [0, 1, 2, 20, 70])
def test_trees(merging: LoadedProgram, count: int) -> None:
    check(merging, trees(count, count))


def test_what_is_run_together(merging: LoadedProgram) -> None:
    """Nodes of one depth and block, in pieces of as many as a block takes."""
    given = trees(3, 12)
    depths: dict[int, int] = {}

    def count(tree: Tree) -> int:
        below = [count(one) for one in (tree.left, tree.right) if one is not None]
        depth = 1 + max(below, default=0)
        depths[depth] = depths.get(depth, 0) + 1
        return depth

    for tree in given:
        count(tree)
    runs = merging.block_runs(given)
    wanted = [
        (depth, "leaf" if depth == 1 else "merge", min(MAX_BATCH, many - at))
        for depth, many in sorted(depths.items())
        for at in range(0, many, MAX_BATCH)
    ]
    assert [(one.depth, one.block, one.rows) for one in runs] == wanted
    assert all(one.secs > 0 and one.phase == 0 for one in runs)


def test_blocks_of_a_later_phase_are_run_behind(merging: LoadedProgram) -> None:
    """What is at any depth of the first phase is run at once in the second."""
    first = merging.plan.blocks[FIRST]
    code = function("f", 1, [["call", 1, 1, [0]], ["block", [2], FIRST, [1]], ["return", 2]])
    inner = function(
        "encode", 1, [one if one[0] != "call" else [*one[:2], 1, one[3]] for one in ENCODE["code"]]
    )
    given = trees(5, 9)
    plain = load(code, inner)
    assert first.phase == 0
    assert sum(one.block == "first" for one in plain.block_runs(given)) > 1
    later = [{**one, "phase": 3 * (one["name"] == "first")} for one in blocks(False)]
    behind = load(code, inner, blocks=later)
    runs = behind.block_runs(given)
    assert [(one.phase, one.depth, one.rows) for one in runs if one.block == "first"] == [(3, 1, 9)]
    assert runs[-1].block == "first"
    assert [float(one) for one in behind(given)] == [float(one) for one in plain(given)]


def test_calls_on_leaves_are_taken_over() -> None:
    """Nodes above leaves alone, of all depths; not those whose leaves were computed before."""
    program = load(ENCODE, blocks=[*blocks(False), lowest_block()])
    given = trees(8, 15)

    def found(tree: Tree) -> int:
        """The word that a tree is, as the blocks without kernels have it."""
        if tree.left is None or tree.right is None:
            return tree.word
        pair = tree.left.left is None and tree.right.left is None
        return found(tree.right) if pair else found(tree.left)

    for own, tree in zip(program(given), given, strict=True):
        np.testing.assert_array_equal(own, weights()["E"][found(tree)])
    pairs = sum(map(_pairs, given))
    runs = program.block_runs(given)
    assert sum(one.rows for one in runs if one.block == "lowest") == pairs > MAX_BATCH
    assert {one.depth for one in runs if one.block == "lowest"} == {1}
    merges = sum(one.rows for one in runs if one.block == "merge")
    assert merges == sum(one.rows for one in load(ENCODE).block_runs(given) if one.block == "merge") - pairs
    # The left leaf is computed when its number is read, and merged after that.
    code = [
        *(["field", 1, 0, 0], ["field", 2, 0, 1], ["field", 3, 1, 2], ["field", 4, 2, 2]),
        *(["block", [5], LEAF, [3]], ["block", [6], FIRST, [5]], ["value", 7, 6, "float"]),
        *(["block", [8], LEAF, [4]], ["block", [9], MERGE, [5, 8]], ["return", 9]),
    ]
    late = load(function("f", 1, code), blocks=[*blocks(False), lowest_block()])
    one = Tree(leaf(3), leaf(5), 0)
    np.testing.assert_array_equal(late([one])[0], weights()["E"][3])
    np.testing.assert_array_equal(program([one])[0], weights()["E"][5])
    wrong = program([Tree(leaf(1), leaf(NUM_WORDS), 0), one], errors="return")
    assert f"the number {NUM_WORDS}; allowed: 0…{NUM_WORDS - 1}" in str(wrong[0])
    np.testing.assert_array_equal(wrong[1], weights()["E"][5])


def _pairs(tree: Tree) -> int:
    if tree.left is None or tree.right is None:
        return 0
    return (tree.left.left is None and tree.right.left is None) + _pairs(tree.left) + _pairs(tree.right)


def test_fibers_wait_for_numbers_together() -> None:
    """x is halved, by half of it in a pair, until it is small: each instance as often as it needs."""
    code = [
        ["const", 1, ZERO], ["const", 6, ONE], ["const", 7, HALF],
        ["block", [2], JOIN, [0, 7]], ["block", [3, 4], HALVES, [2]], ["value", 5, 3, "float"],  # 3
        ["binary", 8, "<=", 5, 6], ["else", 8, 10], ["tuple", 9, [1, 3]], ["return", 9],
        ["binary", 0, "*", 5, 7], ["binary", 1, "+", 1, 6], ["jump", 3],  # 10
    ]  # fmt: skip
    program = load(function("f", 1, code))
    given = [0.5, 100.0, 3.0, 1.0, 17.0, 17.0]
    found = program(given)
    needed = []
    for own, x in zip(found, given, strict=True):
        rounds = next(count for count in range(20) if x / 2**count <= 1)
        assert (own[0], float(own[1])) == (rounds, x / 2**rounds)
        needed.append(rounds)
    rows = [one.rows for one in program.block_runs(given) if one.block == "join"]
    assert rows == [sum(rounds >= at for rounds in needed) for at in range(max(needed) + 1)]


def test_tasks_wait_beside_each_other() -> None:
    """The numbers of both sides of a tree are asked for at once."""
    code = [
        ["field", 1, 0, 0], ["else", 1, 10],
        ["field", 2, 0, 1], ["spawn", 1, 0, [1]], ["spawn", 2, 0, [2]], ["wait", 1, 1], ["wait", 2, 2],  # 2
        ["binary", 1, "+", 1, 2], ["block", [3], JOIN, [1, 1]], ["jump", 14],
        ["field", 1, 0, 2], ["block", [1], LEAF, [1]], ["block", [1], FIRST, [1]],
        ["block", [3], JOIN, [1, 1]],
        ["block", [4, 5], HALVES, [3]], ["value", 6, 5, "float"], ["return", 6],  # 14
    ]  # fmt: skip
    program = load(function("f", 1, code))

    def right(tree: Tree) -> float:
        if tree.left is None or tree.right is None:
            return float(weights()["E"][tree.word, 0])
        return float(np.float32(right(tree.left) + right(tree.right)))

    given = trees(8, 10)
    assert program(given) == pytest.approx([right(one) for one in given])
    rows = [one.rows for one in program.block_runs(given) if one.block == "leaf"]
    assert len(rows) == -(-sum(rows) // MAX_BATCH), "all leaves are there before anybody waits"


def test_a_task_that_waits_for_itself() -> None:
    code = [["list", 1, []], ["spawn", 2, 1, [1]], ["append", 1, 2], ["wait", 3, 2], ["return", 3]]
    inner = function("g", 1, [["const", 1, ZERO], ["get", 2, 0, 1], ["wait", 3, 2], ["return", 3]])
    program = load(function("f", 1, code), inner)
    (found,) = program([1], errors="return")
    assert "waits for itself" in str(found)


def test_an_error_is_of_its_instance_alone(merging: LoadedProgram) -> None:
    wrong = Tree(leaf(1), Tree(leaf(2), leaf(NUM_WORDS), 0), 0)
    given = trees(4, 5)
    mixed = [*given[:2], wrong, *given[2:], leaf(-1)]
    found = merging(mixed, errors="return")
    said = f"leaf: the number {NUM_WORDS}; allowed: 0…{NUM_WORDS - 1}, a row of the table that is read"
    assert str(found[2]) == f"instance 2: hand.py:6: in encode: {said}"
    assert isinstance(found[6], ProgramError)
    assert found[6].instance == 6
    for own, tree in zip(found[:2] + found[3:6], given, strict=True):
        assert error(own, encoded(tree)) < SAFE_ERROR
    with pytest.raises(dietcode.ProgramError, match="instance 2: ") as caught:
        merging(mixed)
    assert caught.value.instance == 2
    with pytest.raises(ValueError, match="errors: 'ignore'; allowed: raise, return"):
        merging(given, errors="ignore")  # type: ignore[arg-type]


@pytest.mark.parametrize("depth", [10_000, 200_000])
def test_deep_calls(depth: int) -> None:
    assert load(COUNT)([depth, 3, depth // 2]) == [0, 0, 0]


def test_calls_without_an_end() -> None:
    endless = function("f", 1, [["call", 1, 0, [0]], ["return", 1]], 2)
    (found,) = load(endless)([1], errors="return")
    assert "calls within calls, over 1000000" in str(found)


def test_a_deep_chain_of_objects(merging: LoadedProgram) -> None:
    """Neither reading it nor running over it takes Python's stack."""
    tree = leaf(1)
    for _ in range(3_000):
        tree = Tree(tree, leaf(2), 0)
    assert np.isfinite(load(ENCODE, max_rows=20_000)([tree])[0]).all()
    nested: list[Any] = []
    for _ in range(10_000):
        nested = [nested]
    (found,) = load(function("f", 1, [["return", 0]]))([nested])
    for _ in range(10_000):
        (found,) = found
    assert found == []


def test_limits_of_a_call() -> None:
    program = load(ENCODE)
    given = trees(1, MAX_ROWS // 20, 40)
    with pytest.raises(ShapeError, match=rf"over {MAX_ROWS} tensors float32\[16\]; allowed: .* pass fewer"):
        program(given)
    assert (program([leaf(2)])[0] == weights()["E"][2]).all()
    forever = load(FOREVER)
    forever.max_steps = 1_000_000
    with pytest.raises(ProgramError, match="over 1000000 instructions"):
        forever([1, 2])
    growing = load(function("f", 1, [["list", 1, []], ["append", 1, 0], ["jump", 1]]))
    growing.max_bytes = 10_000_000
    for _ in range(3):
        with pytest.raises(MemoryError, match="1 instances take over 10000000 bytes"):
            growing([1])


def test_an_instance_that_contains_itself_ends() -> None:
    program = load(ENCODE)
    assert 0 < program.max_bytes <= memory_bytes() // 2
    endless = Tree(None, None, 0)
    endless.left = endless.right = endless
    program.max_bytes = 10_000_000
    with pytest.raises(MemoryError, match="does an object contain itself"):
        program([endless])
    assert (program([leaf(2)])[0] == weights()["E"][2]).all()


def test_a_call_is_interrupted() -> None:
    program = load(FOREVER)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            program([1])
    finally:
        signal.signal(signal.SIGALRM, before)


def test_threads_call_at_once(merging: LoadedProgram) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda seed: check(merging, trees(seed, 20)), range(24)))


def test_a_signals_handler_calls_while_a_call_runs(merging: LoadedProgram) -> None:
    forever, done = load(FOREVER), []

    def handler(*_: Any) -> None:
        check(merging, trees(2, 3))
        done.append(True)
        if len(done) == 3:
            raise InterruptedError

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    try:
        with pytest.raises(InterruptedError):
            forever([1])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_forked_child_calls(merging: LoadedProgram) -> None:
    check(merging, trees(1, 4))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            check(merging, trees(2, 4))
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    check(merging, trees(3, 4))


def test_it_is_pickled_by_its_folder(merging: LoadedProgram) -> None:
    again = pickle.loads(pickle.dumps(merging))
    check(again, trees(1, 3))
    assert repr(again).startswith(
        "<dietcode.LoadedProgram hand: 1 parameter, 1 function, 5 blocks; up to 4000"
    )


def test_tensors_of_torch_come_and_go() -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    program = load(function("f", 1, [["block", [1], MERGE, [0, 0]], ["list", 2, [1, 0]], ["return", 2]]))
    rows = torch.arange(16, dtype=torch.float32)
    (found,) = program([rows])
    assert all(torch.equal(one, rows) for one in found)
    with pytest.raises(dietcode.errors.TensorError, match=r"instance 0: a tensor: requires grad"):
        program([torch.ones(16, requires_grad=True)])
    identity = load(function("f", 1, [["return", 0]]))
    assert identity([torch.tensor(7)]) == [7]
    strided = torch.arange(32, dtype=torch.float32)[::2].contiguous()
    assert torch.equal(identity([strided])[0], strided)


def test_it_needs_no_compiler_and_no_torch(merging: LoadedProgram) -> None:
    script = """
import sys
import dietcode
program = dietcode.load(sys.argv[1])
class Tree:
    left = right = None
    def __init__(self, word): self.word = word
assert program([Tree(1), Tree(2)])[0].shape == (16,)
assert not {"torch", "tvm"} & set(sys.modules)
"""
    python(script, merging.folder)


def test_a_thread_calls_while_another_one_is_in_a_long_call() -> None:
    forever = load(FOREVER)
    forever.max_steps = 1 << 62
    program = load(COUNT)
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(program([100_000])))
    handled: list[bool] = []

    def handler(*_: Any) -> None:
        handled.append(bool(results))
        if results:
            raise InterruptedError

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    thread.start()
    try:
        with pytest.raises(InterruptedError):
            forever([1])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        thread.join()
    assert results == [[0]]


def test_rows_are_where_they_should_be(merging: LoadedProgram) -> None:
    """Tables grow while results are noted; constants stay in front of them."""
    code = function("f", 1, [["tensor", 1, 0], ["block", [2], MERGE, [1, 0]], ["block", [3], MERGE, [0, 2]],
                             ["tuple", 4, [1, 2, 3]], ["return", 4]])  # fmt: skip
    program = load(code, with_kernel=True)
    rng = np.random.default_rng(1)
    start = weights()["start"].astype(np.float64)
    for count in (1, 500, 3, 900):
        given = [rng.standard_normal(H, np.float32) for _ in range(count)]
        for own, x in zip(program(given), given, strict=True):
            first = merged(start, x.astype(np.float64))
            second = merged(x.astype(np.float64), first)
            assert (own[0] == weights()["start"]).all()
            assert error(own[1], first) < SAFE_ERROR
            assert error(own[2], second) < SAFE_ERROR


def test_references_are_given_back() -> None:
    program = load(function("f", 1, [["return", 0]]))
    rows, word = np.zeros(16, np.float32), leaf(3)
    program([[rows, word]])
    before = sys.getrefcount(rows), sys.getrefcount(word), sys.getrefcount(None)
    for _ in range(1000):
        program([[rows, word], rows, word])
        with pytest.raises(dietcode.errors.TensorError):
            program([[rows, word], {}])
    after = sys.getrefcount(rows), sys.getrefcount(word), sys.getrefcount(None)
    assert after[:2] == before[:2]
    assert abs(after[2] - before[2]) < 500


def test_numbers_two_in_a_row_are_of_their_own() -> None:
    code = [["const", 1, TWO], ["block", [2], JOIN, [0, 1]], ["block", [3], JOIN, [1, 0]],
            ["tuple", 4, [2, 3]], ["return", 4]]  # fmt: skip
    program = load(function("f", 1, code))
    found = program([0.5, 1.5])
    assert [[one.tolist() for one in own] for own in found] == [[[0.5, 2], [2, 0.5]], [[1.5, 2], [2, 1.5]]]
