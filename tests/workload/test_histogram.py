"""Weights from a histogram file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from small_libraries import spec_data

from dietcode.errors import SpecError
from dietcode.workload.histogram import MAX_KEPT
from dietcode.workload.instances import make_instances
from dietcode.workload.parse import load_spec, spec_from_data


def write(folder: Path, *lines: str, **variable: Any) -> Path:
    (folder / "seen.jsonl").write_text("".join(f"{line}\n" for line in lines))
    shape_vars = {"T": {"min": 1, "max": 8} | variable | {"weights": "seen.jsonl"}}
    (folder / "spec.json").write_text(json.dumps(spec_data(shape_vars=shape_vars)))
    return folder / "spec.json"


def test_counts_become_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(
        tmp_path,
        '{"T": 3, "count": 2}',
        "",
        '{"T": 8}',
        '{"count": 1, "T": 3, "B": 7}',
        '{"T": 2, "count": 0}',
    )
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # the file is looked for beside the spec
    spec = load_spec(path)
    assert spec.shape_vars["T"].weights == {2: 0, 3: 3, 8: 1}
    instances = make_instances(spec)
    assert dict(zip(instances.bindings[:, 0].tolist(), instances.weights.tolist(), strict=True))[3] == 0.75
    assert spec_from_data(spec.to_json()) == spec, "the weights travel with the spec, not the file's name"


def test_a_large_log_is_read_line_by_line(tmp_path: Path) -> None:
    path = write(tmp_path, *(json.dumps({"T": n % 8 + 1, "count": 2}) for n in range(100_000)))
    assert load_spec(path).shape_vars["T"].weights == dict.fromkeys(range(1, 9), 25_000)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("T 3", "line 2: not JSON"),
        ("[" * 50_000, "line 2: not JSON"),
        ("3", "line 2: says nothing of T"),
        ('{"M": 3}', "line 2: says nothing of T"),
        ('{"T": 0}', "line 2: given 0"),
        ('{"T": 3.5}', "line 2: given 3.5"),
        ('{"T": true}', "line 2: given True"),
        ('{"T": 3, "count": -1}', "line 2: given -1"),
        ('{"T": 3, "count": "x"}', "line 2: given 'x'"),
        ('{"T": 9}', "line 2: given 9 for 'T'; allowed: 1 to 8"),
        ('{"T": 3, "x": "' + "x" * 70_000 + '"}', "line 2: longer than 64 KiB"),
    ],
)
def test_a_line_that_is_refused(tmp_path: Path, line: str, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_spec(write(tmp_path, '{"T": 1}', line))
    assert caught.value.field == "shape_vars.T.weights" and says in caught.value.problem
    assert str(caught.value).startswith(f"{str(tmp_path)[:80]}") and ": shape_vars.T.weights: " in str(
        caught.value
    )
    assert "\n" not in str(caught.value) and len(caught.value.problem) < 380


def test_files_that_are_none(tmp_path: Path) -> None:
    path = write(tmp_path)
    with pytest.raises(SpecError, match="holds no shapes"):
        load_spec(path)
    (tmp_path / "seen.jsonl").unlink()
    with pytest.raises(SpecError, match=r"No such file.*allowed: a mapping of value: weight, or"):
        load_spec(path)
    (tmp_path / "seen.jsonl").mkdir()
    with pytest.raises(SpecError, match="Is a directory"):
        load_spec(path)


def test_a_spec_that_is_no_file_names_no_files(tmp_path: Path) -> None:
    """As one that a client sends to a server."""
    data = json.loads(write(tmp_path, '{"T": 1}').read_text())
    data["shape_vars"]["T"]["weights"] = str(tmp_path / "seen.jsonl")
    with pytest.raises(SpecError, match="only in a spec that is a file itself"):
        spec_from_data(data)


TWO = {
    "shape_vars": {"B": {"min": 1, "max": 64}, "T": {"min": 1, "max": 4096}},
    "tensors": {"P": {"dims": "bmk", "dtype": "float32"}, "V": {"dims": "bkn", "dtype": "float32"}},
    "op": {"einsum": "bmk,bkn->bmn"},
    "dims": {"b": "B", "m": "T", "n": 32, "k": "T"},
    "instances": "log.jsonl",
}


def write_joint(folder: Path, lines: list[Any], **changes: Any) -> Path:
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    (folder / "log.jsonl").write_text("".join(f"{text}\n" for text in texts))
    (folder / "spec.json").write_text(json.dumps(spec_data(**TWO | changes)))
    return folder / "spec.json"


def test_whole_shapes_become_joint_instances(tmp_path: Path) -> None:
    seen = [{"B": 3, "T": 77, "count": 2}, {"T": 9, "B": 64}, {"B": 3, "T": 77}, {"B": 1, "T": 1, "count": 0}]
    spec = load_spec(write_joint(tmp_path, seen))
    found = make_instances(spec)
    assert found.bindings.tolist() == [[1, 1], [3, 77], [64, 9]] and found.exhaustive
    assert found.weights.tolist() == [0, 0.75, 0.25]
    assert spec_from_data(spec.to_json()) == spec


def test_a_log_of_very_many_shapes_is_thinned(tmp_path: Path) -> None:
    lines = [{"B": n % 64 + 1, "T": n // 64 + 1, "count": 1 + 1000 * (n == 70)} for n in range(20_000)]
    spec = load_spec(write_joint(tmp_path, lines))
    assert len(spec.instances) == MAX_KEPT and len(spec.model_dump_json()) < 1 << 20
    weight = {tuple(instance.bindings.values()): instance.weight for instance in spec.instances}
    assert weight[7, 2] == 1001, "a frequent shape keeps its count"
    assert sum(weight.values()) == pytest.approx(21_000, rel=0.02)
    assert {1, 64} <= {b for b, _ in weight} and {1, 313} <= {t for _, t in weight}
    backwards = load_spec(write_joint(tmp_path, lines[::-1]))
    assert backwards == spec, "the order of the lines does not matter"
    assert len(make_instances(spec)) == 4096 and not make_instances(spec).exhaustive


def test_weights_of_very_many_values_are_thinned(tmp_path: Path) -> None:
    path = write(tmp_path, *(json.dumps({"T": n + 1}) for n in range(120_000)), max=10**6)
    weights = load_spec(path).shape_vars["T"].weights
    assert weights is not None and len(weights) == MAX_KEPT and min(weights) == 1 and max(weights) == 120_000


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({"T": 3}, 'line 2: says nothing of B; allowed: {"B": 37, "T": 37, "count": 12}'),
        ([1, 2], "line 2: says nothing of B"),
        ({"B": 65, "T": 3}, "line 2: given 65 for 'B'; allowed: 1 to 64"),
        ({"B": 5, "T": 0}, "line 2: given 0"),
        ({"B": 5, "T": 3, "count": 2**31}, "line 2: given 2147483648 as count"),
        ("B=3", "line 2: not JSON"),
    ],
)
def test_a_shape_that_is_refused(tmp_path: Path, line: Any, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_spec(write_joint(tmp_path, [{"B": 1, "T": 1}, line]))
    assert caught.value.field == "instances" and says in caught.value.problem
    assert str(caught.value).startswith(f"{str(tmp_path)[:80]}") and ": instances: " in str(caught.value)
    assert "\n" not in str(caught.value) and len(caught.value.problem) < 380


def test_joint_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"instances: .*holds no shapes"):
        load_spec(write_joint(tmp_path, []))
    (tmp_path / "log.jsonl").unlink()
    with pytest.raises(SpecError, match=r"instances: .*No such file.*allowed: a list of bindings, or a JSON"):
        load_spec(tmp_path / "spec.json")
    with pytest.raises(
        SpecError, match=r"instances: given 'log.jsonl'.*only in a spec that is a file itself"
    ):
        spec_from_data(json.loads((tmp_path / "spec.json").read_text()))
    both = TWO["shape_vars"] | {"B": {"values": [1, 2], "weights": {1: 1}}}
    with pytest.raises(SpecError, match=r"shape_vars.B.weights: instances are given"):
        load_spec(write_joint(tmp_path, [{"B": 1, "T": 1}], shape_vars=both))
    with pytest.raises(SpecError, match=r"line 1: given 3 for 'B'; allowed: one of \[1, 2\]"):
        load_spec(write_joint(tmp_path, [{"B": 3, "T": 1}], shape_vars=both))
