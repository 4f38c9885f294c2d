"""Weights from a histogram file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from small_libraries import spec_data

from dietcode.errors import SpecError
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
        ('{"T": 9}', "for 9; allowed: 1 to 8"),
        ('{"T": 3, "x": "' + "x" * 70_000 + '"}', "line 2: longer than 64 KiB"),
    ],
)
def test_a_line_that_is_refused(tmp_path: Path, line: str, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_spec(write(tmp_path, '{"T": 1}', line))
    assert str(caught.value).startswith("shape_vars.T.weights: ") and says in str(caught.value)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


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
