"""Micro-kernels that keep the lines under a window: exact for any window, refused where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from compile_cache import load_compiled
from compiled import cpu_target, make_problem, numbered

from dietcode.cost_model.cpu.counts import count
from dietcode.search_space.access import can_window
from dietcode.search_space.cpu.axes import problem_for
from dietcode.search_space.cpu.host import build_module
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.cpu.packing import packed_shape
from dietcode.search_space.problem import Problem, Window, instance_extents, problem_from_spec
from dietcode.search_space.reference import reference
from dietcode.search_space.stage import Stage
from dietcode.target.cpu import CpuTarget
from dietcode.workload.parse import spec_from_data

TAILS = ("local", "partition", "checked")


def each_with_tails(cases: Sequence[Any]) -> list[Any]:
    """Each case with one kind of tails, in turn; with the others where there is time."""
    return [
        pytest.param(case, tails, marks=() if (row + column) % len(TAILS) == 0 else pytest.mark.long)
        for row, case in enumerate(cases)
        for column, tails in enumerate(TAILS)
    ]


def conv_problem(
    size: tuple[int, int] = (9, 9),
    kernel: tuple[int, int] = (3, 3),
    channels: tuple[int, int] = (3, 10),
    groups: int = 1,
    constant: bool = True,
    layout: str = "NHWC",
    **options: Any,
) -> tuple[Problem, dict[str, int]]:
    """A convolution of B images with a bias, and its extents for B = 1."""
    letters = layout.lower()
    extents = {
        "h": size[0],
        "w": size[1],
        "c": channels[0] * groups,
        "o": channels[1] * groups,
        "i": channels[0],
        "r": kernel[0],
        "s": kernel[1],
    }
    filters = "oirs" if groups > 1 else "ocrs"
    used = {letter: extents[letter] for letter in set(letters + filters) - {"n"}}
    spec = spec_from_data(
        {
            "name": "conv",
            "op": {
                "conv2d": {"data_layout": layout, "kernel_layout": "OIHW", "groups": groups, **options},
                "epilogue": ["bias", "relu"],
            },
            "tensors": {
                "X": {"dims": letters, "dtype": "float32"},
                "W": {"dims": filters, "dtype": "float32", "constant": constant},
            },
            "output": {"name": "Y", "dtype": "float32"},
            "shape_vars": {"B": {"min": 1, "max": 8}},
            "dims": {"n": "B", **used},
        }
    )
    columns = {"B": np.ones(1, dtype=np.int64)}
    return problem_from_spec(spec), {k: int(v[0]) for k, v in instance_extents(spec, columns).items()}


class Run:
    """Micro-kernels of one problem, compiled."""

    def __init__(self, problem: Problem, micro_kernels: Sequence[MicroKernel], target: CpuTarget) -> None:
        self.problem, self.limits, self.count = problem, Limits.of(target), len(micro_kernels)
        assert all(map(self.limits.holds, micro_kernels))
        module = build_module(problem, micro_kernels, numbered(self.count), ("kernel",), self.limits)
        self.module = load_compiled(module, target)

    def __call__(self, inputs: dict[str, Any], extents: dict[str, int]) -> list[Any]:
        """What each gives."""
        problem = self.problem
        given = dict(inputs)
        for layout in problem.packed.values():
            shape = packed_shape(problem, layout, extents, self.limits.lanes)
            packed = np.empty([int(n) for n in shape], np.float32)
            self.module["pack"](inputs[problem.column_operand], packed)
            given[problem.column_operand] = packed
        shape = problem.shape(problem.output, extents)
        outputs = [np.full(shape, np.nan, np.float32) for _ in range(self.count)]
        for kernel, output in enumerate(outputs):
            self.module["run"](*given.values(), output, kernel)
        return outputs


def with_and_without(problem: Problem, target: CpuTarget, rows: int = 3, tails: str = "local") -> Run:
    """A tile that keeps lines, and the same one that gathers."""
    tiles = [MicroKernel(rows, 2 * target.lanes(), tails, window=window) for window in (True, False)]
    return Run(problem, tiles, target)


def check(run: Run, extents: dict[str, int], batches: tuple[int, ...] = (1, 3)) -> None:
    """Against the reference, and to the bit against the same tile that gathers."""
    problem = run.problem
    rng = np.random.default_rng(0)
    for batch in batches:
        now = extents | {"n": batch}
        inputs = {
            name: rng.standard_normal(problem.shape(name, now), dtype=np.float32)
            for name in problem.arguments
        }
        outputs = run(inputs, now)
        expected = reference(problem, inputs)
        assert np.isfinite(outputs[0]).all()
        assert np.abs(outputs[0] - expected).max() < 1e-5 * (np.abs(expected).max() + 1)
        np.testing.assert_array_equal(*outputs)


# Strides, padding and dilation.
WINDOWS = [
    (1, 0, 1),
    (1, 1, 1),
    (2, 1, 1),
    (2, 3, 1),
    (3, 0, 1),
    (5, 2, 1),
    (1, 2, 2),
    (2, 1, 2),
    (3, 3, 2),
    ([2, 1], [0, 3], [1, 2]),
    ([1, 3], [4, 0], [2, 1]),
]


@pytest.mark.sampled(keep=4)
@pytest.mark.parametrize(("window", "tails"), each_with_tails(WINDOWS), ids=str)
def test_any_window(window: tuple[Any, Any, Any], tails: str, target: CpuTarget) -> None:
    strides, padding, dilation = window
    problem, extents = conv_problem(strides=strides, padding=padding, dilation=dilation)
    check(with_and_without(problem, target, tails=tails), extents)


@pytest.mark.sampled(keep=3)
@pytest.mark.parametrize("kernel", [(1, 1), (1, 3), (3, 1), (7, 7), (2, 5)], ids=str)
@pytest.mark.parametrize("strides", [1, 2])
def test_any_kernel(kernel: tuple[int, int], strides: int, target: CpuTarget) -> None:
    problem, extents = conv_problem(kernel=kernel, strides=strides, padding=1)
    check(with_and_without(problem, target, tails="partition"), extents)


@pytest.mark.parametrize(("width", "tails"), each_with_tails([1, 7, 56, 113]))
def test_any_width(width: int, tails: str, target: CpuTarget) -> None:
    problem, extents = conv_problem(size=(4, width), channels=(5, 21), padding=1)
    check(with_and_without(problem, target, 6, tails), extents)


@pytest.mark.sampled(keep=4)
@pytest.mark.parametrize("channels", [1, 2, 8, 16, 19, 33])
@pytest.mark.parametrize("groups", [1, 3])
def test_any_channels(channels: int, groups: int, target: CpuTarget) -> None:
    problem, extents = conv_problem(channels=(channels, 9), groups=groups, padding=1, strides=2)
    check(with_and_without(problem, target, tails="partition"), extents)


@pytest.mark.sampled(keep=2)
@pytest.mark.usefixtures("avx2")
@pytest.mark.parametrize(("num_cores", "tails"), each_with_tails([1, 2, 3, 8]))
def test_any_number_of_tasks(num_cores: int, tails: str) -> None:
    """Some tasks begin within an image; with more tasks than lines they share a line."""
    target = cpu_target("haswell", num_cores)
    for size in ((9, 9), (3, 40)):
        problem, extents = conv_problem(size=size, padding=1, channels=(3, 40))
        check(with_and_without(problem, target, tails=tails), extents, (1, 2, 3))


def test_an_operand_that_is_not_constant(target: CpuTarget) -> None:
    problem, extents = conv_problem(constant=False, padding=1)
    check(with_and_without(problem, target, tails="partition"), extents)


@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize("tails", TAILS)
def test_any_extent_may_be_dynamic(tails: str, target: CpuTarget) -> None:
    roles = {"batch": (), "rows": ("n", "p", "q"), "columns": ("o",), "reduction": ("r", "s", "c")}
    windows = (Window("h", "p", "r", 2, 1, 1), Window("w", "q", "s", 1, 2, 2))
    problem = Problem(
        "X",
        "W",
        "Y",
        {"X": "nhwc", "W": "ocrs", "Y": "npqo"},
        **roles,
        extents=dict.fromkeys("nhwcorspq"),
        stages=(),
        column_operand_constant=False,
        windows=windows,
    )
    problem.check()
    run = with_and_without(problem, target, tails=tails)
    for h, w, c, r, s in ((7, 9, 5, 3, 3), (1, 1, 1, 1, 1), (8, 20, 17, 2, 4)):
        extents = {"h": h, "w": w, "c": c, "o": 11, "r": r, "s": s}
        extents |= {"p": windows[0].num_positions(h, r), "q": windows[1].num_positions(w, s)}
        check(run, extents)


def test_a_window_along_lines_alone(target: CpuTarget) -> None:
    """One axis has a window; the other letters of a line's place are batch letters."""
    roles = {"batch": (), "rows": ("n", "h", "q"), "columns": ("o",), "reduction": ("s", "c")}
    extents = {"h": 4, "w": 13, "c": 6, "o": 9, "s": 3, "q": 7}
    problem = Problem(
        "X",
        "W",
        "Y",
        {"X": "nhwc", "W": "ocs", "Y": "nhqo"},
        **roles,
        extents={"n": None, **extents},
        stages=(),
        column_operand_constant=True,
        windows=(Window("w", "q", "s", 2, 1, 1),),
    )
    problem.check()
    check(with_and_without(problem, target, tails="partition"), extents)


