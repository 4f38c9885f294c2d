"""Fibers: what runs together, and what ends an instance, a call, or neither."""

from __future__ import annotations

import contextvars
import ctypes
import gc
import sys
import threading
import weakref
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import greenlet
import pytest
import torch
from hand_machine import CELL_CALL, EMBED_CALL, SCALE_CALL, SCORE_CALL, Computed, E, begun, machine, missed

from dietcode.runtime.recorded.fibers import Scheduler, call_all, concurrent, concurrent_map
from dietcode.runtime.recorded.handles import install
from dietcode.runtime.recorder import Run, Site, current

install()
MACHINE = machine()


def _call(words: list[int]) -> Callable[..., Any]:
    site = Site(missed)
    site.add(MACHINE, array("q", words), ())
    return site.call


embed, score, scale, cell = map(_call, (EMBED_CALL, SCORE_CALL, SCALE_CALL, CELL_CALL))
SUMS = [float(row.sum()) for row in E]


def run_all(function: Callable[..., Any], instances: Any) -> tuple[list[Any], list[tuple[int, int, int]]]:
    """Results, and the runs of blocks."""
    with begun(MACHINE) as run:
        found = Scheduler(run, function, [(one,) for one in instances]).results()
        assert run.scheduler is None
        return found, run.compute.runs


def total(n: int, steps: int = 3) -> float:
    """Waits `steps` times: the sum of a row, doubled each time."""
    row, found = embed(n), 0.0
    for _ in range(steps):
        found = float(score(row))
        row = scale(row, 2)
    return found


def test_results_are_in_order_and_waits_are_together() -> None:
    found, runs = run_all(total, range(8))
    assert found == [4 * one for one in SUMS[:8]]
    assert [count for _, _, count in runs] == [
        8
    ] * 6  # embed, three scores, two scales: the third is not needed
    assert run_all(total, []) == ([], [])


def test_instances_of_different_length() -> None:
    """The short ones leave; what is left runs on together."""
    found, runs = run_all(lambda n: total(n, n), range(1, 6))
    assert found == [SUMS[n] * 2 ** (n - 1) for n in range(1, 6)]
    assert [count for block, _, count in runs if block == 2] == [5, 4, 3, 2, 1]


def test_nothing_switches_before_the_first_wait() -> None:
    seen: list[Any] = []

    def instance(n: int) -> int:
        seen.append(greenlet.getcurrent())
        embed(n)
        return n

    assert run_all(instance, range(20))[0] == list(range(20))
    assert set(seen) == {greenlet.getcurrent()}


def tree_sum(tree: Any) -> float:
    """Each node waits, its children side by side."""
    if isinstance(tree, int):
        return float(score(embed(tree)))
    left, right = concurrent([lambda: tree_sum(tree[0]), lambda: tree_sum(tree[1])])
    return float(score(scale(embed(1), left + right)))


def _right_sum(tree: Any) -> float:
    return SUMS[tree] if isinstance(tree, int) else SUMS[1] * (_right_sum(tree[0]) + _right_sum(tree[1]))


def test_children_wait_side_by_side() -> None:
    trees = [((1, 2), (3, 4)), (5, 6), 7, (((1, 2), (3, 4)), ((5, 6), (7, 8)))]
    found, runs = run_all(tree_sum, trees)
    assert found == [_right_sum(tree) for tree in trees]
    assert [count for block, _, count in runs if block == 2] == [15, 7, 3, 1]


def test_map_within_concurrent_and_children_that_wait_not() -> None:
    def instance(n: int) -> list[Any]:
        rows = concurrent_map(embed, range(n))
        assert all(not row.computed for row in rows)
        return concurrent([lambda: concurrent_map(lambda row: float(score(row)), rows), lambda: n])

    found, runs = run_all(instance, [3, 0, 5])
    assert found == [[SUMS[:3], 3], [[], 0], [SUMS[:5], 5]]
    assert [count for _, _, count in runs] == [8, 8]
    assert concurrent([lambda: 1, lambda: 2]) == concurrent_map(abs, [-1, -2]) == [1, 2]  # outside of a run


def test_children_begin_in_order_and_each_once() -> None:
    """The first waits: others begin in drivers; those who wait not are done by their caller."""
    seen: list[tuple[int, int]] = []

    def child(n: int, k: int, waits: bool) -> Any:
        seen.append((n, k))
        return total(k, 1) if waits else k

    def instance(n: int) -> Any:
        return call_all(*[(child, (n, k, k % 3 == n)) for k in range(6)])

    right = [tuple(SUMS[k] if k % 3 == n else k for k in range(6)) for n in range(4)]
    assert run_all(instance, range(4))[0] == right
    assert sorted(seen) == [(n, k) for n in range(4) for k in range(6)]
    assert [[k for one, k in seen if one == n] for n in range(4)] == [list(range(6))] * 4


