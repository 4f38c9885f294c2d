"""The recorder in C: what matches, what runs together, what is kept, and what is refused."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from array import array
from typing import Any

import numpy as np
import pytest
import torch
from hand_machine import (
    A_ROW,
    ANY,
    ARGUMENT,
    CELL,
    CELL_CALL,
    EMBED,
    EMBED_CALL,
    EQUAL,
    FLOAT,
    INT,
    LATE,
    LATE_CALL,
    LIST,
    MADE,
    MAX_BATCH,
    NUM_IDS,
    NUMBER,
    RECORD,
    ROOT,
    ROW,
    SCALAR,
    SCALE,
    SCALE_CALL,
    SCORE,
    SCORE_CALL,
    SLICE,
    TENSOR,
    TUPLE,
    WIDTH,
    Computed,
    E,
    Pair,
    begun,
    machine,
    row_of,
    site,
)

from dietcode.runtime.recorder import LimitError, Machine, Run, Site, current, value

X = torch.tensor([1.0, 2.0, 3.0, 4.0])
_VALUE = [1, *A_ROW, 0, ARGUMENT, 0]


class Words:
    """Sites of the blocks of one machine."""

    def __init__(self) -> None:
        self.machine = machine()
        calls = EMBED_CALL, CELL_CALL, SCORE_CALL, SCALE_CALL, LATE_CALL
        self.sites = [site(self.machine, words) for words in calls]
        self.embed, self.cell, self.score, self.scale, self.late = (one.call for one in self.sites)


@pytest.fixture(scope="module")
def words() -> Words:
    return Words()


def tree_lstm(words: Words, tree: Any) -> tuple[Any, Any]:
    if isinstance(tree, int):
        return words.embed(tree), words.embed((tree + 1) % NUM_IDS)
    return words.cell(tree_lstm(words, tree[0]), tree_lstm(words, tree[1]))


def right_lstm(tree: Any) -> tuple[Any, Any]:
    if isinstance(tree, int):
        return E[tree], E[(tree + 1) % NUM_IDS]
    (a, b), (c, d) = right_lstm(tree[0]), right_lstm(tree[1])
    return a + 2 * c, b - d


def test_blocks_run_by_depth_and_have_the_right_values(words: Words) -> None:
    trees = [((0, 1), (2, (3, 4))), (5, 6), 7]
    observed: list[Any] = []
    with begun(words.machine) as run:
        run.observe = observed.extend
        made = [tree_lstm(words, tree) for tree in trees]
        assert run.num_pending == 21 and not made[0][0].computed
        run.flush()
        assert run.num_pending == 0 and made[0][0].computed
        assert run.compute.runs == [(EMBED, 1, 16), (CELL, 2, 3), (CELL, 3, 1), (CELL, 4, 1)]
        for tree, pair in zip(trees, made, strict=True):
            for handle, right in zip(pair, right_lstm(tree), strict=True):
                np.testing.assert_array_equal(row_of(handle), right)
        assert [one[0] for one in observed].count(CELL) == 5 and len(observed) == 21
        makers = {
            first + k: block for block, _, _, first in observed for k in range(2 if block == CELL else 1)
        }
        assert [makers[number] for number in observed[-1][2] if number in makers] == []  # ids are given
        assert makers[made[0][1].number] == CELL and {len(one[2]) for one in observed} == {1, 4}


def test_phases_run_one_after_the_other_and_large_batches_in_parts(words: Words) -> None:
    with begun(words.machine) as run:
        late = [words.late(words.embed(n % NUM_IDS)) for n in range(MAX_BATCH + 3)]
        deep = words.embed(3)
        for _ in range(3):
            deep = words.scale(deep, 2)
        late.append(words.late(deep))
        run.flush()
        phase = 1 << 24
        first, rest = (EMBED, 1, MAX_BATCH), (EMBED, 1, 4)
        scales = [(SCALE, depth, 1) for depth in (2, 3, 4)]
        late_runs = [(LATE, phase + 1, MAX_BATCH), (LATE, phase + 1, 4)]
        assert run.compute.runs == [first, rest, *scales, *late_runs]
        np.testing.assert_array_equal(row_of(late[-1]), E[3] * 8 + 1)
        np.testing.assert_array_equal(row_of(late[MAX_BATCH + 1]), E[(MAX_BATCH + 1) % NUM_IDS] + 1)


def test_several_notes_of_a_variant(words: Words) -> None:
    """Results are operands of later notes, and come back as a list with an object and an argument."""
    notes = [3, EMBED, 1, 0, CELL, 4, 1, -1, 1, -1, SCORE, 1, -3]
    result = [LIST, 4, 1, 3, 0, 0, 0, ARGUMENT, 1, RECORD, 1, 2, 1, 1, 0, 1, 2, 0]
    called = site(words.machine, [2, INT, NUMBER, 5, *A_ROW, *notes, *result], objects=("text", Pair)).call
    with begun(words.machine) as run:
        score, text, same, pair = called(4, X)
        assert text == "text" and same is X and type(pair) is Pair
        run.flush()
        h, c = X.numpy() + 2 * X.numpy(), E[4] - E[4]
        np.testing.assert_array_equal(row_of(pair.h), h)
        np.testing.assert_array_equal(row_of(pair.c), c)
        assert value(score) == c.sum()
        assert run.compute.runs == [(EMBED, 1, 1), (CELL, 2, 1), (SCORE, 3, 1)]
        assert called(5, X) == ("missed", (5, X))


def test_a_result_that_is_returned_twice_is_one_handle(words: Words) -> None:
    twice = site(words.machine, [1, *A_ROW, 1, SCORE, 1, 0, TUPLE, 2, 1, 0, 0, 1, 0, 0]).call
    with begun(words.machine):
        first, second = twice(X)
        assert first is second


def test_tensors_are_copied_when_they_are_given(words: Words) -> None:
    x = X.clone()
    with begun(words.machine) as run:
        before = words.score(x)
        x += 10
        after = words.score(x)
        x.zero_()
        run.flush()
        assert (value(before), value(after)) == (10.0, 50.0)


def test_a_handle_with_a_tensor_is_that_tensor(words: Words) -> None:
    with begun(words.machine) as run:
        handle = words.embed(2)
        run.flush()
        handle.tensor = torch.from_numpy(row_of(handle))
        first = words.score(handle)
        handle.tensor += 1
        second = words.score(handle)
        run.flush()
        assert value(second) - value(first) == WIDTH and value(first) == E[2].sum()
        first.tensor = torch.tensor(5.0)
        assert value(first) == 5.0 and first.computed


_PARAMETER = torch.nn.Parameter(X.clone())
_NEEDS_GRADIENT = X.clone().requires_grad_()


@pytest.mark.parametrize(
    ("words_of_one", "objects", "matches", "misses"),
    [
        ([ROOT, 0], (_PARAMETER,), [_PARAMETER], [X, None, 0]),
        ([EQUAL, 0], (3,), [3], [True, 3.0, 4, "3", None]),
        ([EQUAL, 0], (True,), [True], [1, False, 1.0]),
        ([EQUAL, 0], (0.0,), [0.0], [-0.0, 0, False]),
        ([EQUAL, 0], (float("nan"),), [float("nan")], [1.0]),
        ([EQUAL, 0], ("ab",), ["".join(("a", "b"))], [b"ab", "ba"]),
        (
            A_ROW,
            (),
            [X, _PARAMETER, _NEEDS_GRADIENT, torch.arange(8.0)[4:]],
            [X[:3], X[None], X.double(), X.int(), torch.arange(8.0)[::2], X.numpy(), [1.0] * 4, 1.0, None],
        ),
        ([INT, NUMBER, 5], (), [0, 4, torch.tensor(3)], [-1, 5, True, 2.0, torch.tensor(5), X, 2**70]),
        ([INT, NUMBER, -1], (), [-(2**31), 2**31 - 1], [2**31, -(2**31) - 1, torch.tensor(2**31), "1"]),
        ([FLOAT, SCALAR], (), [1.5, 2, float("inf")], [True, "1", X, 10**400, np.float64(1)]),
        ([TUPLE, 2, ANY, EQUAL, 0], (1,), [(None, 1)], [(1,), (None, 2), [None, 1], (0, 1, 1), Pair(0, 1)]),
        ([LIST, 1, *A_ROW], (), [[X]], [(X,), [], [X, X], [1]]),
        ([RECORD, 0, 2, ANY, ANY], (Pair,), [Pair(1, 2)], [(1, 2), None]),
        ([MADE, ROW, 1, 1, WIDTH], (), [X > 2], [X, X.long(), (X > 2)[:3]]),
        ([MADE, ROW, 2, 1, WIDTH], (), [X.long()], [X, X.int(), X.long() << 24]),
        ([MADE, ROW, 3, 1, WIDTH], (), [X.int()], [X, X.long(), X.int() << 24]),
        (
            [SLICE, EQUAL, 0, INT, NUMBER, -1, ROOT, 1],
            (1, None),
            [slice(1, 7), slice(1, -3, None)],
            [slice(0, 7), slice(1, None), slice(1, 7, 1), (1, 7, None), slice(1, True)],
        ),
    ],
)
def test_what_matches(
    words: Words, words_of_one: list[int], objects: tuple[Any, ...], matches: list[Any], misses: list[Any]
) -> None:
    own = (*objects, "matched")
    called = site(words.machine, [1, *words_of_one, 0, 0, len(objects)], objects=own).call
    with begun(words.machine):
        found = [called(one) for one in [*matches, *misses]]
    assert found == ["matched"] * len(matches) + [("missed", (one,)) for one in misses]


@pytest.mark.parametrize(
    ("dtype", "given"),
    [(1, X > 2), (2, torch.tensor([-(2**24), 0, 7, 2**24 - 2])), (3, torch.tensor([1, -2, 3, 4]).int())],
)
def test_other_dtypes_lie_as_floats(words: Words, dtype: int, given: torch.Tensor) -> None:
    called = site(words.machine, [1, MADE, ROW, dtype, 1, WIDTH, 1, LATE, 1, 0, 1, 0, dtype]).call
    with begun(words.machine) as run:
        handle = called(given)
        run.flush()
        np.testing.assert_array_equal(row_of(handle), given.numpy().astype(np.float32) + 1)
        assert handle.dtype_code == dtype
        again = called(handle)
        run.flush()
        np.testing.assert_array_equal(row_of(again), given.numpy().astype(np.float32) + 2)
        assert words.late(handle)[0] == "missed"  # it is no float32


@pytest.mark.parametrize(("dtype", "right"), [(0, 10.0), (1, True), (2, 10), (3, 10)])
def test_values(words: Words, dtype: int, right: Any) -> None:
    score = site(words.machine, [1, *A_ROW, 1, SCORE, 1, 0, 1, 0, dtype]).call
    with begun(words.machine) as run:
        handle = score(X)
        with pytest.raises(RuntimeError, match="not computed"):
            value(handle)
        run.flush()
        assert value(handle) == right and type(value(handle)) is type(right)
        row = words.embed(1)
        run.flush()
        with pytest.raises(ValueError, match="one element"):
            value(row)


def test_variants_of_other_machines_and_the_order_of_variants(words: Words) -> None:
    other = Words()
    called = site(words.machine, [1, EQUAL, 0, 0, 0, 0], [1, EQUAL, 1, 0, 0, 1], objects=(1, 2))
    called.add(other.machine, array("q", [1, EQUAL, 0, 0, 0, 1]), (1, "other"))
    assert called.call(1) == ("missed", (1,))  # no run
    with begun(words.machine) as run:
        assert [called.call(n) for n in (1, 2, 2, 1, 1, 2)] == [1, 2, 2, 1, 1, 2]
        with begun(other.machine) as inner:
            assert called.call(1) == "other" and current() is inner
        assert called.call(1) == 1 and current() is run
        called.clear()
        assert called.call(1) == ("missed", (1,))
    assert current() is None


def test_a_handle_of_another_run_does_not_match(words: Words) -> None:
    with begun(words.machine) as outer:
        handle = words.embed(1)
        with begun(words.machine):
            assert words.score(handle)[0] == "missed"
        assert outer.num_pending == 1
    with pytest.raises(RuntimeError, match="is over"):
        _ = handle.computed
    assert handle.run is None


@pytest.mark.parametrize(
    ("wrong", "objects", "what"),
    [
        ([], (), "arguments"),
        ([1], (), "a kind"),
        ([1, ARGUMENT, 0, 0, 0, 0], (), "a kind"),
        ([1, ROOT, 1, 0, 0, 0], (1,), "an object"),
        ([1, EQUAL, 0, 0, 0, 0], (None,), "compared"),
        ([1, TENSOR, 3, 1, WIDTH, 0, 0, 0], (1,), "a type"),
        ([1, TENSOR, ROW, 1, WIDTH + 1, 0, 0, 0], (1,), "another type"),
        ([1, TENSOR, NUMBER, 0, 0, 0, 0], (1,), "another type"),
        ([1, INT, SCALAR, -1, 0, 0, 0], (1,), "another type"),
        ([1, FLOAT, ROW, 0, 0, 0], (1,), "another type"),
        ([1, MADE, ROW, 0, 1, WIDTH, 0, 0, 0], (1,), "a dtype"),
        ([1, RECORD, 0, 0, 0, 0, 0], (int,), "class"),
        ([1, RECORD, 0, 0, 0, 0, 0], (tuple,), "class"),
        ([1, *[TUPLE, 1] * 16, ANY, 0, 0, 0], (1,), "size"),
        ([1, *A_ROW, 1, 5, 1, 0, 0, 0], (1,), "a block"),
        ([1, *A_ROW, 1, SCORE, 2, 0, 0, 0, 0], (1,), "operands"),
        ([1, *A_ROW, 1, SCORE, 1, 1, 0, 0], (1,), "an operand"),
        ([1, *A_ROW, 1, SCORE, 1, -1, 0, 0], (1,), "an operand"),
        ([1, *A_ROW, 1, EMBED, 1, 0, 0, 0], (1,), "another type"),
        ([1, *A_ROW, 2, SCORE, 1, 0, SCORE, 1, -1, 0, 0], (1,), "another type"),
        ([65, *A_ROW * 65, 0, 0, 0], (1,), "number of values"),
        ([1, *A_ROW, 1, SCORE, 1, 0, 1, 1, 0], (), "a result"),
        ([1, *A_ROW, 1, SCORE, 1, 0, 1, 0, 4], (), "a dtype"),
        ([1, *A_ROW, 0, ARGUMENT, 1], (), "a value"),
        ([1, *A_ROW, 0, 2, 0], (), "a kind"),
        ([0, 0, *[LIST, 1] * 16, 0, 0], (1,), "size"),
        ([0, 257], (1,), "notes"),
        ([0, 0, 0, 0, 0], (1,), "behind"),
    ],
)
def test_wrong_variants_are_refused(
    words: Words, wrong: list[int], objects: tuple[Any, ...], what: str
) -> None:
    called = Site(lambda *given: "missed")
    with pytest.raises(ValueError, match=what):
        called.add(words.machine, array("q", wrong), objects)
    with begun(words.machine):
        assert called.call() == "missed"


def test_ids_are_those_of_the_block_too(words: Words) -> None:
    with begun(words.machine):
        assert words.embed(NUM_IDS)[0] == "missed" and words.embed(-1)[0] == "missed"
        assert words.embed(NUM_IDS - 1).number == 0 + 1


@pytest.mark.parametrize("name", ["compute", "observe"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_error_ends_the_run(words: Words, name: str, error: type[BaseException]) -> None:
    def fails(*given: Any) -> None:
        raise error("here")

    with begun(words.machine) as run:
        handle = words.embed(1)
        setattr(run, name, fails)
        with pytest.raises(error, match="here"):
            run.flush()
        assert type(run.failure) is error
        run.compute, run.observe = Computed(), None
        for again in (run.flush, lambda: words.embed(2), lambda: handle.row_address, lambda: value(handle)):
            with pytest.raises(error, match="here"):
                again()
    run.begin()
    handle = words.score(X)
    run.flush()
    assert run.failure is None and value(handle) == 10.0
    run.end()


def test_a_run_within_itself(words: Words) -> None:
    """What a block's computation calls is no part of the run that computes."""
    found: list[Any] = []

    def compute(*given: Any) -> None:
        found.append(words.embed(1)[0])
        for ask in (run.flush, run.begin, run.end, lambda: handle.row_address):
            with pytest.raises(RuntimeError):
                ask()
        Computed()(*given)

    with begun(words.machine) as run:
        run.compute = compute
        handle = words.score(X)
        run.flush()
        assert value(handle) == 10.0 and found == ["missed"]


