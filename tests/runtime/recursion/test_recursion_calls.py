"""Calls of recursions against float64: trees, DAGs, sequences, forests, and what is refused."""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hand_recursions import (
    MAX_LEVEL,
    MAX_NODES,
    NUM_IDS,
    H,
    Hand,
    bundle,
    chain,
    gated,
    own_leaves,
    random_forest,
    tree_lstm,
    words,
)
from small_libraries import SAFE_ERROR, error

import dietcode
from dietcode.errors import ShapeError, TensorError
from dietcode.runtime.loading import table_sizes
from dietcode.runtime.recursion.loaded import LoadedRecursion
from dietcode.runtime.recursion.structure import Structure

RECURSIONS = [tree_lstm, gated, own_leaves, chain, words]


def load(make: Callable[[], Hand], **options: Any) -> LoadedRecursion:
    model = dietcode.load(bundle(make), **options)
    assert isinstance(model, LoadedRecursion)
    return model


def check(model: LoadedRecursion, make: Callable[[], Hand], structure: Structure, seed: int = 0) -> None:
    hand = make()
    x = hand.draw(structure, seed)
    right = hand.expected(structure, x)
    everything, roots = model(structure, x, all_nodes=True), model(structure, x)
    if len(right) == 1:
        everything, roots = (everything,), (roots,)
    for own, of_roots, wanted in zip(everything, roots, right, strict=True):
        assert error(own, wanted) < SAFE_ERROR
        assert (of_roots == own[structure.roots]).all()


def structures(columns: int) -> list[Structure]:
    forests = [random_forest(n, seed, columns) for seed, n in enumerate([1, 2, 3, 17, 60, MAX_NODES])]
    wide = Structure(np.full((MAX_NODES, columns), -1))  # more than a level may have
    return [*forests, random_forest(50, 9, columns, shared=0.4), wide]


@pytest.mark.parametrize("make", RECURSIONS)
def test_against_float64(make: Callable[[], Hand]) -> None:
    model = load(make)
    for seed, structure in enumerate(structures(make().description["max_children"])):
        check(model, make, structure, seed)


def test_a_level_above_the_leaves_that_is_larger_than_a_range() -> None:
    pairs = Structure([[-1, -1], [-1, -1]] + [[0, 1]] * (2 * MAX_LEVEL + 3))
    model = load(tree_lstm)
    check(model, tree_lstm, pairs)
    x = tree_lstm().draw(pairs)
    of_levels = [(phase, rows) for phase, rows, _ in model.range_secs(pairs, x)]
    assert of_levels == [("leaf", 2), ("cell", MAX_LEVEL), ("cell", MAX_LEVEL), ("cell", 3)]


def test_the_large_product_leaves_out_what_nobody_reads() -> None:
    model, structure = load(own_leaves), Structure([[-1, -1], [-1, -1], [0, 1], [2, -1], [-1, -1]])
    phases = [one[:2] for one in model.range_secs(structure, own_leaves().draw(structure))]
    assert phases == [("before", 2), ("leaf", 3), ("cell", 1), ("cell", 1)]
    alone = Structure([[-1, -1]])
    assert [one[:2] for one in model.range_secs(alone, own_leaves().draw(alone))] == [("leaf", 1)]


def test_leaves_are_written_where_somebody_reads_them() -> None:
    model, draw = load(words), words().draw
    pair = [[-1, -1], [-1, -1], [0, 1]]
    for children, phases in (
        (pair, [("first", 1)]),
        ([*pair, [2, -1]], [("first", 1), ("cell", 1)]),
        ([*pair, [2, 0]], [("leaf", 2), ("first", 1), ("cell", 1)]),  # a leaf of an upper level
        ([*pair, [-1, -1]], [("leaf", 3), ("first", 1)]),  # a leaf that is a root
    ):
        structure = Structure(children)
        check(model, words, structure)
        assert [one[:2] for one in model.range_secs(structure, draw(structure))] == phases
    wide = Structure([[-1, -1], [-1, -1]] + [[0, 1]] * (MAX_LEVEL + 3))
    check(model, words, wide)
    ranges = [one[:2] for one in model.range_secs(wide, draw(wide))]
    assert ranges == [("first", MAX_LEVEL), ("first", 3)]
    for wrong in (-1, NUM_IDS):
        with pytest.raises(ShapeError, match=f"x: {wrong}; allowed: 0…{NUM_IDS - 1}"):
            model(Structure(pair), np.array([0, wrong, 0], np.int32))
    model(Structure(pair), np.array([0, 0, -7], np.int32))  # no kernel reads that of an inner node


def test_a_tables_size_is_no_part_of_a_shape() -> None:
    """Or else each structure's levels would be timed anew."""
    found = {}
    for manifest in bundle(tree_lstm).glob("libraries/*/manifest.json"):
        content = json.loads(manifest.read_text())
        bits, names = table_sizes(content), content["variable_order"]
        found[content["name"]] = {name for bit, name in enumerate(names) if bits >> bit & 1}
    assert found == {"cell": {"A", "T"}, "leaf": {"A"}}


def test_fewer_children_than_a_cell_takes() -> None:
    check(load(tree_lstm), tree_lstm, Structure([[-1], [0], [1]]))
    check(load(tree_lstm), tree_lstm, Structure(np.empty((3, 0), np.int32)))


