"""``dietcode init`` and ``dietcode check``, and a budget on the command line."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from small_libraries import spec_data

from dietcode.cli.budget import with_budget
from dietcode.cli.init import spec_text
from dietcode.errors import RequestError
from dietcode.workload.parse import load_spec, parse_spec, spec_from_data
from dietcode.workload.spec import Spec

WRONG = """\
name: Dense
op: {einsum: "mk,nk->mn"}
tensors:
  X: {dims: mk, dtype: float32}
  W: {dims: nk, dtype: float32, konstant: true}
shape_vars:
  T: {min: 0, max: 8}
dims: {m: 16*T, n: 32, k: 24}
"""


@pytest.mark.parametrize("options", [[], ["--conv2d"]], ids=["dense", "conv2d"])
def test_what_init_writes_check_accepts(tmp_path: Path, inside: Any, options: list[str]) -> None:
    path = tmp_path / "my-layer.yaml"
    done = inside("init", path, *options)
    assert (done.returncode, done.stdout) == (0, f"{path}: written; next: dietcode check {path}\n")
    done = inside("check", path)
    assert done.returncode == 0 and done.stdout.startswith(f"{path}: right\nname       my-layer\n"), done
    assert (load_spec(path).op.conv2d is not None) == bool(options)


@pytest.mark.parametrize("conv2d", [False, True])
def test_init_names_every_field_with_its_default(conv2d: bool) -> None:
    text = spec_text("x.yaml", conv2d)
    assert all(re.search(rf"^(# )?{field}: ?", text, re.MULTILINE) for field in Spec.model_fields)
    without = parse_spec(text)
    optional = [
        line[2:] for line in text.splitlines() if re.match(r"# (output|accumulate|target|budget|obj)", line)
    ]
    assert len(optional) == 5 and parse_spec("\n".join([text, *optional])) == without
    (instances,) = re.findall(r"^# (instances: .*)$", text, re.MULTILINE)
    assert len(parse_spec(f"{text}\n{instances}").instances) == 2


@pytest.mark.parametrize("stem", ["on", "true", "7", "My Layer", "1e3", "a..b", ".hidden", "ä"])
def test_a_file_of_any_name_gives_a_valid_spec(stem: str) -> None:
    assert re.fullmatch("[a-z-]+", parse_spec(spec_text(f"{stem}.yaml", conv2d=False)).name)


def test_init_overwrites_nothing_unless_forced(tmp_path: Path, inside: Any) -> None:
    path = tmp_path / "w.yaml"
    path.write_text("mine")
    done = inside("init", path)
    assert (
        done.returncode == 2 and done.stderr == f"dietcode: {path}: is there already; --force overwrites it\n"
    )
    assert path.read_text() == "mine"
    assert inside("init", path, "--force").returncode == 0 and load_spec(path).name == "w"
    done = inside("init", tmp_path / "no" / "w.yaml")
    assert done.returncode == 1 and "cannot be written: No such file" in done.stderr
    assert yaml.safe_load(inside("init", "-").stdout)["name"] == "workload"


def test_check_tells_all_problems_with_their_lines(tmp_path: Path, inside: Any) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(WRONG)
    done = inside("check", path)
    assert done.returncode == 2 and done.stderr == f"dietcode: {path}: 3 problems\n"
    found = [line.removeprefix(f"{path}:").split(": ")[:2] for line in done.stdout.splitlines()]
    assert found == [["5:33", "tensors.W.konstant"], ["1:7", "name"], ["7:12", "shape_vars.T.min"]]
    facts = json.loads(inside("check", path, "--json").stdout)
    assert [one["line"] for one in facts["problems"]] == [5, 1, 7] and facts["source"] == str(path)
    done = inside("tune", path, "-o", tmp_path / "lib")
    assert done.returncode == 2 and done.stderr.startswith(
        f"dietcode: {path}:5:33: tensors.W.konstant: unknown"
    )
    assert done.stderr.endswith(f"; 2 more: dietcode check {path}\n") and done.stderr.count("\n") == 1


def test_check_tells_the_dtype_of_each_operand(tmp_path: Path, inside: Any) -> None:
    data = spec_data()
    for tensor in data["tensors"].values():
        tensor["dtype"] = "float33"
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(data))
    fields = [one["field"] for one in json.loads(inside("check", path, "--json").stdout)["problems"]]
    assert fields == ["tensors.X.dtype", "tensors.W.dtype"]


def test_check_of_standard_input(inside: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def given(text: bytes) -> Any:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        return inside("check", "-")

    assert given(b"name: [").stdout.startswith("<stdin>:1:8: ")
    assert given(b"a: " + b"1" * (1 << 20)).stdout.startswith("<stdin>:1:1: larger than 1 MiB")
    done = given(json.dumps(spec_data()).encode())
    assert done.returncode == 0 and done.stdout.startswith("<stdin>: right\nname       dense\n")


def test_check_says_what_a_spec_is(tmp_path: Path, inside: Any) -> None:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(spec_data(budget={"trials": 7, "seconds": 9})))
    done = inside("check", path)
    shown = dict(line.split(None, 1) for line in done.stdout.splitlines()[1:])
    facts = json.loads(inside("check", path, "--json").stdout)
    assert shown["variables"].startswith("T (") and shown["budget"] == "7 trials, 9 s"
    assert shown["instances"].startswith(f"{facts['num_instances']} to tune for")
    assert f"{facts['flops']:.4g} FLOPs" in shown["largest"] and facts["problems"] == []
    assert facts["target"]["mcpu"] in shown["target"]


def test_check_looks_the_target_up(tmp_path: Path, inside: Any) -> None:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(spec_data(target={"kind": "cuda", "arch": "sm_90"})))
    done = inside("check", path)
    assert done.returncode == 0 and "sm_90" in done.stdout, "also where there is no such device"
    path.write_text(json.dumps(spec_data(target={"kind": "llvm", "mcpu": "no-such-cpu"})))
    done = inside("check", path)
    assert done.returncode == 1 and f"{path}: target.mcpu: 'no-such-cpu'" in done.stderr


def test_a_budget_goes_over_the_spec() -> None:
    spec = spec_from_data(spec_data(budget={"trials": 7, "seconds": 9}))
    assert with_budget(spec, None, None) is spec
    changed = with_budget(spec, 3, None)
    assert (changed.budget.trials, changed.budget.seconds) == (3, 9.0)
    assert with_budget(spec, None, 1.5).to_json() == spec.to_json() | {
        "budget": {"trials": 7, "seconds": 1.5}
    }
    with pytest.raises(RequestError, match=r"^--trials: given 0; allowed: at least 1$"):
        with_budget(spec, 0, None)
    with pytest.raises(RequestError, match=r"^--seconds: given nan; allowed: "):
        with_budget(spec, None, float("nan"))


def test_a_budget_and_records_exclude_each_other(tmp_path: Path, inside: Any) -> None:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(spec_data()))
    done = inside("tune", path, "-o", tmp_path / "lib", "--records", tmp_path / "r.jsonl", "--trials", 3)
    assert done.returncode == 2 and "--records measures nothing; leave out --trials" in done.stderr


def test_output_may_be_left_out() -> None:
    data = spec_data()
    del data["output"]
    assert spec_from_data(data).output.model_dump() == {"name": "Y", "dtype": "float32"}
    assert spec_from_data(data | {"output": {"dtype": "float16"}}).output.name == "Y"
