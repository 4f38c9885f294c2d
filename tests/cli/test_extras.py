"""Every extra, left out one at a time, is asked for at each of its doors: one line, and what to install."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from partial_environments import declared_extras, run, without
from small_libraries import built, files_of, spec_data

from dietcode import extras
from dietcode.runtime.manifest import write_folder

CPU = """\
name: tiny
op: {einsum: "mk,nk->mn"}
tensors:
  X: {dims: mk, dtype: float32}
  W: {dims: nk, dtype: float32, constant: true}
output: {name: Y, dtype: float32}
shape_vars:
  T: {min: 1, max: 4}
dims: {m: T, n: 8, k: 4}
"""
# What is left out, what the message names, and what is typed in a folder with the files of `places`.
DOORS: tuple[tuple[str, str, str], ...] = (
    ("tune", "tune", "tune cpu.yaml -o lib"),
    ("tune", "tune", "targets"),
    ("tune", "tune", "reselect library --objective max_kernels=1 -o lib"),
    ("tune", "tune", "records export out.jsonl --spec cpu.yaml"),
    ("tune", "tune", "records import in.jsonl"),
    ("tune", "tune", "records import in.jsonl.zst --server http://127.0.0.1:1"),
    ("tune", "tune", "bench gelu --vs numpy"),
    ("tune", "server", "serve --port 0 --data-dir data"),
    ("tune", "server", "worker --data-dir data"),
    ("tune", "ray", "ray-node --address 127.0.0.1:1"),
    ("server", "server", "serve --port 0 --data-dir data"),
    ("server", "server", "worker --data-dir data"),
    ("server", "server", "db upgrade --data-dir data"),
    ("server", "server", "db backup out.db --data-dir data"),
    ("server", "server", "db restore out.db --data-dir data"),
    ("server", "server", "token create ann --data-dir data"),
    ("server", "server", "token list --data-dir data"),
    ("server", "server", "token revoke 0 --data-dir data"),
    ("server", "server", "key list --data-dir data"),
    ("server", "server", "key rotate --data-dir data"),
    ("server", "server", "key revoke sha256:0 --data-dir data"),
    ("postgres", "postgres", "db upgrade --data-dir data --database-url postgresql+psycopg://127.0.0.1:1/x"),
    ("postgres", "postgres", "token list --database-url postgresql+psycopg://127.0.0.1:1/x"),
    ("postgres", "postgres", "worker --data-dir data --database-url postgresql+psycopg://127.0.0.1:1/x"),
    ("ray", "ray", "tune cpu.yaml -o lib --ray 127.0.0.1:1"),
    ("ray", "ray", "ray-node --address 127.0.0.1:1"),
    ("ray", "ray", "worker --data-dir data DIETCODE_SERVE_ENGINE=ray DIETCODE_SERVE_RAY_ADDRESS=127.0.0.1:1"),
    ("cuda", "cuda", "tune gpu.yaml -o lib"),
    ("tune", "tune", "compile model.pt2 -o lib"),
    ("models", "models", "compile model.pt2 -o lib"),
    ("onnx", "onnx", "compile model.onnx -o lib"),
    ("bench", "bench", "bench library --vs torch"),
    ("bench", "bench", "worker --data-dir data DIETCODE_SERVE_COMPARE=torch"),
)
# Extras that no command of ours asks for: a clone's `make` installs them, or TVM's own programs use them.
WITHOUT_A_DOOR = {"rpc", "browser", "docs", "dev"}


def doors() -> list[Any]:
    """All as cases: the first of each extra is tried in `make test`."""
    firsts = {left_out: typed for left_out, _, typed in reversed(DOORS)}
    return [
        pytest.param(*door, marks=() if firsts[door[0]] == door[2] else pytest.mark.long) for door in DOORS
    ]


@pytest.fixture(scope="session")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """An interpreter for each extra that is left out, made once."""
    made: dict[str, Path] = {}

    def get(extra: str) -> Path:
        if extra not in made:
            made[extra] = without(extra, tmp_path_factory.mktemp("env") / (extra or "whole"))
        return made[extra]

    return get


@pytest.fixture(scope="session")
def gelu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library whose NumPy path needs SciPy."""
    folder = tmp_path_factory.mktemp("gelu") / "library"
    op = {"einsum": "mk,nk->mn", "epilogue": [{"gelu": "erf"}]}
    write_folder(folder, files_of(spec_data("gelu", op=op)))
    return folder


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gelu: Path) -> Path:
    """A folder with the files that are named above."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cpu.yaml").write_text(CPU)
    (tmp_path / "gpu.yaml").write_text(CPU + "target: {kind: cuda, arch: sm_90}\n")
    (tmp_path / "in.jsonl").write_text("{}\n")
    (tmp_path / "in.jsonl.zst").write_bytes(b"")
    shutil.copytree(built("dense"), tmp_path / "library")
    shutil.copytree(gelu, tmp_path / "gelu")
    return tmp_path


def parts(typed: str) -> tuple[list[str], dict[str, str]]:
    """Arguments, and the variables among them."""
    words = shlex.split(typed)
    variables = dict(word.split("=", 1) for word in words if word.startswith("DIETCODE_"))
    return [word for word in words if not word.startswith("DIETCODE_")], variables


@pytest.mark.thorough
@pytest.mark.parametrize(("left_out", "named", "typed"), doors())
def test_each_door_says_what_to_install(
    left_out: str, named: str, typed: str, environments: Callable[[str], Path], places: Path
) -> None:
    arguments, variables = parts(typed)
    before = {path.relative_to(places) for path in places.iterdir()}
    done = run(environments(left_out), "-m", "dietcode", *arguments, **variables)
    assert done.returncode in {1, 2} and done.stdout == "", done
    line = done.stderr.removesuffix("\n")
    assert "\n" not in line and line.startswith("dietcode: "), done.stderr
    needs = re.search(r" needs ([a-z0-9-]+(?:, [a-z0-9-]+)*): pip install (.*)$", line)
    assert needs, line
    missing, command = needs[1].split(", "), shlex.split(needs[2])
    declared = {one.name for one in declared_extras()[named]}
    assert set(missing) <= declared, line
    (what,) = [word for word in command if word != "-e"]
    folder, _, extra = what.partition("[")
    assert (Path(folder).is_dir(), extra) == (True, f"{named}]"), line  # never a name on the package index
    assert {path.relative_to(places) for path in places.iterdir()} - before <= {Path("data")}


@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize("left_out", ["", "server", "tune", "bench"])
def test_the_client_half_needs_no_extra(
    left_out: str, environments: Callable[[str], Path], places: Path
) -> None:
    """A library loads, is inspected and runs, whatever is left out."""
    use = (
        "import sys, dietcode, numpy as np; from dietcode.cli import main\n"
        "lib = dietcode.load('library'); w = lib.pack(W=np.ones((64, 48), 'float32'))\n"
        "print(float(lib(X=np.ones((32, 48), 'float32'), W=w).sum()))\n"
        "sys.argv = ['dietcode', 'inspect', 'library', '--json']; main()\n"
    )
    done = run(environments(left_out), "-c", use)
    assert done.returncode == 0 and done.stdout.startswith(f"{32 * 48 * 64:.1f}\n"), done


def test_the_package_that_tunes_says_so_in_python(environments: Callable[[str], Path]) -> None:
    use = "from dietcode.errors import RequestError\ntry:\n  import dietcode.tuner.tune\n"
    use += "except RequestError as error: print(isinstance(error, ImportError), error)"
    done = run(environments("tune"), "-c", use)
    said = r"True dietcode\.tuner needs apache-tvm, .*: pip install .*\[tune\]'?$"
    assert re.match(said, done.stdout), done


@pytest.mark.parametrize(
    "call",
    [
        "compile_cubin('', CudaTarget('sm_90'))",
        "compile_cubin('', CudaTarget('sm_90'), reproducible=True)",
        "compile_ptx('', CudaTarget('sm_90'))",
        "nvrtc_version()",
        "include_folders()",
    ],
)
def test_each_way_to_machine_code_says_what_lacks(call: str, environments: Callable[[str], Path]) -> None:
    use = "from dietcode.errors import TargetError; from dietcode.target.cuda import CudaTarget\n"
    use += f"from dietcode.target.nvrtc import *\ntry: {call}\nexcept TargetError as error: print(error)"
    done = run(environments("cuda"), "-c", use)
    assert re.match(
        r"target\.kind: cuda needs cuda-bindings, nvidia-.*: pip install .*\[cuda\]", done.stdout
    ), done


@pytest.mark.long
def test_targets_says_what_a_gpu_lacks(environments: Callable[[str], Path]) -> None:
    done = run(environments("cuda"), "-m", "dietcode", "targets", "--json")
    assert done.returncode == 0, done
    assert "building needs cuda-bindings, nvidia-cuda-nvrtc, " in done.stdout


@pytest.mark.long
def test_rpc_asks_for_nothing_that_only_the_tracker_needs(
    environments: Callable[[str], Path], places: Path
) -> None:
    arguments, _ = parts("tune cpu.yaml -o lib --rpc-tracker 127.0.0.1:1 --rpc-key board")
    done = run(environments("rpc"), "-m", "dietcode", *arguments)
    assert "127.0.0.1:1 cannot be reached" in done.stderr and done.stderr.count("\n") == 1, done


def test_every_extra_has_its_doors_here() -> None:
    declared = declared_extras()
    assert {left_out for left_out, _, _ in DOORS} | WITHOUT_A_DOOR == set(declared) - {""}
    assert set(extras.MODULES) == set(declared) - {""} - {"browser", "docs", "dev"}


@pytest.mark.parametrize("extra", sorted(extras.MODULES))
def test_the_packages_are_those_that_the_metadata_names(extra: str) -> None:
    declared = declared_extras()
    named = {one.name for one in declared[extra]} - {one.name for one in declared[""]} - {"dietcode"}
    parts_of_it = (extra, *extras.INCLUDED.get(extra, ()))
    assert {package for name in parts_of_it for package in extras.MODULES[name].values()} == named


def test_without_a_folder_to_install_from_the_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed from a wheel that is gone: their versions are those that this version asks for."""
    monkeypatch.setattr(extras, "_origin", lambda: None)
    command = shlex.split(extras.install_command("server", ("fastapi", "apache-tvm")))
    wanted = [Requirement(word) for word in command[2:]]
    assert command[:2] == ["pip", "install"]
    assert [one.name for one in wanted] == ["fastapi", "apache-tvm"] and all(one.specifier for one in wanted)