def test_an_interrupt_abandons_the_calls_that_nobody_has_begun() -> None:
    seen: list[int] = []

    def child(k: int) -> float:
        seen.append(k)
        if k == 1:
            raise KeyboardInterrupt
        return total(k)

    def instance(n: int) -> float:
        try:
            return sum(concurrent_map(child, [0, 1, 2]) if n else [])
        except KeyboardInterrupt:
            return total(1)

    with pytest.raises(KeyboardInterrupt):
        run_all(instance, [1])
    assert seen == [0, 1]
    seen.clear()
    with begun(MACHINE) as run:
        assert Scheduler(run, lambda _: _caught(child), [(0,)]).results() == ["caught"]
    assert seen == [1]


def _caught(child: Callable[[int], Any]) -> str:
    """Before anybody waits, it is an exception as in eager code: who calls may catch it."""
    try:
        concurrent_map(child, [1, 2])
    except KeyboardInterrupt:
        return "caught"
    return "none"


def test_many_instances_and_children() -> None:
    found, runs = run_all(
        lambda n: sum(concurrent_map(lambda k: total((n + k) % 9, 2), range(3))), range(2000)
    )
    assert found == [sum(2 * SUMS[(n + k) % 9] for k in range(3)) for n in range(2000)]
    assert [count for _, _, count in runs if count < 1000] == []


class WrongError(Exception):
    pass


def test_an_error_is_that_of_its_instance() -> None:
    def instance(n: int) -> float:
        found = total(n % 9)
        if n % 3 == 0:
            raise WrongError(n)
        if n % 3 == 1:
            return 1 / 0
        return found + total(n % 9)

    found, _ = run_all(instance, range(30))
    kinds = [type(one) for one in found]
    assert kinds == [WrongError, ZeroDivisionError, float] * 10
    assert [one.args for one in found[::3]] == [(n,) for n in range(0, 30, 3)]
    assert found[2::3] == [8 * SUMS[n % 9] for n in range(2, 30, 3)]


def test_the_first_error_of_children_when_all_have_ended() -> None:
    ended: list[int] = []

    def child(n: int) -> None:
        for _ in range(5 - n):
            float(score(embed(n)))
        ended.append(n)
        if n:
            raise WrongError(n)

    def instance(n: int) -> str:
        try:
            concurrent_map(child, range(5))
        except WrongError as error:
            return f"{error.args} after {sorted(ended)}"
        return "none"

    assert run_all(instance, [0])[0] == ["(1,) after [0, 1, 2, 3, 4]"]


def _deeper(n: int) -> int:
    return n if n == 0 else 1 + _deeper(n - 1)


def _waits_deep(n: int) -> float:
    return total(3) if n == 0 else _waits_deep(n - 1)


def test_each_instance_has_the_whole_depth() -> None:
    """Also where one waits deep in a recursion while it begins; too deep is the error of one alone."""
    limit = sys.getrecursionlimit()
    free = limit - _depth()

    def instance(n: int) -> Any:
        return _waits_deep(free - 40) if n % 2 == 0 else _deeper(free * 2 if n == 5 else free - 40)

    found, _ = run_all(instance, range(8))
    assert isinstance(found[5], RecursionError)
    right = 4 * SUMS[3]
    assert [one for n, one in enumerate(found) if n != 5] == [
        right,
        free - 40,
        right,
        free - 40,
        right,
        right,
        free - 40,
    ]
    assert isinstance(run_all(lambda n: _waits_deep(free), [0, 1])[0][1], RecursionError)


def _depth() -> int:
    frame, found = sys._getframe(), 0
    while frame.f_back is not None:
        frame, found = frame.f_back, found + 1
    return found


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, greenlet.GreenletExit])
@pytest.mark.parametrize("at", [0, 3, 7])
def test_what_is_no_exception_ends_the_call(error: type[BaseException], at: int) -> None:
    """In the caller's greenlet and in others: all instances that have begun clean up."""
    cleaned: list[int] = []

    def instance(n: int) -> float:
        try:
            found = total(n)
            if n == at:
                raise error("stop")
            return found + total(n)
        finally:
            cleaned.append(n)

    with pytest.raises(error, match="stop"):
        run_all(instance, range(8))
    assert sorted(cleaned) == list(range(8))
    assert current() is None
    assert run_all(total, range(8))[0] == [4 * one for one in SUMS[:8]]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_error_of_a_block_ends_the_call(error: type[BaseException]) -> None:
    cleaned: list[int] = []

    def instance(n: int) -> float:
        try:
            return total(n)
        except Exception:
            return total(n)  # which raises it again
        finally:
            cleaned.append(n)

    class Failing(Computed):
        def __call__(self, *given: Any) -> None:
            if len(self.runs) == 3:
                raise error("block")
            super().__call__(*given)

    with begun(MACHINE) as run, pytest.raises(error, match="block"):
        run.compute = Failing()
        Scheduler(run, instance, [(n,) for n in range(5)]).results()
    assert sorted(cleaned) == list(range(5))