def test_nothing_and_one_root_asked_for_twice() -> None:
    model = load(gated)
    assert model(Structure(np.empty((0, 2), np.int32)), np.empty((0, H), np.float32)).shape == (0, H)
    twice = Structure([[-1, -1], [0, -1]], roots=[1, 0, 1])
    x = gated().draw(twice)
    assert (model(twice, x) == model(twice, x, all_nodes=True)[[1, 0, 1]]).all()


def test_results_are_the_callers_own() -> None:
    model, structure = load(tree_lstm), random_forest(40, 1)
    x = tree_lstm().draw(structure)
    first = model(structure, x)
    kept = [one.copy() for one in first]
    model(structure, -x)
    assert all((one == other).all() for one, other in zip(first, kept, strict=True))


def test_torch_in_and_out() -> None:
    torch = pytest.importorskip("torch")
    for make in (tree_lstm, chain):
        model, structure = load(make), random_forest(30, 2, make().description["max_children"])
        x = make().draw(structure)
        given = torch.from_numpy(x.astype(np.int64) if make is chain else x)  # as PyTorch has ids
        outs, rights = model(structure, given), model(structure, x)
        if make is chain:
            outs, rights = (outs,), (rights,)
        for out, right in zip(outs, rights, strict=True):
            assert isinstance(out, torch.Tensor) and (out.numpy() == right).all()


def test_threads_at_once_and_pickles() -> None:
    model = pickle.loads(pickle.dumps(load(tree_lstm, num_threads=1)))
    given = [random_forest(20 + 10 * number, number) for number in range(12)]
    inputs = [tree_lstm().draw(one, number) for number, one in enumerate(given)]
    alone = [model(*pair) for pair in zip(given, inputs, strict=True)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            for found, right in zip(pool.map(model, given, inputs), alone, strict=True):
                assert all((one == other).all() for one, other in zip(found, right, strict=True))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_calls_it() -> None:
    model, structure = load(gated), random_forest(30, 3)
    x = gated().draw(structure)
    right = model(structure, x)
    child = os.fork()
    if not child:
        os._exit(0 if (model(structure, x) == right).all() else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_signal_ends_a_long_call() -> None:
    """The handler's exception comes out of a call that would take many times as long."""

    class OverError(Exception): ...

    def stop(*_: Any) -> None:
        raise OverError

    model = load(chain)
    structure = Structure(np.arange(-1, MAX_NODES - 1).reshape(-1, 1))
    x = chain().draw(structure)
    right = model(structure, x)
    program, workplace = model._programs[0], model._free[0]
    ranges = np.tile(structure.ranges(False, False, MAX_LEVEL), (20_000, 1))
    given = {"order": structure.order, "ids": x, "child0": structure.child_places(1)}
    addresses = {name: one.__array_interface__["data"][0] for name, one in given.items()}
    memory = workplace.addresses(program, (MAX_NODES, 1, 1), False, addresses)
    before = signal.signal(signal.SIGUSR1, stop)
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1))
    begin = time.perf_counter()
    try:
        timer.start()
        with pytest.raises(OverError):
            program.run(memory, ranges, MAX_NODES)
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
    assert time.perf_counter() - begin < 5
    assert (model(structure, x) == right).all(), "the next call is as before"


LONG = Structure(np.full((MAX_NODES + 1, 2), -1))


@pytest.mark.parametrize(
    ("given", "kind", "problem"),
    [
        ((), TensorError, "structure: list; allowed: a dietcode.Structure, as of its children's numbers"),
        ((LONG, None), ShapeError, f"structure: {MAX_NODES + 1} nodes; allowed: up to {MAX_NODES}"),
        (
            (Structure([[-1, -1, -1]]), None),
            ShapeError,
            "structure: 3 children; allowed: up to 2 a node",
        ),
        ((Structure([[-1]]), None), TensorError, "x: missing; allowed: float32[16] for each node"),
        ((Structure([[-1]]), np.zeros((1, 16))), TensorError, "x: dtype float64; allowed: float32"),
        (
            (Structure([[-1]]), np.zeros((2, 16), np.float32)),
            ShapeError,
            "x: shape [2, 16]; allowed: [1, 16], a row for each node",
        ),
    ],
)
def test_what_is_refused(given: tuple[Any, ...], kind: type[Exception], problem: str) -> None:
    with pytest.raises(kind, match=f"^{re.escape(problem)}$"):
        load(tree_lstm)(*(given or ([], None)))


@pytest.mark.parametrize("wrong", [-1, NUM_IDS])
def test_ids_of_no_row(wrong: int) -> None:
    allowed = rf"^x: {wrong}; allowed: 0…{NUM_IDS - 1}, a row of the table that is read$"
    with pytest.raises(ShapeError, match=allowed):
        load(chain)(Structure([[-1], [0]]), np.array([0, wrong], np.int32))


def test_its_line() -> None:
    assert repr(load(tree_lstm)) == (
        "<dietcode.LoadedRecursion lstm(x: float32[16] a node, up to 2 children) "
        "-> float32[16], float32[16]; up to 200 nodes>"
    )
    assert load(tree_lstm).report == {"parts": []}