def test_rows_are_gathered(words: Words) -> None:
    with begun(words.machine) as run:
        rows, other = [words.embed(n) for n in (3, 1, 3)], words.score(X)
        found = np.zeros((3, WIDTH), np.float32)
        with pytest.raises(RuntimeError, match="not computed"):
            run.gather(rows, found.ctypes.data)
        run.flush()
        run.gather(rows, found.ctypes.data)
        np.testing.assert_array_equal(found, E[[3, 1, 3]])
        rows[1].tensor = torch.zeros(WIDTH)
        with pytest.raises(RuntimeError, match="is a tensor"):
            run.gather(rows, found.ctypes.data)
        for wrong in ([rows[0], other], [rows[0], None], [X]):
            with pytest.raises(ValueError, match="one type"):
                run.gather(wrong, found.ctypes.data)


def test_limits() -> None:
    words = Words()
    words.machine = machine(max_rows=50)
    words.sites[0].add(words.machine, array("q", EMBED_CALL), ())
    with begun(words.machine) as run:
        with pytest.raises(LimitError) as caught:
            for _ in range(51):
                words.embed(1)
        assert caught.value.args == ("rows", NUMBER) and run.failure is caught.value
    with begun(words.machine, max_bytes=3000) as run:
        with pytest.raises(LimitError) as caught:
            for _ in range(50):
                words.embed(1)
        assert caught.value.args == ("bytes", 3000)


