"""Code for attention: right at every edge, the same bits whatever computes it, and where NaN goes."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from attention_blocks import ATTENTIONS, attention_of, built_attention

from dietcode.search_space.attention.problem import AttentionProblem
from dietcode.search_space.cpu.attention.micro_kernel import BLOCK, SEGMENT, AttentionKernel
from dietcode.search_space.cpu.attention.space import allows, around, neighbours, seeds
from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.cpu.spaces import cpu_micro_kernel
from dietcode.search_space.forms import problem_from_json
from dietcode.search_space.rows.expected import expect_rows
from dietcode.search_space.rows.reference import block_reference
from dietcode.target.cpu import CpuTarget

LENGTHS = [
    (1, 1),
    (1, BLOCK),
    (1, 2 * SEGMENT + 3),
    (7, 5),
    (5, BLOCK - 1),
    (9, BLOCK + 1),
    (BLOCK, 130),
    (40, 3),
]


def extents_of(problem: AttentionProblem, num_queries: int, num_keys: int, seed: int = 0) -> dict[str, int]:
    rng = random.Random(seed)
    extents = {index: extent or rng.choice([1, 2, 3]) for index, extent in problem.extents.items()}
    return extents | {"q": num_queries, "k": num_keys}


@pytest.mark.parametrize("name", ATTENTIONS)
def test_every_length_and_micro_kernel(name: str, target: CpuTarget) -> None:
    block = built_attention(name, target.mcpu)
    for seed, (num_queries, num_keys) in enumerate(LENGTHS):
        block.check(extents_of(block.problem, num_queries, num_keys, seed), seed)


@pytest.mark.parametrize("name", ["plain", "grouped"])
def test_a_query_has_the_same_bits_in_any_batch(name: str, target: CpuTarget) -> None:
    block = built_attention(name, target.mcpu)
    extents = extents_of(block.problem, 5, SEGMENT + 70) | {"b": 5}
    inputs = block.inputs(extents)
    for category in range(len(block.kernels)):
        (together,) = block.run(inputs, extents, category)
        for entry in (0, 3):
            alone = {
                tensor: value[entry : entry + 1] if "b" in block.problem.indices[tensor] else value
                for tensor, value in inputs.items()
            }
            (output,) = block.run(alone, extents | {"b": 1})
            assert np.array_equal(output[0], together[entry]), block.kernels[category].name


@pytest.mark.thorough
def test_a_query_has_the_same_bits_alone(avx2: CpuTarget) -> None:
    block = built_attention("causal", avx2.mcpu)
    extents = extents_of(block.problem, 70, 200) | {"b": 1, "h": 2}
    inputs = block.inputs(extents)
    (together,) = block.run(inputs, extents, 2)
    last = inputs | {"Q": inputs["Q"][:, -1:]}
    for category in range(len(block.kernels)):  # as in decoding: it sees all keys
        (output,) = block.run(last, extents | {"q": 1}, category)
        assert np.array_equal(output[:, 0], together[:, -1])


def test_causal_hides_later_keys_and_the_last_query_sees_all(avx2: CpuTarget) -> None:
    block = built_attention("causal", avx2.mcpu)
    extents = extents_of(block.problem, 4, 3) | {"b": 1, "h": 1, "k": 3}
    inputs = block.inputs(extents)
    inputs["V"][:] = np.arange(1, 4, dtype=np.float32)[:, None, None]
    inputs["Q"][:] = 0  # all keys that are seen weigh the same
    for category in range(len(block.kernels)):
        (output,) = block.run(inputs, extents, category)
        assert np.allclose(output[0, :, 0, 0], [0, 1, 1.5, 2], rtol=1e-6)


def test_a_row_that_is_masked_as_a_whole_is_zero(avx2: CpuTarget) -> None:
    block = built_attention("padded", avx2.mcpu)
    extents = extents_of(block.problem, 3, 70) | {"b": 2}
    inputs = block.inputs(extents)
    inputs["mask"][1] = -np.inf
    inputs["mask"][0, 60:] = -np.inf
    some = {name: value[:1] for name, value in inputs.items()}
    for name in ("K", "V"):
        some[name] = some[name][:, :, :60]
    some["mask"] = some["mask"][:, :60]
    right = block_reference(block.problem, some)["O"]
    for category in range(len(block.kernels)):
        (output,) = block.run(inputs, extents, category)
        assert np.all(output[1] == 0)
        assert np.abs(output[:1] - right).max() < 1e-5 * np.abs(right).max()


def test_nothing_past_a_length_is_read(target: CpuTarget) -> None:
    block = built_attention("lengths", target.mcpu)
    extents = extents_of(block.problem, 5, SEGMENT + 90) | {"b": 6}
    inputs = block.inputs(extents)
    lengths = [0, -3, 1, BLOCK + 3, SEGMENT + 7, 2**31 - 1]
    inputs["lengths"][:] = lengths
    for entry, length in enumerate(lengths):
        for name in ("K", "V"):
            inputs[name][entry, max(length, 0) :] = np.nan
    known = inputs | {name: np.nan_to_num(inputs[name]) for name in ("K", "V")}
    right = block_reference(block.problem, known)["O"]
    for category in range(len(block.kernels)):
        (output,) = block.run(inputs, extents, category)
        assert np.all(output[:2] == 0)
        assert np.abs(output - right).max() < 1e-5 * np.abs(right).max(), block.kernels[category].name


def test_a_sentence_has_the_same_bits_padded_and_alone(avx2: CpuTarget) -> None:
    block = built_attention("lengths", avx2.mcpu)
    extents = extents_of(block.problem, 1, SEGMENT + 200) | {"b": 2}
    inputs = block.inputs(extents)
    inputs["lengths"][:] = [SEGMENT + 11, 40]
    for category in range(len(block.kernels)):
        (together,) = block.run(inputs, extents, category)
        for entry, length in enumerate(inputs["lengths"]):
            alone = inputs | {name: inputs[name][entry : entry + 1] for name in ("Q", "lengths")}
            alone |= {name: inputs[name][entry : entry + 1, :length].copy() for name in ("K", "V")}
            alone["mask"] = inputs["mask"][:, :length].copy()
            (output,) = block.run(alone, extents | {"b": 1, "k": int(length)}, category)
            assert np.array_equal(output[0], together[entry])


def test_scores_far_apart_and_the_smallest_mask(avx2: CpuTarget) -> None:
    block = built_attention("padded", avx2.mcpu)
    extents = extents_of(block.problem, 3, 150) | {"b": 1}
    inputs = block.inputs(extents)
    inputs["Q"] *= 1e3
    right = block_reference(block.problem, inputs)["O"]
    for category in range(len(block.kernels)):
        (output,) = block.run(inputs, extents, category)
        assert np.abs(output - right).max() < 1e-3 * np.abs(right).max()  # of scores of 1e4
    inputs["mask"][:] = np.finfo(np.float32).min  # which absorbs the scores: all keys weigh the same
    (output,) = block.run(inputs, extents)
    mean = inputs["V"].mean(axis=2)[:, :, None].transpose(0, 2, 1, 3)
    assert np.allclose(output, np.broadcast_to(mean, output.shape), atol=1e-6)


@pytest.mark.parametrize("tensor", ["Q", "K", "V"])
def test_nan_stays_nan(tensor: str, avx2: CpuTarget) -> None:
    block = built_attention("plain", avx2.mcpu)
    extents = extents_of(block.problem, 6, 90) | {"b": 2, "h": 2}
    inputs = block.inputs(extents)
    inputs[tensor][1, 0, 2, 5] = np.nan
    right = np.isnan(block_reference(block.problem, inputs)["O"])
    assert right.any() and not right.all()
    for category in range(len(block.kernels)):
        (output,) = block.run(inputs, extents, category)
        assert np.array_equal(np.isnan(output), right), block.kernels[category].name


def test_a_sample_of_the_right_result_finds_what_is_wrong() -> None:
    problem = attention_of("grouped")
    extents = extents_of(problem, 6, 11) | {"b": 8}
    rng = np.random.default_rng(0)
    arrays = {n: rng.standard_normal([extents[k] for k in problem.indices[n]]) for n in problem.inputs}
    right = block_reference(problem, arrays)["O"]
    sample = expect_rows(problem, arrays, extents, float(problem.flops(extents)) / 4)
    assert sample.index == "b" and len(sample.positions) < 8
    assert sample.error_of_all([right]) < 1e-12
    assert sample.error_of_all([right + 1]) > 0.1


@pytest.mark.parametrize("name", ATTENTIONS)
def test_problems_travel_as_plain_data(name: str) -> None:
    problem = attention_of(name)
    again = problem_from_json(problem.to_json())
    assert isinstance(again, AttentionProblem) and again.to_json() == problem.to_json()
    assert again.plan == problem.plan


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("columns", ["q"], "columns"),
        ("constants", ["K"], "allowed: none"),
        ("extents", {"b": None, "h": None, "q": None, "k": None, "d": None}, "extent None of d"),
        ("nodes", {"S": {"add": ["Q", "K"]}, "P": {"add": ["S", 1]}, "O": {"add": ["P", "V"]}}, "softmax"),
        ("subscripts", dict.fromkeys("QKVPO", "bhqd") | {"S": "bhqk"}, "given"),
    ],
)
def test_what_no_spec_lowers_to_is_refused(key: str, value: Any, expected: str) -> None:
    data = attention_of("plain").to_json() | {key: value}
    with pytest.raises(ValueError, match=expected):
        problem_from_json(data)


def test_operations_are_those_of_scores_that_are_seen() -> None:
    problem = attention_of("causal")
    for num_queries, num_keys in ((1, 9), (4, 9), (9, 4), (5, 5)):
        extents = {"b": 2, "h": 3, "q": num_queries, "k": num_keys, "d": 40}
        seen = np.arange(num_keys) <= np.arange(num_queries)[:, None] + (num_keys - num_queries)
        assert problem.num_scores(extents) == 6 * seen.sum()
        assert problem.flops(extents) == 6 * seen.sum() * (4 * 40 + 5)
    arrays = {k: np.array([2, 3]) for k in "bhqk"}
    assert problem.flops(arrays).tolist() == [problem.flops(dict.fromkeys("bhqk", n)) for n in (2, 3)]


def test_the_space(target: CpuTarget) -> None:
    problem, limits = attention_of("plain"), Limits.of(target)
    first, every = seeds(problem, limits), around(problem, limits)
    assert {k.serial for k in first} == {False, True} and len(set(first)) == len(first)
    assert all(allows(problem, kernel, limits) for kernel in (*first, *every))
    assert all(k.rows * k.columns // limits.lanes <= limits.num_registers for k in every)
    found = {n for k in (*first, *every) for n in neighbours(problem, k, limits)}
    assert all(allows(problem, kernel, limits) for kernel in found)
    assert {k.split for k in found} == {False, True} and len({k.tiles for k in found}) > 2
    for kernel in (*first, *found):
        assert cpu_micro_kernel(kernel.to_json()) == kernel
        assert kernel not in neighbours(problem, kernel, limits)
    assert len({kernel.name for kernel in found}) == len(found) == len({kernel.order for kernel in found})


@pytest.mark.parametrize(
    "changes",
    [{"columns": 12}, {"columns": 128}, {"rows": 40}, {"tiles": 1000}, {"tiles": 4, "split": True}],
)
def test_what_no_code_is_generated_for(changes: dict[str, Any], target: CpuTarget) -> None:
    limits = Limits.of(target)
    kernel = AttentionKernel(4, 2 * limits.lanes)
    assert allows(attention_of("plain"), kernel, limits)
    assert not allows(attention_of("plain"), replace(kernel, **changes), limits)