def test_generators_wait() -> None:
    def values(n: int) -> Iterator[float]:
        row = embed(n)
        for _ in range(3):
            yield float(score(row))
            row = scale(row, 2)

    def instance(n: int) -> list[float]:
        first, found = values(n), []
        for one, other in zip(first, values(n), strict=True):
            found += [one, other]
        return found

    found, runs = run_all(instance, range(4))
    assert found == [[k * SUMS[n] for k in (1, 1, 2, 2, 4, 4)] for n in range(4)]
    assert {count for block, _, count in runs if block == 2} == {4}


def test_a_call_within_a_call() -> None:
    """The inner one waits for a handle of the outer one, which is computed at once."""

    def inner(row: Any) -> float:
        return float(score(embed(2))) + float(row.sum())

    def instance(n: int) -> float:
        row = embed(n)
        float(score(row))
        other = scale(row, 2)
        found, _ = run_all(inner, [other, other])
        assert found[0] == found[1]
        return found[0] + float(score(row))

    assert run_all(instance, range(4))[0] == [SUMS[2] + 3 * SUMS[n] for n in range(4)]


def test_threads() -> None:
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        found[number] = run_all(total, [number] * 50)[0]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert found == {number: [4 * SUMS[number]] * 50 for number in range(4)}


VARIABLE: contextvars.ContextVar[int] = contextvars.ContextVar("VARIABLE")


class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


_MODES: list[Callable[[], Any]] = [
    torch.enable_grad,
    torch.inference_mode,
    lambda: torch.autocast("cpu", torch.bfloat16),
    Mode,
    torch.no_grad,
]


def _state() -> tuple[Any, ...]:
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch._C._len_torch_function_stack(),
    )


@pytest.mark.parametrize("before", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_modes_and_context_variables_are_those_of_an_instance(before: Callable[[], Any]) -> None:
    def instance(n: int) -> list[Any]:
        found: list[Any] = [_state(), VARIABLE.get()]
        with _MODES[n % 5]():
            VARIABLE.set(n)
            found.append(_state())
            float(score(embed(n % 9)))
            found.append(_state())
            float(score(embed(n % 9)))
            found += [_state(), VARIABLE.get()]
        found.append(_state())
        float(score(embed(n % 9)))
        return [*found, _state()]

    VARIABLE.set(-1)
    with before():
        base = _state()
        inside = []
        for mode in _MODES:
            with mode():
                inside.append(_state())
        found, runs = run_all(instance, range(10))
        assert _state() == base
    for n, (start, variable, *states, own, end, last) in enumerate(found):
        assert start == end == last == base and states == [inside[n % 5]] * 3
        assert own == n and (variable == -1 or n < 1)
    assert [count for block, _, count in runs if block == 2] == [10, 10, 10]


def test_nothing_is_kept_of_a_call() -> None:
    class Owner:
        pass

    def instance(owner: Any) -> float:
        concurrent_map(total, range(3))
        return total(1)

    owners = [Owner() for _ in range(5)]
    seen = [weakref.ref(one) for one in owners]
    run_all(instance, owners)
    owners.clear()
    gc.collect()
    assert [one() for one in seen] == [None] * 5


def test_a_run_without_a_scheduler_computes_at_once() -> None:
    with begun(MACHINE) as run:
        assert float(score(embed(3))) == SUMS[3] and run.num_pending == 0
    assert isinstance(run, Run)


class _Place(ctypes.Structure):
    """Of `dladdr`."""

    _fields_ = (
        *(("file", ctypes.c_char_p), ("base", ctypes.c_void_p)),
        *(("symbol", ctypes.c_char_p), ("address", ctypes.c_void_p)),
    )


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux, whose backtraces these are")
def test_a_backtrace_ends_at_the_bottom_of_a_fiber() -> None:
    """Each error of PyTorch's C++ takes one; beyond, the stack is not the fiber's, and may be anything."""
    system = ctypes.CDLL(None)

    def instance(n: int) -> str:
        total(n)
        if not n:
            return ""
        frames = (ctypes.c_void_p * 512)()
        count = system.backtrace(frames, 512)
        place = _Place()
        assert system.dladdr(ctypes.c_void_p(frames[count - 1]), ctypes.byref(place))
        return Path(place.file.decode()).name

    found, _ = run_all(instance, range(4))
    assert found == ["", *["recorder.abi3.so"] * 3]


def test_errors_of_pytorch_in_fibers() -> None:
    def instance(n: int) -> float:
        found = total(n)
        if n % 2:
            torch.stack([])
        return found

    found, _ = run_all(instance, range(8))
    assert [type(one) for one in found] == [float, RuntimeError] * 4
