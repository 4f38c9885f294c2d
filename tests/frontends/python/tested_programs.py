"""The programs of examples/programs and of tests/programs as cases of the oracle."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from oracle import Case, Made, fresh

import dietcode

TESTS = Path(__file__).parents[2]
PROGRAMS = TESTS / "programs"
EXAMPLES = TESTS.parent / "examples" / "programs"
_FACTORIES = (  # files with PROGRAMS: names, and functions that return a program, samples and perhaps others
    *("customary", "dict", "everyday", "functional", "further", "idiomatic", "ordinary", "plain"),
    *("searching", "set", "throwing", "varied"),
)
# What a file of tests has: functions with their samples and perhaps other instances.
_TABLES: dict[str, Callable[[Any], Any]] = {
    "test_exceptions": lambda m: m.CASES.values(),
    "test_function_values": lambda m: [(one, m.ITEMS[:4], m.ITEMS[::-1]) for one in m.CASES],
    "test_generators": lambda m: [
        *m.CASES.values(),
        *((one, [[1, 2], [4, 5]]) for one in (m.taken_early, m.taken_early_of_a_pair, m.taken_by_the_caller)),
        (m.in_vain, [[1, 7]], [[5], [1]]),
    ],
    "test_lowest": lambda m: [(m._trees(), m.SAMPLES)],
    "test_program_flow": lambda m: [
        *m.CASES.values(),
        (m.records, [m.Pair(1), m.Pair(None)], [m.Pair(m.Pair(3))]),
        (m.power, [3], [200, 50_000]),
        (m.failing, [0, 1], [1, 7, 101, 50, 70, 0]),
        (m.owned, [torch.ones(2)]),
        *(one[:2] for one in m.REFUSED.values() if one[0].__name__ not in _NEVER_ALIKE),
    ],
    "test_program_models": lambda m: [(m._two_sides, [(a * torch.ones(4), torch.ones(4)) for a in (1, -1)])],
    "test_program_python": lambda m: [
        *m.CASES.values(),
        (m.whole_numbers, [(4, 6), (-4, 10), (3, -1)], [(7, 0), (0, 0), (20, 19), (0, 3)]),
        (m.divisor, [(4, 6)], [(4.0, 6), (4, "6")]),
        (m.lists_that_grow, [[[1, 2], [2, 3], [0], [3]], [[]]], [[[1], [1, 0]]]),
        (m.keys_and_ranges, [[3, 1, 2, 1], [5]], [[4, 4, 0, -1, 7, 2]]),
        (m.ordered_keys, [[3, 1, 2, 1], [5]], [[4, 4, 0, -1, 4, 2]]),
        (m.by_patterns, [[], [0], [0, 3, 4], [5, 1, 5]], [[5, 9], [9], [1, 2]]),
    ],
    "test_shared_lists": lambda m: [(m.read_alone, [[1, 2], [4]], [[0]])],
    "test_texts": lambda m: [
        *((function, *instances) for function, instances in m.FORMATTED.items()),
        *((one, m.LETTERS[:8], m.LETTERS) for one in (m.letters_of, m.trimmed, m.spelled)),
        (m.written, [0.5, 1.0], m.NUMBERS),
        (m.grown, [(3, ["a", "bc"]), (0, ["d"])], [(0, ["x"]), (40, ["a", "é", ""])]),
        (m.branched, [["a", "b"]], [["é" * 300, "z" * 500, ""]]),
        (m.popped, [list(range(8))], [[5, -4, 300, 2, 1, 0]]),
        (m.taken_apart, m.TEXTS[:8], m.TEXTS),
        (m.numbers_of, m.TEXTS, m.WRITTEN),
        (m.joined, [["a", "b"]], [["a", 1]]),
        (m.as_text, [1], [[1]]),
    ],
    "test_unassigned": lambda m: m.CASES.values(),
    "test_usual_python": lambda m: [
        *m.CASES.values(),
        (m.with_ordered_dicts, [1]),
        (m.with_a_set_as_key, [1]),
    ],
}
# Their results depend on how often they were called, or on random numbers.
_NEVER_ALIKE = {"with_shared_list", "with_random", "with_random_numbers"}


def tested_cases() -> Iterator[Case]:
    """Yield a case of each program."""
    for place in (str(TESTS), str(PROGRAMS)):
        if place not in sys.path:
            sys.path.append(place)
    examples = fresh(PROGRAMS / "test_program_examples.py").EXAMPLES
    for stem, (options, how, _) in examples.items():
        yield Case(f"{stem}.example", _example(EXAMPLES / f"{stem}.py", options, how))
    for stem in _FACTORIES:
        path = PROGRAMS / f"{stem}_programs.py"
        for name in fresh(path).PROGRAMS:
            yield Case(f"{path.stem}.{name}", _from_factory(path, name))
    for stem in _TABLES:
        path = PROGRAMS / f"{stem}.py"
        for at, (function, *_) in enumerate(_rows(fresh(path), stem)):
            yield Case(f"{stem}.{function.__name__}.{at}", _from_table(path, at))


def _example(path: Path, options: dict[str, Any], how: dict[str, Any]) -> Callable[[], Made]:
    def make() -> Made:
        module = fresh(path)
        instances = module.samples(9, **how)
        return module.build(**options), instances[:6], instances[6:]

    return make


def _from_factory(path: Path, name: str) -> Callable[[], Made]:
    def make() -> Made:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            program, samples, *others = fresh(path).PROGRAMS[name]()
        return program, list(samples), list(*others)

    return make


def _from_table(path: Path, at: int) -> Callable[[], Made]:
    def make() -> Made:
        function, samples, *others = _rows(fresh(path), path.stem)[at]
        is_program = isinstance(function, dietcode.Program)
        program = function if is_program else dietcode.program(function)
        return program, list(samples), list(*others)

    return make


def _rows(module: ModuleType, stem: str) -> list[Any]:
    return list(_TABLES[stem](module))