def test_rows_that_nobody_has_are_given_up() -> None:
    """Steps of a long chain fit in tables that have room for few of them; those that are kept stay right."""
    made = machine(max_rows=100)
    embed, scale = site(made, EMBED_CALL).call, site(made, SCALE_CALL).call
    with begun(made) as run:
        first = row = embed(1)
        tensor = embed(5)
        run.flush()
        tensor.tensor = torch.from_numpy(row_of(tensor))
        kept = []
        for step in range(2000):
            row = scale(row, 1.0 if step % 7 else -1.0)
            run.flush()
            if step % 100 == 0:
                kept.append((row, row_of(row)))
        np.testing.assert_array_equal(row_of(first), E[1])
        assert all((row_of(handle) == right).all() for handle, right in kept) and len(kept) == 20
        assert sum(one is tensor for one in run.live()) == 1 and len(run.live()) == 23


def test_nothing_is_kept(words: Words) -> None:
    nothing = object()
    called = site(words.machine, [3, *PAIRS, ANY, 1, CELL, 4, 0, 1, 2, 3, RECORD, 0, 2, ARGUMENT, 0, 1, 0, 0],
                  objects=(Pair,))  # fmt: skip
    x, number, misses = X.clone(), 10**6, (X, X)
    watched = [x, number, misses, nothing, words.machine, called, Pair, type(words.embed(1))]

    def use() -> None:
        run = Run(words.machine, 1 << 30)
        run.compute = Computed()
        for _ in range(3):
            run.begin()
            pair = called.call((x, x), (x, x), nothing)
            called.call((x, pair.c), (x, misses), nothing)
            words.embed(number)
            run.flush()
            run.live()
            pair.c.tensor = x
            run.end()
        site(words.machine, CELL_CALL).clear()

    with begun(words.machine):
        watched.append(words.embed(1))
        use()
    gc.collect()
    before = [sys.getrefcount(one) for one in watched]
    for _ in range(200):
        use()
    gc.collect()
    after = [sys.getrefcount(one) for one in watched]
    assert max(abs(a - b) for a, b in zip(after, before, strict=True)) < 5, (before, after)