def test_no_element_is_read_for_another(target: CpuTarget) -> None:
    """What is not finite reaches the positions whose windows hold it, and no more."""
    problem, extents = conv_problem(padding=1)
    run = Run(problem, [MicroKernel(4, target.lanes(), window=True)], target)
    rng = np.random.default_rng(0)
    now = extents | {"n": 2}
    shapes = {name: problem.shape(name, now) for name in problem.inputs}
    inputs = {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
    inputs["X"][0, 8, 8, 0] = np.nan
    bad = np.isnan(run(inputs, now)[0]).all(axis=-1)
    assert bad[0, 7:, 7:].all()
    assert bad.sum() == 4


def test_roles_of_a_window() -> None:
    problem, extents = conv_problem(padding=1)
    micro_kernel = MicroKernel(3, 16, window=True)
    seen = problem_for(problem, micro_kernel)
    assert (len(seen.batch), len(seen.rows)) == (2, 1)
    assert problem_for(problem, MicroKernel(3, 16)) is problem
    limits = Limits.of(cpu_target("haswell"))
    arrays = {k: np.array([v]) for k, v in (extents | {"n": 2}).items()}
    counts = count(problem, micro_kernel, limits, arrays)
    assert counts.tiles * limits.num_cores == 2 * 9 * 3  # images, lines, tiles of a line
    assert counts.flops == count(problem, MicroKernel(3, 16), limits, arrays).flops


def test_what_has_no_lines() -> None:
    stage = [Stage("relu")]
    problems = [make_problem("mk,nk->mn", stages=stage), conv_problem(layout="NCHW")[0]]
    for problem in problems:
        assert not can_window(problem)
        with pytest.raises(ValueError, match=r"no lines"):
            problem_for(problem, MicroKernel(3, 16, window=True))


def test_axes_that_contradict_each_other() -> None:
    limits = Limits.of(cpu_target("haswell"))
    assert limits.holds(MicroKernel(3, 16, window=True))
    assert not limits.holds(MicroKernel(3, 16, "global", window=True))
    assert not limits.holds(MicroKernel(3, 16, k_tile=8, window=True))
    assert not limits.holds(MicroKernel(3, 16, gather=True, window=True))


def test_names_and_plain_data() -> None:
    micro_kernel = MicroKernel(14, 32, "partition", window=True)
    assert micro_kernel.name == "14x32-partition-window"
    assert MicroKernel.from_json(micro_kernel.to_json()) == micro_kernel
    assert micro_kernel.order > MicroKernel(14, 32, "partition").order
    assert "window" not in MicroKernel(14, 32).to_json()
