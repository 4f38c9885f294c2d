"""The command line as a program: exit status, one line of error, JSON on stdout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_libraries import ROOT, SAFE_ERROR, built, copy_of, spec_data


def dietcode(*arguments: object, timeout_secs: float = 60.0, **env: str) -> subprocess.CompletedProcess[str]:
    """Run ``python -m dietcode`` in a new process."""
    return subprocess.run(
        [sys.executable, "-m", "dietcode", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout_secs,
        cwd=ROOT,
        env=os.environ | env,
        check=False,
    )


def refused(done: subprocess.CompletedProcess[str], status: int, *words: str) -> None:
    """Exactly one line on stderr that holds all of `words`, and nothing on stdout."""
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    assert done.stderr.startswith("dietcode: ") and done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr) < 600, done.stderr
    assert all(word in done.stderr for word in words), done.stderr
    assert done.stdout == ""


def write(path: Path, data: Any) -> Path:
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


BAD_SPECS: dict[str, tuple[Any, list[str]]] = {
    "malformed": ("name: [unclosed\nop: {", ["spec.yaml:2:3: expected"]),
    "not a mapping": ("- 1\n- 2\n", ["mapping"]),
    "empty": ("", ["empty"]),
    "binary": ("\x00\x01\x02", []),
    "python tag": ("!!python/object/apply:os.system ['touch /tmp/dietcode-was-here']", ["tag"]),
    "an alias": ("name: &a x\nop: *a\n", ["anchors and aliases"]),
    "unknown field": (spec_data() | {"shape_variables": {}}, ["shape_variables", "allowed"]),
    "unknown nested field": (spec_data(budget={"trials": 3, "second": 1}), ["budget", "second"]),
    "reversed range": (spec_data(shape_vars={"T": {"min": 9, "max": 3}}), ["shape_vars.T", "9", "3"]),
    "empty range": (spec_data(shape_vars={"T": {"values": []}}), ["shape_vars.T"]),
    "zero": (spec_data(shape_vars={"T": {"min": 0, "max": 3}}), ["shape_vars.T.min", "0"]),
    "unbound dim": (spec_data(dims={"m": "16*T", "n": 64}), ["dims", "k"]),
    "unbound variable": (spec_data(dims={"m": "16*U", "n": 64, "k": 48}), ["dims.m", "U"]),
    "code in a dim": (
        spec_data(dims={"m": "__import__('os').system('true')*T", "n": 64, "k": 48}),
        ["dims.m"],
    ),
    "a power in a dim": (spec_data(dims={"m": "9**9**9**T", "n": 64, "k": 48}), ["dims.m"]),
    "a path in the name": (spec_data("../../etc/passwd"), ["name", "allowed"]),
    "a dtype": (
        spec_data(tensors={"X": {"dims": "mk", "dtype": "float31"}, "W": {"dims": "nk", "dtype": "float32"}}),
        ["tensors.X.dtype", "float31"],
    ),
    "an epilogue": (
        spec_data(op={"einsum": "mk,nk->mn", "epilogue": ["softmax"]}),
        ["op.epilogue", "softmax"],
    ),
    "no number": (spec_data(budget={"trials": "many", "seconds": 1}), ["budget.trials", "many"]),
    "a processor": (spec_data(target={"kind": "llvm", "mcpu": "no-such-cpu"}), ["mcpu", "no-such-cpu"]),
    "a target": (spec_data(target={"kind": "abacus"}), ["target", "abacus"]),
}


@pytest.mark.parametrize("case", BAD_SPECS)
def test_a_bad_spec_is_refused_before_anything_happens(
    case: str, tmp_path: Path, own_cache: Path, inside: Any
) -> None:
    data, words = BAD_SPECS[case]
    spec = write(tmp_path / "spec.yaml", data)
    call = dietcode if case == "malformed" else inside
    done = call("tune", spec, "-o", tmp_path / "lib")
    # A target that is well written, but unknown to this compiler, is no fault of the request's form.
    refused(done, 1 if case == "a processor" else 2, *words)
    assert [p.name for p in tmp_path.iterdir()] == ["spec.yaml"]
    assert not list(own_cache.rglob("*.jsonl"))
    assert not Path("/tmp/dietcode-was-here").exists()


def test_a_spec_of_ten_megabytes(tmp_path: Path) -> None:
    refused(
        dietcode("tune", write(tmp_path / "spec.yaml", "#" * (10 << 20)), "-o", tmp_path / "lib"), 2, "1 MiB"
    )
    assert not (tmp_path / "lib").exists()


def test_specs_that_cannot_be_read(tmp_path: Path) -> None:
    refused(
        dietcode("tune", tmp_path / "missing.yaml", "-o", tmp_path / "lib"), 2, "missing.yaml", "No such file"
    )
    refused(dietcode("tune", tmp_path, "-o", tmp_path / "lib"), 2, "directory")
    assert list(tmp_path.iterdir()) == []


def test_output_places_that_cannot_be_written(tmp_path: Path, inside: Any) -> None:
    spec = write(tmp_path / "spec.json", spec_data())
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    refused(inside("tune", spec, "-o", spec / "lib"), 1, str(spec / "lib"), "Not a directory")
    refused(inside("tune", spec, "-o", spec), 1, "is a file")
    refused(inside("tune", spec, "-o", tmp_path / "full"), 1, "holds files that are no library")
    refused(inside("tune", spec, "-o", "/proc/nothing/lib"), 1, "/proc/nothing/lib")
    refused(inside("tune", spec, "-o", tmp_path / ("n" * 300)), 1, "name too long")
    assert (tmp_path / "full" / "thesis.txt").read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["full", "spec.json"]


def test_a_cache_that_cannot_be_written(tmp_path: Path, inside: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = write(tmp_path / "spec.json", spec_data())
    monkeypatch.setenv("DIETCODE_CACHE", str(spec))
    refused(inside("tune", spec, "-o", tmp_path / "lib"), 1, "DIETCODE_CACHE")


@pytest.mark.parametrize(
    "arguments",
    [
        ["frobnicate"],
        ["tune"],
        ["tune", "spec.yaml"],
        ["tune", "spec.yaml", "-o"],
        ["tune", "--frobnicate"],
        ["tune", "spec.yaml", "more", "-o", "lib"],
        ["--frobnicate"],
        ["bench", "lib", "--rounds", "0"],
        ["bench", "lib", "--rounds", "many"],
        ["bench", "lib", "--threads", "0"],
        ["inspect"],
        ["records", "frobnicate"],
        ["records", "export", "file.jsonl"],
    ],
    ids=" ".join,
)
def test_unknown_commands_and_options(arguments: list[str], inside: Any) -> None:
    call = dietcode if arguments == ["frobnicate"] else inside
    refused(call(*arguments), 2, "dietcode --help")


@pytest.mark.parametrize("arguments", [[], ["records"]], ids=["dietcode", "dietcode records"])
def test_no_command_shows_the_help(arguments: list[str]) -> None:
    done = dietcode(*arguments)
    text = done.stdout + done.stderr
    assert done.returncode in {0, 2} and "Usage:" in text and "\n" in text.strip(), done
    assert "Traceback" not in text


def test_force_and_records_exclude_each_other(tmp_path: Path) -> None:
    spec = write(tmp_path / "spec.json", spec_data())
    done = dietcode("tune", spec, "-o", tmp_path / "lib", "--force", "--records", tmp_path / "r.jsonl")
    refused(done, 2, "--force", "--records")


def test_version_and_help(inside: Any) -> None:
    done = dietcode("--version")
    assert (done.returncode == 0 and done.stdout.startswith("dietcode 0")) or done.stdout.startswith(
        "dietcode "
    )
    done = dietcode("--help")
    assert done.returncode == 0 and done.stderr == ""
    for command in ("tune", "inspect", "bench", "targets", "records"):
        assert command in done.stdout
    for command in (
        ["tune"],
        ["inspect"],
        ["bench"],
        ["targets"],
        ["records"],
        ["records", "export"],
        ["records", "import"],
    ):
        done = inside(*command, "--help")
        assert done.returncode == 0 and "Usage:" in done.stdout and done.stderr == "", command


@pytest.mark.parametrize("arguments", [["--help"], ["tune", "--help"], ["inspect", "LIB"]], ids=" ".join)
def test_a_command_that_needs_no_compiler_imports_none(arguments: list[str]) -> None:
    arguments = [str(built("dense")) if a == "LIB" else a for a in arguments]
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "dietcode", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "typer" in imported, "the parsing of importtime works"
    assert not imported & {"tvm", "torch", "sklearn", "scipy", "xgboost"}
    assert "--help" not in arguments or not imported & {"numpy", "yaml", "tvm_ffi"}


def test_the_installed_command_is_the_same_program() -> None:
    command = Path(sys.executable).with_name("dietcode")
    assert command.is_file(), "pip installs the console script beside python"
    done = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == dietcode("--version").stdout


def test_inspect_a_library() -> None:
    done = dietcode("inspect", built("dense"))
    assert done.returncode == 0 and done.stderr == ""
    for word in ("dense", "mk,nk->mn", "Categories", "Dispatch table", "library.so", "T0 = 4x32"):
        assert word in done.stdout, word


def test_inspect_as_json() -> None:
    done = dietcode("inspect", built("order"), "--json")
    assert done.returncode == 0 and done.stderr == ""
    facts = json.loads(done.stdout)
    assert set(facts) == {"manifest", "dispatch", "report"}
    assert facts["manifest"]["name"] == "order" and len(facts["dispatch"]["categories"]) == 2


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: (folder / "library.so").write_bytes(b"x"), ["library.so", "altered"]),
        (lambda folder: (folder / "report.json").unlink(), ["report.json", "No such file"]),
        (lambda folder: (folder / "manifest.json").write_text("{"), ["manifest.json", "not JSON"]),
        (lambda folder: (folder / "manifest.json").write_text('{"format": "other/9"}'), ["other/9"]),
    ],
    ids=["altered", "missing", "no json", "format"],
)
def test_a_bad_folder(tmp_path: Path, inside: Any, spoil: Callable[[Path], Any], words: list[str]) -> None:
    folder = copy_of("dense", tmp_path / "lib")
    spoil(folder)
    refused(inside("inspect", folder), 1, *words)
    refused(inside("inspect", folder, "--json"), 1, *words)
    refused(inside("bench", folder, "--json"), 1, *words)


def test_no_folder(tmp_path: Path, inside: Any) -> None:
    refused(inside("inspect", tmp_path / "nowhere"), 1, "no such folder")
    refused(inside("bench", tmp_path), 1, "is this a library folder?")


@pytest.mark.long
def test_bench_as_json(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    done = dietcode(
        "bench", built("rows"), "--vs", "numpy", "--instances", 2, "--rounds", 1, "--json", "-o", out
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    records = json.loads(done.stdout)
    assert records == json.loads(out.read_text()) and len(records) == 2
    for record in records:
        assert {
            "shape_vars",
            "category",
            "padding_ratio",
            "predicted_gflops",
            "measured_gflops",
            "vendor",
            "vendor_gflops",
            "max_rel_error",
        } <= set(record)
        assert record["max_rel_error"] <= SAFE_ERROR and record["vendor"] == "numpy"


def test_bench_as_a_table_and_its_errors(tmp_path: Path, inside: Any) -> None:
    done = inside("bench", built("dense"), "--instances", 2, "--rounds", 1)
    assert done.returncode == 0 and len(done.stdout.splitlines()[0].split()) > 5
    if "disturbed:" in done.stdout:  # other tests run beside this one
        assert "2 instances" in done.stdout
    else:
        assert "of the vendor in geometric mean" in done.stdout and "of the speed alone" in done.stdout
        assert len(done.stdout.splitlines()) == 5
    done = inside("bench", built("dense"), "--vs", "cublas", "--json")
    refused(done, 2, "cublas", "numpy, torch")
    done = inside(
        "bench", built("dense"), "--instances", 1, "--rounds", 1, "--json", "-o", tmp_path / "no" / "file"
    )
    refused(done, 1, "cannot be written")


def test_targets_as_json(inside: Any) -> None:
    done = inside("targets", "--json")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    facts = {row["kind"]: row for row in json.loads(done.stdout)}
    assert facts["llvm"]["build"] is True and facts["llvm"]["measure"] is True and facts["llvm"]["mcpu"]
    assert facts["cuda"]["measure"] is False and facts["cuda"]["reason"]
    assert inside("targets").stdout.count(facts["llvm"]["mcpu"]) == 1


def test_records_errors(tmp_path: Path, inside: Any) -> None:
    spec = write(tmp_path / "spec.json", spec_data())
    refused(inside("records", "export", tmp_path / "r.jsonl", "--spec", spec), 1, "has measured nothing")
    refused(inside("records", "export", tmp_path / "r.csv", "--spec", spec), 1, ".jsonl")
    refused(
        inside("records", "export", tmp_path / "r.jsonl", "--spec", tmp_path / "no.yaml"), 2, "No such file"
    )
    refused(inside("records", "import", tmp_path / "no.jsonl"), 1, "no.jsonl")
    for text, words in (
        ("", ["empty"]),
        ("not json\n", ["line 1"]),
        ("[1]\n", ["line 1"]),
        ('{"format": "dietcode-records/9"}\n', ["dietcode-records/9"]),
        ('{"format": "dietcode-records/1", "workload": "w", "device": {"id": "../../x"}}\n', ["device"]),
    ):
        refused(inside("records", "import", write(tmp_path / "bad.jsonl", text)), 1, *words)
    (tmp_path / "bad.jsonl.zst").write_bytes(b"no zstandard frame")
    refused(inside("records", "import", tmp_path / "bad.jsonl.zst"), 1, "bad.jsonl.zst")
    done = inside("tune", spec, "-o", tmp_path / "lib", "--records", write(tmp_path / "bad.jsonl", "{}\n"))
    refused(done, 1, "bad.jsonl")
    assert not (tmp_path / "lib").exists() and not (tmp_path / "r.jsonl").exists()


def test_a_reader_that_goes_away() -> None:
    """``dietcode inspect … | head -1`` is no error worth a traceback."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dietcode", "inspect", str(built("rows")), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) in {0, 1} and "Traceback" not in errors and "Exception ignored" not in errors, (
        errors
    )