PAIRS = [TUPLE, 2, *A_ROW, *A_ROW, TUPLE, 2, *A_ROW, *A_ROW]


def test_circles_are_let_go_of(words: Words) -> None:
    class Owner:
        def miss(self, *given: Any) -> None: ...

    owner = Owner()
    owner.site, owner.run = Site(owner.miss), Run(words.machine, 1 << 20)  # type: ignore[attr-defined]
    owner.run.compute = owner.miss  # type: ignore[attr-defined]
    owner.site.add(words.machine, array("q", [0, 0, 0, 0]), (owner,))  # type: ignore[attr-defined]
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None


def test_handles_outlive_and_are_known_weakly(words: Words) -> None:
    with begun(words.machine) as run:
        handle = words.embed(1)
        seen = weakref.ref(handle)
        assert [id(one) for one in run.live()] == [id(handle)] and seen() is handle
        del handle
        assert seen() is None and run.live() == []


def test_each_thread_has_its_run(words: Words) -> None:
    found: list[Any] = []
    errors: list[Exception] = []

    def work(number: int) -> None:
        try:
            with begun(words.machine) as run:
                rows = [words.scale(words.embed(number), step) for step in range(300)]
                run.flush()
                found.append(all((row_of(row) == E[number] * step).all() for step, row in enumerate(rows)))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not errors and found == [True] * 4


def test_machines_and_runs_are_checked(words: Words) -> None:
    with pytest.raises(ValueError, match="description of a program"):
        Machine(array("q", [0]), array("q", [0]), ())
    with pytest.raises(ValueError, match="description of a machine"):
        Machine(array("q", [0]), array("q", [0, 0, 0, 0]), ())
    with pytest.raises(TypeError, match="array"):
        Machine(array("d", [0]), array("q", [0]), ())
    run = Run(words.machine, 1 << 20)
    with pytest.raises(RuntimeError, match="cannot end"):
        run.end()
    with pytest.raises(TypeError, match="function"):
        run.compute = 3
    with pytest.raises(TypeError):
        type(words.embed)()


def test_runs_are_traced(words: Words) -> None:
    run = Run(words.machine, 1 << 20)
    run.is_traced, run.compute = True, Computed()
    run.begin()
    for _ in range(3):
        words.score(X)
    run.flush()
    assert [one[:3] for one in run.traced] == [(1, SCORE, 3)] and run.traced[0][3] > 0
    run.end()
