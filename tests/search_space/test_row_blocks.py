"""Code for blocks of rows: right at every edge, the same bits whatever computes them, and where NaN goes."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest
from compiled import cpu_target
from row_blocks import BLOCKS, built_block, complete, problem_of

from dietcode.search_space.cpu.compiling import compile_module
from dietcode.search_space.cpu.host import build_module
from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.cpu.rows.micro_kernel import RowKernel
from dietcode.search_space.cpu.spaces import cpu_micro_kernel
from dietcode.search_space.forms import problem_from_json
from dietcode.search_space.rows.expected import expect_rows
from dietcode.search_space.rows.passes import schedule
from dietcode.search_space.rows.problem import RowProblem
from dietcode.search_space.rows.reference import block_reference
from dietcode.target.cpu import CpuTarget


def extents_around(problem: RowProblem, lanes: int, fixed: dict[str, int]) -> list[dict[str, int]]:
    """Ones, whole steps, and some around them."""
    rng = random.Random(0)
    columns = [1, 3, lanes - 1, lanes, lanes + 1, 4 * lanes, 4 * lanes + 1, 9 * lanes - 1, 8 * lanes]
    found = []
    for width in columns:
        extents = {index: rng.choice([1, 2, 3, 5]) for index in problem.extents}
        extents[problem.columns[-1]] = width
        if problem.turned:
            extents[problem.turned[-1]] = rng.choice(columns)
        if problem.inner:
            extents[problem.inner[-1]] = rng.choice(columns)
        found.append(complete(problem, extents | fixed))
    return found


WAVES = frozenset({"sin", "cos"})
OF_ONE = WAVES | {"gelu", "approximately", "silu"}  # whose error is to that of max(1, |x|)


@pytest.mark.parametrize("name", BLOCKS)
def test_every_edge_and_micro_kernel(name: str, target: CpuTarget) -> None:
    block = built_block(name, target.mcpu)
    for seed, extents in enumerate(extents_around(block.problem, block.limits.lanes, {})):
        block.check(extents, seed)


@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize("width", [64, 100])
@pytest.mark.parametrize("name", ["add-norm", "softmax", "normed-rotary"])
def test_fixed_columns(name: str, width: int, target: CpuTarget) -> None:
    fixed = {problem_of(name).columns[-1]: width}
    block = built_block(name, target.mcpu, tuple(fixed.items()))
    for extents in extents_around(block.problem, block.limits.lanes, fixed)[:3]:
        block.check(extents)


@pytest.mark.parametrize("name", ["layernorm", "add-norm", "reductions", "several"])
def test_a_row_has_the_same_bits_in_any_batch(name: str, target: CpuTarget) -> None:
    block = built_block(name, target.mcpu)
    extents = dict.fromkeys(block.problem.extents, 7) | {block.problem.columns[-1]: 83, "m": 13}
    inputs = block.inputs(extents)
    for category in range(len(block.kernels)):
        together = block.run(inputs, extents, category)
        for row in (0, 5, 12):
            alone = {
                tensor: value[row : row + 1] if block.problem.indices[tensor].startswith("m") else value
                for tensor, value in inputs.items()
            }
            outputs = block.run(alone, extents | {"m": 1})
            for one, other in zip(outputs, together, strict=True):
                assert np.array_equal(one[0], other[row])


@pytest.mark.thorough
def test_rows_outside_of_a_table_are_left_out(target: CpuTarget) -> None:
    block = built_block("into-rows", target.mcpu)
    extents = {"m": 6, "n": 37, "t": 5}
    inputs = block.inputs(extents)
    inputs["to"][:] = [3, -1, 5, 2**31 - 1, 0, -(2**31)]
    right = block_reference(block.problem, inputs)
    changed = np.any(right["E"] != inputs["states"], axis=1)
    assert changed.tolist() == [True, False, False, True, False]
    for category in range(len(block.kernels)):
        table, y = block.run(inputs, extents, category)
        assert np.array_equal(table[~changed], inputs["states"][~changed])
        assert np.allclose(table, right["E"], atol=1e-6) and np.allclose(y, right["Y"], atol=1e-4)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["mean-of-images", "channels-first", "bags"])
def test_a_row_across_vectors_has_the_same_bits_in_any_batch(name: str, target: CpuTarget) -> None:
    block = built_block(name, target.mcpu)
    problem = block.problem
    first, last = problem.rows[0], problem.inner[-1]
    extents = dict.fromkeys(problem.extents, 19) | {first: 3, last: 37}
    inputs = block.inputs(extents)

    def some(value: Any, own: str) -> Any:
        """The second image alone, and its rows from the fifth on."""
        value = value[1:2] if own.startswith(first) else value
        return np.ascontiguousarray(value[..., 5:] if own.endswith(last) else value)

    alone = {name: some(value, problem.indices[name]) for name, value in inputs.items()}
    for category in range(len(block.kernels)):
        together = block.run(inputs, extents, category)
        apart = block.run(alone, extents | {first: 1, last: 32})
        for output, one, other in zip(problem.outputs, apart, together, strict=True):
            assert np.array_equal(one, some(other, problem.indices[output])), block.kernels[category].name


def test_nan_and_infinity_of_rows_across_vectors(avx2: CpuTarget) -> None:
    block = built_block("mean-of-images", avx2.mcpu)
    inputs = block.inputs({"n": 2, "h": 3, "w": 5, "c": 19})
    inputs["X"][0, 2, 4, 17], inputs["X"][0, 0, 0, 3], inputs["X"][1, 1, 1, 18] = np.nan, np.inf, -np.inf
    with np.errstate(all="ignore"):
        right = block_reference(block.problem, inputs)
    for category in range(len(block.kernels)):
        outputs = block.run(inputs, {"n": 2, "h": 3, "w": 5, "c": 19}, category)
        for name, output in zip(block.problem.outputs, outputs, strict=True):
            finite = np.isfinite(right[name])
            assert not finite.all()
            assert np.array_equal(output[~finite], right[name][~finite], equal_nan=True)
            assert np.allclose(output[finite], right[name][finite], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "extents", "spoiled"),
    [
        ("groups-of-channels", {"b": 2, "g": 3, "c": 4, "h": 5, "w": 3}, "gamma"),
        ("parts-of-columns", {"m": 5, "u": 3, "v": 5, "w": 9}, "pixel"),
        ("parts-of-columns", {"m": 5, "u": 3, "v": 5, "w": 9}, "line"),
        ("parts-across", {"n": 3, "h": 5, "w": 4, "c": 19}, "gamma"),
        ("parts-across", {"n": 3, "h": 5, "w": 4, "c": 19}, "line"),
        ("part-rotary", {"b": 2, "h": 3, "t": 3, "d": 44}, "X"),
        ("normed-rotary", {"b": 2, "h": 3, "t": 3, "d": 44, "v": 7}, "g"),
        ("normed-rotary", {"b": 2, "h": 3, "t": 3, "d": 44, "v": 7}, "words"),
        ("reductions", {"m": 9, "n": 37}, "X"),
    ],
)
def test_nan_and_infinity_reach_what_they_should(
    name: str, extents: dict[str, int], spoiled: str, avx2: CpuTarget
) -> None:
    block = built_block(name, avx2.mcpu)
    inputs = block.inputs(extents)
    inputs[spoiled].reshape(-1)[[1, -2]] = np.nan, -np.inf
    if "at" in inputs:  # the first and the last row of the table
        inputs["at"].reshape(-1)[[0, -1]] = -5, 99
    with np.errstate(all="ignore"):
        right = block_reference(block.problem, inputs)
    for category, kernel in enumerate(block.kernels):
        outputs = block.run(inputs, extents, category)
        for output, own in zip(outputs, right.values(), strict=True):
            finite = np.isfinite(own)
            assert np.array_equal(output[~finite], own[~finite], equal_nan=True), kernel.name
            assert np.allclose(output[finite], own[finite], rtol=1e-5, atol=1e-5), kernel.name
    assert not all(np.isfinite(own).all() for own in right.values())


def test_means_of_large_images_are_exact_enough(avx2: CpuTarget) -> None:
    block = built_block("mean-of-images", avx2.mcpu)
    extents = {"n": 1, "h": 224, "w": 224, "c": 9}
    inputs = block.inputs(extents)
    inputs["X"] = np.abs(inputs["X"])
    right = block_reference(block.problem, inputs)["Y"]
    for category in range(len(block.kernels)):
        output = block.run(inputs, extents, category)[0]
        assert np.abs(output - right).max() < 1e-6


@pytest.mark.thorough
@pytest.mark.sampled(keep=3)
@pytest.mark.parametrize("name", ["maxpool", "avgpool", "rotary", "interleaved-rotary"])
def test_an_image_or_a_sequence_has_the_same_bits_alone(name: str, target: CpuTarget) -> None:
    block = built_block(name, target.mcpu)
    problem = block.problem
    extents = complete(problem, dict.fromkeys(problem.extents, 9) | {problem.columns[-1]: 37, "b": 3, "n": 3})
    inputs, first = block.inputs(extents), problem.rows[0]
    for category in range(len(block.kernels)):
        (together,) = block.run(inputs, extents, category)
        alone = {k: v[1:2] if problem.indices[k].startswith(first) else v for k, v in inputs.items()}
        (output,) = block.run(alone, extents | {first: 1})
        assert np.array_equal(output[0], together[1])


@pytest.mark.thorough
def test_nan_and_infinity_are_in_the_windows_that_see_them(avx2: CpuTarget) -> None:
    for name in ("maxpool", "avgpool"):
        block = built_block(name, avx2.mcpu)
        extents = complete(block.problem, {"n": 1, "h": 6, "w": 5, "c": 9, "p": 0, "q": 0})
        inputs = block.inputs(extents)
        inputs["X"][0, 0, 0, 2], inputs["X"][0, 5, 4, 8], inputs["X"][0, 3, 2, 0] = np.nan, -np.inf, np.inf
        with np.errstate(all="ignore"):
            right = block_reference(block.problem, inputs)["Y"]
        for category in range(len(block.kernels)):
            (output,) = block.run(inputs, extents, category)
            finite = np.isfinite(right)
            assert not finite.all() and np.array_equal(output[~finite], right[~finite], equal_nan=True)
            assert np.allclose(output[finite], right[finite], rtol=1e-5, atol=1e-6)


@pytest.mark.thorough
def test_a_row_that_is_masked_as_a_whole_is_zero(avx2: CpuTarget) -> None:
    block = built_block("softmax", avx2.mcpu)
    extents = {"b": 2, "h": 1, "q": 3, "k": 21}
    inputs = block.inputs(extents)
    inputs["mask"][1] = -np.inf
    for category in range(len(block.kernels)):
        (output,) = block.run(inputs, extents, category)
        assert np.all(output[1] == 0)
        assert np.allclose(output[0].sum(axis=-1), 1, rtol=1e-6)


def test_what_is_past_a_length_may_be_anything(target: CpuTarget) -> None:
    block = built_block("lengths", target.mcpu)
    extents = {"b": 2, "h": 2, "q": 3, "k": 83}
    inputs = block.inputs(extents)
    inputs["long"][:] = [[0, 1, 16], [17, 83, 2**31 - 1]]
    hidden = np.arange(83) >= inputs["long"][:, None, :, None]
    inputs["X"][np.broadcast_to(hidden, inputs["X"].shape)] = np.nan
    right = block_reference(block.problem, inputs)
    for category in range(len(block.kernels)):
        weights, most = block.run(inputs, extents, category)
        assert np.all(weights[0, :, 0] == 0) and np.all(np.isneginf(most[0, :, 0]))
        assert np.all(weights[np.broadcast_to(hidden, weights.shape)] == 0)
        assert np.allclose(weights, right["P"], rtol=1e-5, atol=1e-7)
        assert np.allclose(most, right["most"], rtol=1e-5)


def test_causal_hides_later_keys_and_the_last_query_sees_all(avx2: CpuTarget) -> None:
    block = built_block("softmax", avx2.mcpu)
    extents = {"b": 1, "h": 1, "q": 3, "k": 5}
    (output,) = block.run(block.inputs(extents), extents)
    assert [(row > 0).tolist() for row in output[0, 0]] == [
        [True, True, True, False, False],
        [True, True, True, True, False],
        [True, True, True, True, True],
    ]


@pytest.mark.parametrize("name", ["softmax", "layernorm", "add-norm", "several"])
def test_nan_stays_in_its_row(name: str, avx2: CpuTarget) -> None:
    block = built_block(name, avx2.mcpu)
    problem = block.problem
    extents = dict.fromkeys(problem.extents, 3) | {problem.columns[-1]: 41}
    inputs = block.inputs(extents)
    inputs["X"].reshape(-1, 41)[1, 0] = np.nan  # which a causal mask does not hide
    right = block_reference(problem, inputs)
    for category in range(len(block.kernels)):
        for output_name, output in zip(problem.outputs, block.run(inputs, extents, category), strict=True):
            assert np.array_equal(np.isnan(output), np.isnan(right[output_name])), block.kernels[
                category
            ].name
    assert any(np.isnan(value).any() and not np.isnan(value).all() for value in right.values())


def test_infinities_and_nan_of_reductions(avx2: CpuTarget) -> None:
    block = built_block("reductions", avx2.mcpu)
    extents = {"m": 4, "n": 19}
    inputs = block.inputs(extents)
    inputs["X"][0, 17], inputs["X"][1, 3], inputs["X"][2, 18] = np.inf, -np.inf, np.nan
    right = block_reference(block.problem, inputs)
    outputs = dict(zip(block.problem.outputs, block.run(inputs, extents), strict=True))
    assert outputs["half"][0] == np.inf and np.isnan(outputs["half"][2])
    for name, output in outputs.items():
        assert np.array_equal(np.isnan(output), np.isnan(right[name])), name
        finite = np.isfinite(right[name])
        assert np.allclose(output[finite], right[name][finite], rtol=1e-5, atol=1e-5), name


@pytest.mark.thorough
def test_functions_over_all_of_float32(target: CpuTarget) -> None:
    block = built_block("functions", target.mcpu)
    bits = np.linspace(0, 2**32 - 1, 200_003).astype(np.uint32)  # negative numbers, NaN and infinities too
    x = np.concatenate([bits.view(np.float32), np.linspace(-100, 100, 200_000, dtype=np.float32)])
    inputs = {"X": x[None], "Z": np.roll(x, 1)[None]}
    outputs = block.run(inputs, {"m": 1, "n": len(x)})
    with np.errstate(all="ignore"):
        right = block_reference(block.problem, inputs)
        for name, output in zip(block.problem.outputs, outputs, strict=True):
            wanted = right[name].astype(np.float32)
            normal = ~(np.abs(right[name]) < 2.0**-125)  # below, results may be 0
            assert np.array_equal(np.isnan(output), np.isnan(wanted)), name
            both = normal & ~np.isnan(wanted)
            infinite = np.isinf(wanted) | np.isinf(output)
            near_overflow = np.abs(right[name]) > 3.4e38
            assert np.array_equal(
                output[both & infinite & ~near_overflow], wanted[both & infinite & ~near_overflow]
            ), name
            finite = both & ~infinite
            finite &= (name not in WAVES) | (np.abs(x) <= 1e8)
            scale = np.maximum(np.abs(right[name]), 1.0 if name in OF_ONE else 0.0)
            with np.errstate(all="ignore"):
                error = np.abs(output.astype(np.float64) - right[name])[finite] / scale[finite]
            assert np.nanmax(error) < 1e-6, (name, x[finite[0]][np.nanargmax(error)])


def test_passes_of_softmax() -> None:
    problem = problem_of("softmax")
    kept = {keep: schedule(problem, keep).kept for keep in ("costly", "all", "none")}
    assert kept["none"] == () and len(kept["costly"]) == 1 and len(kept["all"]) == 2
    plan = schedule(problem, "costly")
    assert [len(one.reductions) for one in plan.passes] == [1, 1, 0]
    for keep, exponentials in (("costly", 1), ("none", 2)):
        kinds = [p.kind for one in schedule(problem, keep).passes for p in one.elements]
        assert kinds.count("exp-of-negative") == exponentials


def test_an_output_is_read_where_it_was_written() -> None:
    plan = schedule(problem_of("add-norm"), "all")
    assert plan.kept == () and plan.passes[1].loads == ("S",)


@pytest.mark.parametrize("name", BLOCKS)
def test_plain_data(name: str) -> None:
    problem = problem_of(name)
    assert problem_from_json(problem.to_json()).to_json() == problem.to_json()
    kernel, other = RowKernel(4, 64, "all", serial=True), RowKernel(1, 64, stream=True)
    assert cpu_micro_kernel(kernel.to_json()) == kernel and kernel.name == "4x64-keep-all-serial"
    assert cpu_micro_kernel(other.to_json()) == other and other.name == "1x64-stream"


@pytest.mark.parametrize(
    "changes",
    [
        {"form": "columns"},
        {"outputs": ["X"]},
        {"inputs": []},
        {"rows": ["n"]},
        {"extents": {"m": None}},
        {"extents": {"m": None, "n": 0}},
        {"subscripts": {"X": "mn", "gamma": "n", "beta": "n", "Y": "zn"}},
        {"nodes": {"Y": {"layernorm": ["X", "missing"], "axis": "n"}}},
    ],
)
def test_plain_data_that_is_no_problem(changes: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        problem_from_json(problem_of("layernorm").to_json() | changes)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("shifted", {"nodes": {"Y": {"rotate": "X", "axis": "n", "by": 37}}}),
        ("shifted", {"nodes": {"Y": {"rotate": "X", "axis": "n", "by": 1, "within": 38}}}),
        ("shifted", {"nodes": {"Y": {"rotate": "X", "axis": "n", "by": 2, "within": 2}}}),
        ("interleaved-rotary", {"extents": dict.fromkeys("bhtd")}),
        ("shifted", {"extents": {"m": None, "n": None}}),
        ("maxpool", {"nodes": {"Y": {"maxpool": "X", "dims": "npqc", "window": 2, "padding": 2}}}),
        ("maxpool", {"nodes": {"Y": {"maxpool": "X", "dims": "npq", "window": 2}}}),
        ("into-two", {"into": {"a": ["A", "to"], "X": ["B", "to"]}}),
        ("into-two", {"into": {"a": ["A", "to"], "b": ["b", "to"]}}),
        ("into-two", {"into": {"a": ["X", "to"], "b": ["B", "to"]}}),
        ("into-two", {"into": {"a": ["A", "A"], "b": ["B", "to"]}}),
    ],
)
def test_windows_and_rotations_that_are_no_problem(name: str, changes: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        problem_from_json(problem_of(name).to_json() | changes)


def test_rows_of_a_table_are_sampled() -> None:
    problem = problem_of("into-rows")
    extents = {"m": 300, "n": 8, "t": 400}
    rng = np.random.default_rng(0)
    arrays = {name: problem.draw(name, extents, rng) for name in problem.inputs}
    right = block_reference(problem, arrays)
    some = expect_rows(problem, arrays, extents, problem.flops(extents) / 10)
    assert some.index == "m" and 20 <= len(some.rows["E"]) <= 40
    outputs = [right["E"].copy(), right["Y"]]
    assert some.error_of_all(outputs) == 0
    outputs[0][some.rows["E"][3]] += 1
    assert some.error_of_all(outputs) > 0.1


def test_images_are_sampled_and_not_cut() -> None:
    problem = problem_of("maxpool")
    extents = complete(problem, {"n": 40, "h": 9, "w": 9, "c": 8, "p": 0, "q": 0})
    arrays = {"X": np.random.default_rng(0).standard_normal((40, 9, 9, 8))}
    some = expect_rows(problem, arrays, extents, problem.flops(extents) / 10)
    assert some.index == "n" and some.values["Y"].shape[1:] == (5, 5, 8)
    assert some.error_of_all([block_reference(problem, arrays)["Y"]]) == 0


def test_a_sample_of_rows_is_compared() -> None:
    problem = problem_of("add-norm")
    arrays = {"X": np.ones((900, 40)), "R": np.ones((900, 40)), "gamma": np.ones(40)}
    arrays["X"][:, 0] = np.arange(900)
    extents = {"m": 900, "n": 40}
    right = block_reference(problem, arrays)
    some = expect_rows(problem, arrays, extents, problem.flops(extents) / 50)
    assert some.index == "m" and 10 <= len(some.positions) <= 20 and some.positions[-1] == 899
    outputs = [right["S"].copy(), right["Y"].copy()]
    assert some.error_of_all(outputs) == 0
    outputs[1][899, 3] += 1
    assert some.error_of_all(outputs) > 0.1
    outputs[1][899, 3], outputs[0][1, 1] = right["Y"][899, 3], np.nan
    assert np.isnan(some.error_of_all(outputs))


def test_limits_of_a_micro_kernel(avx2: CpuTarget) -> None:
    from dietcode.search_space.cpu.rows.space import allows

    limits, problem = Limits.of(avx2), problem_of("layernorm")
    assert allows(problem, RowKernel(4, 4 * limits.lanes), limits)
    assert not allows(problem, RowKernel(4, 4 * limits.lanes + 1), limits)
    assert not allows(problem, RowKernel(1, 2 * limits.lanes), limits)  # its sums would have another order
    assert allows(problem_of("broadcast"), RowKernel(1, 2 * limits.lanes), limits)
    assert allows(problem, RowKernel(1, 4 * limits.lanes, stream=True), limits)
    assert not allows(problem, RowKernel(1, 4 * limits.lanes, serial=True, stream=True), limits)
    with pytest.raises(ValueError, match="keep 'some'; allowed: costly"):
        RowKernel(1, 64, "some")


@pytest.mark.parametrize(
    ("name", "rows", "fetched"),
    [
        ("layernorm", 1, {"X", "Y"}),  # rows that lie in L1 while several passes go over them, and outputs
        ("layernorm", 4, {"X", "Y"}),
        ("embedding", 1, {"X", "words", "Y"}),  # word, an output of the first pass, is written at once
        ("lookup", 1, {"words"}),  # no processor foresees where the next one lies
        ("lookup", 4, {"words"}),
        ("functions", 1, set()),  # one pass reads on by itself
    ],
)
def test_next_rows_and_later_outputs_are_fetched_ahead(name: str, rows: int, fetched: set[str]) -> None:
    limits = Limits(lanes=16, num_registers=32, l2_bytes=1 << 20, num_cores=2)
    module = build_module(problem_of(name), [RowKernel(rows, 64)], 0, (), limits)
    text = str(module.script(show_meta=False))
    tensors: dict[str, str] = {}
    for buffer, tensor in re.findall(r"(\w+) = T\.decl_buffer\(.*?data=(\w+)", text):
        tensors.setdefault(buffer, tensor)
    asked = set(re.findall(r'"llvm\.prefetch", T\.address_of\((\w+)\[', text))
    assert {tensors[buffer] for buffer in asked} == fetched


def test_a_processor_without_fused_multiply_adds_calls_no_function_for_them() -> None:
    target = cpu_target("x86-64")
    problem, limits = problem_of("softmax"), Limits.of(target)
    assert not limits.fuses and Limits.of(cpu_target("haswell")).fuses
    module = build_module(problem, [RowKernel(1, 4 * limits.lanes)], 0, (), limits)
    assert "fma" not in compile_module(module, target).mod.inspect_source("s")
