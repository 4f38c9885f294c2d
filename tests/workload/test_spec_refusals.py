"""Every refusal names the field, what was given and what is allowed, in one line."""

from __future__ import annotations

import pytest

from dietcode.errors import SpecError
from dietcode.workload import parse
from dietcode.workload.parse import spec_from_data

D = "<delete>"
CUDA = {"target": {"kind": "cuda", "arch": "sm_90"}}
TWO = {"shape_vars": {"I": {"min": 1, "max": 4096}, "H": {"values": [768, 2304]}}}
JOINT = {**TWO, "dims": {"m": 1024, "n": "H", "k": "I"}}

TOP_LEVEL = [
    ({"name": D}, "name", "missing; required: name, op, tensors, shape_vars, dims"),
    ({"name": "../x"}, "name", "given '../x'; allowed:"),
    ({"name": "a..b"}, "name", "without '..'"),
    ({"name": "a/b"}, "name", "a path"),
    ({"name": "Bert"}, "name", "a-z"),
    ({"name": "x\n"}, "name", r"given 'x\n'"),
    ({"name": ""}, "name", "1 to 64"),
    ({"name": "x" * 65}, "name", "1 to 64"),
    ({"name": 1}, "name", "given 1; allowed: text"),
    ({"bugdet": {}}, "bugdet", "did you mean 'budget'?"),
    ({"x\ny": {}}, r"'x\ny'", "unknown field"),
    ({"accumulate": "float64"}, "accumulate", "given 'float64'; allowed on this target: float32"),
    ({"output.dtype": "float64"}, "output.dtype", "allowed on this target: float32, float16, bfloat16"),
    ({"output.dims": "mn"}, "output.dims", "unknown field; allowed: name, dtype"),
    ({"dims": D}, "dims", "missing"),
    ({"budget.trials": 0}, "budget.trials", "given 0; allowed: at least 1"),
    ({"budget.trials": 1.5}, "budget.trials", "given 1.5; allowed: an integer"),
    ({"budget.trials": True}, "budget.trials", "given True; allowed: an integer"),
    ({"budget.trials": "9"}, "budget.trials", "given '9'; allowed: an integer"),
    ({"budget.seconds": True}, "budget.seconds", "given True; allowed: a number"),
    ({"budget.seconds": 0}, "budget.seconds", "above 0"),
    ({"budget.seconds": float("inf")}, "budget.seconds", "finite"),
    ({"objective.binary_size": 1}, "objective.binary_size", "below 1"),
    ({"objective.binary_size": float("nan")}, "objective.binary_size", "finite"),
    ({"objective.max_loss": -0.1}, "objective.max_loss", "at least 0"),
    ({"objective.max_kernels": 0}, "objective.max_kernels", "at least 1"),
    ({"objective.max_bytes": 1.5}, "objective.max_bytes", "an integer"),
    ({"objective.weight": "flop"}, "objective.weight", "allowed: 'flops'"),
    ({"objective.reproducible": 1}, "objective.reproducible", "true or false"),
    ({"objective.binary": 1}, "objective.binary", "did you mean 'binary_size'?"),
]
OPERATION = [
    ({"op.conv2d": {}}, "op", "given both; allowed: exactly one of einsum, conv2d"),
    ({"op": "mk,nk->mn"}, "op", "allowed: a mapping"),
    ({"op": {}}, "op", "missing; allowed: exactly one of einsum, conv2d"),
    ({"op": {"einsum": None}}, "op", "missing; allowed: exactly one of"),
    ({"op.eisum": 1}, "op.eisum", "did you mean 'einsum'?"),
    ({"op.einsum": "mk,nk"}, "op.einsum", "given 'mk,nk'"),
    ({"op.einsum": "...k,nk->...n"}, "op.einsum", "ellipsis"),
    ({"op.einsum": "mk->m"}, "op.einsum", "two operands"),
    ({"op.einsum": "mk,nk,kk->mn"}, "op.einsum", "two operands"),
    ({"op.einsum": "mm,nm->mn"}, "op.einsum", "repeated in 'mm'"),
    ({"op.einsum": "abcdefg,nk->mn"}, "op.einsum", "at most 6"),
    ({"op.einsum": "mk,nk->mz"}, "op.einsum", "'z' is in no operand"),
    ({"op.epilogue": ["relo"]}, "op.epilogue.0", "did you mean 'relu'?"),
    ({"op.epilogue": ["relu", "gelu"]}, "op.epilogue.1", "without its value"),
    ({"op.epilogue": [{"gelu": "exact"}]}, "op.epilogue.0", "allowed: erf or tanh"),
    ({"op.epilogue": [{"scale": True}]}, "op.epilogue.0", "finite number"),
    ({"op.epilogue": [{"scale": 1e31}]}, "op.epilogue.0", "finite number"),
    ({"op.epilogue": ["clip"]}, "op.epilogue.0", "without its value"),
    ({"op.epilogue": [{"clip": 6}]}, "op.epilogue.0", "allowed: [LOW, HIGH]"),
    ({"op.epilogue": [{"clip": [6, 0]}]}, "op.epilogue.0", "the lower one first"),
    ({"op.epilogue": [{"clip": [0, 1e31]}]}, "op.epilogue.0", "at most 1e30"),
    ({"op.epilogue": [{"clip": [0, True]}]}, "op.epilogue.0", "finite numbers"),
    ({"op.epilogue": [{"clip": [0, 6, 7]}]}, "op.epilogue.0", "allowed: [LOW, HIGH]"),
    ({"op.epilogue": [{"tanh": 1}]}, "op.epilogue.0", "write tanh without a value"),
    ({"op.epilogue": ["hardswich"]}, "op.epilogue.0", "did you mean 'hardswish'?"),
    ({"op.epilogue": [{"relu": 1}]}, "op.epilogue.0", "write relu without a value"),
    ({"op.epilogue": [{"gelu": "erf", "scale": 1}]}, "op.epilogue.0", "allowed: bias"),
    ({"op.epilogue": [{"residual": 3}]}, "op.epilogue.0", "the tensor's name"),
    ({"op.epilogue": [{"residual": "X"}]}, "op.epilogue.0", "already used by tensors.X"),
    ({"op.epilogue": [{"residual": "out"}]}, "op.epilogue.0", "a reserved word"),
    ({"op.epilogue": [{"residual": "a b"}]}, "op.epilogue.0", "identifier"),
    ({"op.epilogue": ["bias", "bias"]}, "op.epilogue.1", "already used by op.epilogue.0"),
    ({"op.epilogue": ["relu"] * 17}, "op.epilogue", "at most 16"),
]
TENSORS = [
    ({"tensors.X": {"dims": "mk", "dtpe": "float32"}}, "tensors.X.dtpe", "allowed: dims, dtype, constant"),
    (
        {"tensors.X.dtype": "bfloat16"},
        "tensors.X.dtype",
        "this target: float32; it needs a target of kind cuda",
    ),
    ({"tensors.W.dtype": "float16"}, "tensors.W.dtype", "given 'float16'; allowed on this target: float32;"),
    ({"tensors.X.dtype": "float64", **CUDA}, "tensors.X.dtype", "target: float32, float16, bfloat16"),
    ({"tensors.X.dtype": "float16", **CUDA}, "tensors.W.dtype", "allowed: float16, as tensors.X has it"),
    ({"accumulate": "float16", **CUDA}, "accumulate", "given 'float16'; allowed on this target: float32"),
    ({"tensors.X.dims": "km"}, "tensors.X.dims", "given 'km'; allowed: mk"),
    ({"tensors.X.constant": "yes"}, "tensors.X.constant", "true or false"),
    ({"tensors.W": D}, "tensors", "given 1 tensors; allowed: the 2 operands"),
    ({"tensors.Z": {"dims": "mn", "dtype": "float32"}}, "tensors", "given 3 tensors"),
    ({"tensors": ["X", "W"]}, "tensors", "a mapping"),
    ({"output.name": "X"}, "output.name", "already used by tensors.X"),
    ({"output.name": "bias"}, "output.name", "reserved for the epilogue"),
    ({"output.name": "lambda"}, "output.name", "no keyword"),
    ({"output.name": "Y" * 33}, "output.name", "at most 32"),
    ({"dims": {"m": "16*T", "n": 2**28, "k": 768}}, "tensors.W", "allowed: at most 2**34"),
    ({"dims": {"m": "16*T", "n": 2**24, "k": 768}}, "output", "allowed: at most 2**34"),
    (
        {
            "op.einsum": "k,n->n",
            "tensors": {"X": {"dims": "k", "dtype": "float32"}, "W": {"dims": "n", "dtype": "float32"}},
            "dims": {"k": "T", "n": 2**31},
            "shape_vars.T.max": 2**31,
        },
        "dims",
        "FLOPs at the largest instance; allowed: at most 2**53",
    ),
]
SHAPES = [
    ({"shape_vars": {}}, "shape_vars", "given 0 shape variables; allowed: 1 to 4"),
    ({"shape_vars": {f"V{i}": {"min": 1, "max": 2} for i in range(5)}}, "shape_vars", "allowed: 1 to 4"),
    ({"shape_vars.T": {"min": 128, "max": 1}}, "shape_vars.T.max", "given 1, below min 128"),
    ({"shape_vars.T.min": 0}, "shape_vars.T.min", "at least 1"),
    ({"shape_vars.T.min": True}, "shape_vars.T.min", "an integer"),
    ({"shape_vars.T.min": 1.0}, "shape_vars.T.min", "given 1.0; allowed: an integer"),
    ({"shape_vars.T.max": 2**31 + 1}, "shape_vars.T.max", "at most 2**31"),
    ({"shape_vars.T.max": 2**31}, "dims.m", "up to 34359738368; allowed: up to 2**31"),
    ({"shape_vars.T": {}}, "shape_vars.T.min", "missing; required: min, max"),
    ({"shape_vars.T": {"mni": 1, "max": 3}}, "shape_vars.T.mni", "did you mean 'min'?"),
    ({"shape_vars.T": [1, 2]}, "shape_vars.T", "with min and max, or with values"),
    ({"shape_vars.T.values": [1]}, "shape_vars.T.min", "allowed: values, weights"),
    ({"shape_vars.T": {"values": []}}, "shape_vars.T.values", "at least 1"),
    ({"shape_vars.T": {"values": [4, 4]}}, "shape_vars.T.values", "each value once"),
    ({"shape_vars.T": {"values": [4, "5"]}}, "shape_vars.T.values.1", "an integer"),
    ({"shape_vars.T": {"values": list(range(1, 100_002))}}, "shape_vars.T.values", "at most 100000"),
    ({"shape_vars.S": {"min": 1, "max": 2}}, "shape_vars.S", "is in no dimension"),
    ({"shape_vars": {"num_threads": {"min": 1, "max": 2}}}, "shape_vars.num_threads", "reserved"),
    ({"shape_vars": {"X": {"min": 1, "max": 2}}}, "shape_vars.X", "already used by tensors.X"),
    ({"shape_vars": {"a b": {"min": 1, "max": 2}}}, "shape_vars.'a b'", "identifier"),
    ({"shape_vars.T.weights": {}}, "shape_vars.T.weights", "given 0 weights"),
    ({"shape_vars.T.weights": {1: 0, 2: 0.0}}, "shape_vars.T.weights", "at least one positive"),
    ({"shape_vars.T.weights": {3: -1}}, "shape_vars.T.weights.3", "at least 0"),
    ({"shape_vars.T.weights": {129: 1}}, "shape_vars.T.weights", "for 129; allowed: 1 to 128"),
    ({"shape_vars.T.weights": {"3": 1, 3: 1}}, "shape_vars.T.weights", "two weights for 3"),
    ({"shape_vars.T.weights": {"x": 1}}, "shape_vars.T.weights", "integers from 1"),
    (
        {"shape_vars.T.weights": "lengths.csv"},
        "shape_vars.T.weights",
        "histogram file only in a spec that is a",
    ),
    ({"shape_vars.T": {"values": [2, 4], "weights": {3: 1}}}, "shape_vars.T.weights", "one of [2, 4]"),
    ({"dims.m": "16*S"}, "dims.m", "'S' is no shape variable; allowed: T"),
    ({"dims.m": "__import__('os').system('x')"}, "dims.m", "cannot read"),
    ({"dims.m": 1.5}, "dims.m", "given 1.5"),
    ({"dims.n": 0}, "dims.n", "at least 1"),
    ({"dims.n": "0*T"}, "dims.n", "at least 1"),
    ({"dims.n": D}, "dims.n", "missing"),
    ({"dims.z": 4}, "dims.z", "not an index of mk,nk->mn; allowed: k, m, n"),
    ({"dims": [1]}, "dims", "a mapping"),
]
INSTANCES = [
    ({**JOINT, "instances": [{"I": 768}]}, "instances.0.H", "missing"),
    ({**JOINT, "instances": [{"I": 768, "H": 1000}]}, "instances.0.H", "given 1000; allowed: one of"),
    ({**JOINT, "instances": [{"I": 5000, "H": 768}]}, "instances.0.I", "given 5000; allowed: 1 to 4096"),
    (
        {**JOINT, "instances": [{"I": 1, "H": 768, "wieght": 1}]},
        "instances.0.wieght",
        "did you mean 'weight'",
    ),
    ({**JOINT, "instances": [{"I": 1.5, "H": 768}]}, "instances.0.I", "an integer"),
    ({**JOINT, "instances": [{"I": 1, "H": 768, "weight": -1}]}, "instances.0.weight", "at least 0"),
    ({**JOINT, "instances": [{"I": 1, "H": 768, "weight": 0}]}, "instances", "at least one positive"),
    ({**JOINT, "instances": [{"I": 1, "H": 768}, {"H": 768, "I": 1}]}, "instances.1", "given twice"),
    ({**JOINT, "instances": [3]}, "instances.0", "a mapping"),
    ({**JOINT, "instances": {"I": 3}}, "instances", "a list"),
    (
        {"shape_vars.T.weights": {1: 1}, "instances": [{"T": 1}]},
        "shape_vars.T.weights",
        "instances are given",
    ),
]
TARGETS = [
    ({"target": {"kind": "lvm"}}, "target.kind", "did you mean 'llvm'?"),
    ({"target": {}}, "target.kind", "missing"),
    ({"target": {"tag": "x"}}, "target.kind", "missing"),
    ({"target": 3}, "target", "given 3"),
    ({"target": "a tag"}, "target", "given 'a tag'"),
    ({"target": {"kind": "llvm", "arch": "sm_90"}}, "target.arch", "allowed: kind, mcpu, mattr, num_cores"),
    ({"target": {"kind": "llvm", "mcpu": "x -y"}}, "target.mcpu", "the name of a CPU"),
    ({"target": {"kind": "llvm", "mattr": ["avx2"]}}, "target.mattr", "with their sign"),
    ({"target": {"kind": "llvm", "mattr": "+avx2"}}, "target.mattr", "a list"),
    ({"target": {"kind": "llvm", "num_cores": 0}}, "target.num_cores", "at least 1"),
    ({"target": {"kind": "cuda"}}, "target.arch", "missing"),
    ({"target": {"kind": "cuda", "arch": "90"}}, "target.arch", "like sm_90"),
]


@pytest.mark.parametrize(
    ("changes", "field", "fragment"), TOP_LEVEL + OPERATION + TENSORS + SHAPES + INSTANCES + TARGETS
)
def test_refusal(changed, changes, field, fragment):
    changes = {path: changed.DELETE if value == D else value for path, value in changes.items()}
    with pytest.raises(SpecError) as caught:
        spec_from_data(changed(changes))
    assert caught.value.field == field
    assert fragment in caught.value.problem
    message = str(caught.value)
    assert message.startswith(f"{field}: ")
    assert "\n" not in message
    assert len(message) < 400


def test_what_was_given_is_clipped(changed):
    with pytest.raises(SpecError) as caught:
        spec_from_data(changed({"name": "x" * 10_000}))
    assert len(str(caught.value)) < 250


def test_thousands_of_unknown_fields_are_not_all_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is like each of them takes longest to find out; a spec of 1 MiB has room for 60 000."""
    asked: list[str] = []
    monkeypatch.setattr(parse, "suggest", lambda name, allowed: asked.append(name) or "")
    found = parse.check_data({f"field{i}": 1 for i in range(5000)})
    assert isinstance(found, list) and len(found) == len(asked) == 100
