"""From files and text to a spec: what is read, and that nothing hostile gets through or takes long."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import yaml

from dietcode.errors import RequestError, SpecError
from dietcode.workload.parse import load_spec, parse_spec, spec_from_data
from dietcode.workload.spec import RangeVariable

EXAMPLE = Path(__file__).parents[2] / "examples" / "bert-dense.yaml"
TEXT = EXAMPLE.read_text()


def refusal(text: str | bytes) -> str:
    with pytest.raises(SpecError) as caught:
        parse_spec(text)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 450
    return message


def test_the_example():
    spec = load_spec(EXAMPLE)
    assert spec.name == "bert-dense"
    assert spec.variables == ("T",)
    assert spec.constants == ("W",)
    assert spec.operand_indices == {"X": "mk", "W": "nk"}
    assert spec.shape_vars["T"] == RangeVariable(min=1, max=128)
    assert str(spec.dims_parsed["m"]) == "16*T"
    assert (spec.budget.trials, spec.budget.seconds) == (128, 300)


def test_yaml_and_json_give_the_same_spec():
    assert parse_spec(json.dumps(yaml.safe_load(TEXT))) == parse_spec(TEXT) == parse_spec(TEXT.encode())
    assert parse_spec(b"\xef\xbb\xbf" + TEXT.encode()) == parse_spec(TEXT)


def test_defaults(changed):
    left_out = dict.fromkeys(["accumulate", "target", "budget", "objective"], changed.DELETE)
    spec = spec_from_data(changed({**left_out, "op.epilogue": changed.DELETE}))
    assert spec == spec_from_data(changed())
    assert spec.objective.weight is None
    assert not spec.objective.reproducible
    assert not spec.tensors["X"].constant


FULL = {
    "op.epilogue": [
        "bias",
        "relu",
        "silu",
        {"gelu": "erf"},
        {"gelu": "tanh"},
        "tanh",
        "sigmoid",
        "hardswish",
        "hardsigmoid",
        {"clip": [0, 6]},
        {"residual": "R"},
        {"scale": 2},
    ],
    "op.einsum": " mk, nk -> mn ",
    "shape_vars": {
        "T": {"min": 1, "max": 128, "weights": {"1": 0.5, 7: 1}},
        "B": {"values": [4, 1, 2], "weights": {4: 1}},
    },
    "dims": {"m": "(B+1)*T*2", "n": "2304", "k": "3*256"},
    "target": {"kind": "llvm", "mcpu": "skylake-avx512", "mattr": ["+avx2", "-avx512f"], "num_cores": 2},
    "objective": {
        "max_loss": 0.1,
        "max_kernels": 8,
        "max_bytes": 100_000,
        "weight": "flops",
        "reproducible": True,
    },
}


def test_to_json_is_canonical_and_parses_to_an_equal_spec(changed):
    spec = spec_from_data(changed(FULL))
    plain = spec.to_json()
    assert parse_spec(json.dumps(plain)) == spec
    assert parse_spec(json.dumps(plain)).to_json() == plain
    assert plain["dims"] == {"m": "2*B*T + 2*T", "n": 2304, "k": 768}
    assert plain["op"]["einsum"] == "mk,nk->mn"
    assert plain["shape_vars"]["B"] == {"values": [1, 2, 4], "weights": {"4": 1.0}}
    assert spec.epilogue_tensors == {"bias": "n", "R": "mn"}
    assert spec.variables == ("T", "B")


@pytest.mark.parametrize(
    "target", ["nvidia/nvidia-a100", {"kind": "cuda", "arch": "sm_90a"}, {"kind": "llvm"}]
)
def test_targets_round_trip(changed, target):
    assert spec_from_data(changed({"target": target})).to_json()["target"] == target


def test_joint_instances_round_trip(changed):
    data = changed({"instances": [{"T": 3, "weight": 2}, {"T": 5}]})
    spec = spec_from_data(data)
    assert spec.to_json()["instances"] == [{"T": 3, "weight": 2.0}, {"T": 5, "weight": 1.0}]
    assert parse_spec(json.dumps(spec.to_json())) == spec


def test_a_spec_is_frozen(changed):
    spec = spec_from_data(changed())
    with pytest.raises(ValueError, match="frozen"):
        spec.name = "other"


def test_numbers_with_an_exponent_are_numbers(changed):
    assert parse_spec(TEXT.replace("seconds: 300", "seconds: 3e2")).budget.seconds == 300


LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        (LAUGHS, "anchors and aliases are refused"),
        ("a: &a [*a]", "anchors and aliases are refused"),
        ("a: *b", "anchors and aliases are refused"),
        ("a: !!python/object/apply:os.system [x]", "tag"),
        ("a: !!str x", "tag"),
        ("a: ! x", "tag"),
        ("<<: {a: 1}", "merge key"),
        (TEXT.replace("n: 2304", "n: 2304, n: 5"), "'n' is given twice"),
        (TEXT + "name: again\n", "'name' is given twice"),
        ('{"name": "a", "name": "b"}', "given twice"),
        (TEXT.replace("T: {", "on: {"), "'on' is a boolean in YAML; write \"on\" in quotes"),
        (TEXT.replace("name: bert-dense", "name: no"), "'no' is a boolean in YAML"),
        ("a: 2020-01-01", "a date"),
        ("a: 010", "a number"),
        ("a: 1:30", "a number"),
        ("a: 1_000", "a number"),
        ("~: 1", "write it in quotes"),
        ("? [a]\n: 1", "neither a name nor an integer"),
        ("", "the document is empty"),
        ("# nothing", "the document is empty"),
        ("[1, 2]", "allowed: a mapping"),
        ("3", "allowed: a mapping"),
        ("a: 1\n---\nb: 2", "another document"),
        ("a: [", "line 1"),
        ('{"a": 1,', "neither YAML nor JSON"),
        ("\0", "neither YAML nor JSON"),
        ('a: "\\UFFFFFFFF"', "neither YAML nor JSON"),
        (b"\xff\xfea", "not UTF-8"),
        ("\ud800", "not UTF-8"),
        ('{"a": NaN}', "finite"),
        ('{"a": -Infinity}', "finite"),
        ('{"a": 1e999}', "finite"),
        ("a: .nan", "a: given nan; allowed: finite"),
        ("a: [1, -.inf]", "a.1: given -inf; allowed: finite"),
        ("a: " + "9" * 6000, "a number"),
        ('{"a": ' + "9" * 6000 + "}", "at most 20 digits"),
        ('"' + "x" * 900 + '": 1', "unknown field"),
        ("x" * 5000 + ": 1", "line 1"),
        ('"a\\nb": 1', "unknown field"),
    ],
)
def test_hostile_or_broken_text(text, fragment):
    assert fragment in refusal(text)


DEEP = ["[" * 100_000, "{" * 100_000, '{"a":' * 100_000, "- " * 100_000, "? " * 100_000, "{a: " + "[" * 60]


@pytest.mark.parametrize("text", DEEP, ids=[repr(text[:5]) for text in DEEP])
def test_deep_nesting_is_refused_fast(text):
    start = time.thread_time()
    assert "nested too deep; allowed: 50 levels" in refusal(text)
    assert time.thread_time() - start < 5


def test_nested_data_is_refused():
    data: object = 1
    for _ in range(5000):
        data = [data]
    with pytest.raises(SpecError, match="nested too deep"):
        spec_from_data({"name": data})


def test_a_large_spec_is_refused_without_being_read(tmp_path):
    path = tmp_path / "large.yaml"
    path.write_bytes(b"a: [" + b"1, " * 3_500_000 + b"]")
    start = time.thread_time()
    with pytest.raises(SpecError, match="larger than 1 MiB"):
        load_spec(path)
    assert time.thread_time() - start < 1
    assert "larger than 1 MiB" in refusal("é" * 600_000)


def test_a_long_list_of_values_is_accepted(changed):
    text = json.dumps(changed({"shape_vars.T": {"values": list(range(1, 50_001))}}))
    assert len(parse_spec(text).shape_vars["T"].values) == 50_000


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(RequestError, match="No such file"):
        load_spec(tmp_path / "none.yaml")
    with pytest.raises(SpecError, match="a directory; allowed: a YAML or JSON file"):
        load_spec(tmp_path)
    with pytest.raises(RequestError, match="null byte"):
        load_spec("a\0b")
    with pytest.raises(SpecError, match="a directory"):
        load_spec("/")
    assert issubclass(SpecError, RequestError)


def test_paths_that_cannot_be_followed(tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(RequestError, match="cannot read the spec: Too many levels"):
        load_spec(loop)
    (tmp_path / "file").write_text(TEXT)
    with pytest.raises(RequestError, match="cannot read the spec: Not a directory"):
        load_spec(tmp_path / "file" / "spec.yaml")
