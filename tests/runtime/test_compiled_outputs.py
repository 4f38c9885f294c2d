"""Several outputs, and outputs that are written to tables, on the short way of a call in C."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from both_ways import load_both, outcome, short
from needs import of_extra
from small_libraries import block_data, built_of

import dietcode
from dietcode.runtime.compile_launcher import python_headers

pytestmark = pytest.mark.skipif(
    python_headers() is None,
    reason="this machine's Python has no headers: calls stay in Python",
)
# A residual, a norm of it and its mean: outputs of two ranks, X [M, 40].
SEVERAL = json.dumps(
    block_data(
        "several",
        {
            "S": {"add": ["X", "R"]},
            "Y": {"rmsnorm": ["S", "gamma"], "axis": "n"},
            "m": {"mean": "S", "axis": "n"},
        },
        ["Y", "m", "S"],
        tensors={
            "X": {"dims": "mn", "dtype": "float32"},
            "R": {"dims": "mn", "dtype": "float32"},
            "gamma": {"dims": "n", "dtype": "float32"},
        },
    )
)
SHAPES = ((4, 40), (4,), (4, 40))
# New states of some rows of a table, which are gathered from it and written to it, and their mean.
STATES = json.dumps(
    block_data(
        "states",
        {
            "old": {"gather": ["H", "at"]},
            "h": {"add": ["old", "X"]},
            "m": {"mean": "h", "axis": "n"},
        },
        ["m", {"h": {"into": "H", "at": "to"}}],
        tensors={
            "H": {"dims": "tn", "dtype": "float32"},
            "at": {"dims": "m", "dtype": "int32"},
            "to": {"dims": "m", "dtype": "int32"},
            "X": {"dims": "mn", "dtype": "float32"},
        },
        dims={"m": "M", "n": 40, "t": 9},
    )
)


def several(kind: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    shapes = {"X": (4, 40), "R": (4, 40), "gamma": (40,)}
    return {name: kind(rng.standard_normal(shape, dtype=np.float32)) for name, shape in shapes.items()}


def from_numpy(array: Any) -> Any:
    return pytest.importorskip("torch", reason=of_extra("bench")).from_numpy(array)


@pytest.mark.parametrize("kind", [np.asarray, from_numpy], ids=["numpy", "torch"])
def test_several_outputs_go_the_short_way(kind: Any) -> None:
    library = dietcode.load(built_of(SEVERAL))
    named = several(kind)
    assert short(library, **named) is NotImplemented, "a shape that nobody has looked at"
    first = library.call_checked(None, named)
    f, out = library.bind(gamma=named["gamma"]), tuple(value * 0 for value in first)
    free = named["X"], named["R"]
    for given_out in (None, out, list(out)):
        for result in (
            short(library, **named, out=given_out),
            short(f, *free, out=given_out),
            library.lean(list(named.values()), (), given_out),
        ):
            assert type(result) is tuple and len(result) == 3
            for one, right, place in zip(result, first, out, strict=True):
                assert type(one) is type(first[0]) and bool((one == right).all())
                assert given_out is None or one is place
        for place in out:
            place[...] = 0
    assert short(library, **named, out=out) is out
    assert short(f, *free, free[0]) is NotImplemented


def test_any_outputs_give_what_they_give_in_python() -> None:
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    both = load_both(built_of(SEVERAL))
    free = {k: several(kind) for k, kind in (("numpy", np.asarray), ("torch", torch.from_numpy))}
    bound = [library.bind() for library in both]
    for f, k in ((f, k) for f in bound for k in free):
        f(*free[k].values())

    class Named(tuple[Any, ...]):
        pass

    def new(kind: Any) -> list[Any]:
        return [kind(np.empty(shape, np.float32)) for shape in SHAPES]

    def cases(tensors: dict[str, Any], kind: Any) -> dict[str, Any]:
        y, m, s = new(kind)
        return {
            "right": (y, m, s),
            "a list": [y, m, s],
            "a subclass": Named((y, m, s)),
            "one": y,
            "two": (y, m),
            "four": (y, m, s, y),
            "none of them": (),
            "one that is none": (y, None, s),
            "the same twice": (y, m, y),
            "an input": (y, m, tensors["X"]),
            "a part of another": (y, y[1, :4], s),
            "another order": (m, y, s),
            "another shape": (y, kind(np.empty(5, np.float32)), s),
            "another dtype": (y, kind(np.empty(4)), s),
            "not compact": (y, kind(np.empty(8, np.float32))[::2], s),
            "both kinds": (y, torch.empty(4) if kind is np.asarray else np.empty(4, np.float32), s),
            "the other kind": tuple(new(torch.from_numpy if kind is np.asarray else np.asarray)),
            "with gradient": (y, torch.empty(4, requires_grad=True), s),
        }

    for kind in (np.asarray, torch.from_numpy):
        results = []
        for library, f in zip(both, bound, strict=True):
            tensors = several(kind)
            found = {}
            for name, out in cases(tensors, kind).items():
                found[name] = outcome(lambda f=f, out=out, t=tensors: f(*t.values(), out=out))
                named = outcome(lambda f=library, out=out, t=tensors: f(**t, out=out))
                assert named == found[name], name
            results.append(found)
        assert results[0] == results[1]
        right = {name for name, what in results[0].items() if what[0] is tuple}
        assert right == {"right", "a list", "a subclass", "both kinds", "the other kind"}


def states(kind: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    h, x = (rng.standard_normal(shape, dtype=np.float32) for shape in ((9, 40), (3, 40)))
    positions = ([0, 1, 1], [5, -3, 8])  # the second one is nowhere
    at, to = (np.array(places, np.int32) for places in positions)
    return {name: kind(value) for name, value in (("H", h), ("at", at), ("to", to), ("X", x))}


@pytest.mark.parametrize("kind", [np.asarray, from_numpy], ids=["numpy", "torch"])
def test_an_output_into_a_table_goes_the_short_way(kind: Any) -> None:
    library = dietcode.load(built_of(STATES))
    named = states(kind)
    start, x = np.asarray(named["H"]).copy(), np.asarray(named["X"])
    right = start.copy()
    right[5], right[8] = start[0] + x[0], start[1] + x[2]
    library.call_checked(None, named)
    f, table = library.bind(), named["H"]
    own = kind(np.empty(3, np.float32))
    calls = [
        lambda: library(**named),
        lambda: library.call_checked((own, table), named),
        lambda: short(library, **named),
        lambda: short(library, **named, out=(own, table)),
        lambda: short(library, **named, out=[own, table]),
        lambda: short(f, *named.values()),
        lambda: library.lean(list(named.values()), (), None),
        lambda: library.lean(list(named.values()), (), (own, table)),
    ]
    for call in calls:
        table[...] = kind(start)
        result = call()
        assert type(result) is tuple and result[1] is table and type(result[0]) is type(table)
        assert np.array_equal(table, right)
        mean = [right[5].mean(), (start[1] + x[1]).mean(), right[8].mean()]
        assert np.allclose(result[0], mean, atol=1e-6)


def test_tables_that_are_not_written_are_refused_as_in_python() -> None:
    torch = pytest.importorskip("torch", reason=of_extra("bench"))
    both = load_both(built_of(STATES))

    def of_kind(kind: Any) -> list[Any]:
        found: list[Any] = []
        for library in both:
            f = library.bind()
            f(*states(kind).values())
            found.append([])
            for name in ("right", "read-only", "other", "none", "over X", "gradient", "own over H"):
                t = states(kind)
                own, out = kind(np.empty(3, np.float32)), None
                if name == "read-only":
                    t["H"] = np.broadcast_to(np.float32(0), (9, 40)).copy()
                    t["H"].flags.writeable = False
                elif name == "other":
                    out = (own, kind(np.empty((9, 40), np.float32)))
                elif name == "none":
                    out = (own, None)
                elif name == "over X":
                    t["X"] = t["H"][4:7]
                elif name == "gradient":
                    t["H"] = torch.empty(9, 40, requires_grad=True)
                elif name == "own over H":
                    out = (t["H"][2, :3], t["H"])
                found[-1].append((name, outcome(lambda f=f, t=t, out=out: f(*t.values(), out=out))))
        return found

    for kind in (np.asarray, torch.from_numpy):
        in_c, in_python = of_kind(kind)
        assert in_c == in_python
        assert [name for name, what in in_c if what[0] is tuple] == ["right"]
