"""Programs in C++ and C call a library: the examples of docs/cpp.md, compiled by the commands of the page."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi
import yaml
from sanitized import sanitizer_runs, tame
from small_libraries import ROOT, SPECS, built, built_of, make_parts, spec_data
from test_compiled_outputs import SEVERAL, STATES
from test_convolution_calls import conv_data

from dietcode.errors import RequestError
from dietcode.library.build import own_fields
from dietcode.library.c_header import c_header
from dietcode.library.files import manifest_of
from dietcode.runtime.compile_launcher import INCLUDE, LAUNCHER, SOURCES
from dietcode.runtime.loading import facts_of_run
from dietcode.runtime.manifest import MANIFEST, pretty_json, read_manifest

NAME = "small-dense"


@pytest.fixture(scope="module")
def folder() -> Path:
    SPECS[NAME] = yaml.safe_load((ROOT / "examples" / f"{NAME}.yaml").read_text()) | {
        "target": {"kind": "llvm"}
    }
    try:
        return built(NAME)
    finally:
        del SPECS[NAME]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("c++") is None:
        pytest.skip("this machine has no C++ compiler")
    page = (ROOT / "docs" / "cpp.md").read_text(encoding="utf-8")
    block = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)[0]
    commands = block.partition("./call")[0].replace("-o call", '-o "$program"')
    place = tmp_path_factory.mktemp("cpp") / "call"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        ["bash", "-euc", commands],
        check=True,
        cwd=ROOT,
        env=os.environ | {"program": str(place), "PATH": path},
    )
    return place


def call(program: Path, folder: Path, *numbers: int) -> subprocess.CompletedProcess[str]:
    words = [program, folder, LAUNCHER, *map(str, numbers)]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.sampled(keep=2)  # one of each category
@pytest.mark.parametrize("value", [1, 5, 33, 64])
def test_a_program_gets_right_results(program: Path, folder: Path, value: int) -> None:
    """Every element is 256 · 0.5 · 0.25 − 1."""
    (packed,) = json.loads((folder / "manifest.json").read_text())["packed"].values()
    done = call(program, folder, packed["lanes"], value)
    category = 0 if value <= 32 else 1
    said = f"category {category}, Y[0, 0] = 31, Y[T-1, 511] = 31\n"
    assert (done.returncode, done.stdout) == (0, said), done.stderr


def test_what_does_not_fit_is_refused(program: Path, folder: Path) -> None:
    done = call(program, folder, 2, 33)
    assert done.returncode and "Invalid" in done.stderr and "pack" in done.stderr
    (packed,) = json.loads((folder / "manifest.json").read_text())["packed"].values()
    for value in (0, 65):
        done = call(program, folder, packed["lanes"], value)
        assert done.returncode and f"T: {value}; allowed: 1...64" in done.stderr


# Prints the category of each shape that it is given, or what is wrong with it.
SELECTING = """
#include <dietcode.h>
#include <iostream>
int main(int count, char** words) {
  dietcode::Library library(words[1], words[2], 1);
  const std::size_t num_variables = std::stoul(words[3]);
  for (int i = 4; i < count;) {
    std::vector<tvm::ffi::AnyView> values;
    while (values.size() < num_variables) values.emplace_back(std::stoll(words[i++]));
    tvm::ffi::Any category;
    try {
      library.select.CallPacked(values.data(), static_cast<std::int32_t>(values.size()), &category);
      std::cout << category.cast<std::int64_t>() << "\\n";
    } catch (const tvm::ffi::Error& error) {
      std::cout << error.message() << "\\n";
    }
  }
}
"""


@pytest.mark.thorough
def test_a_program_in_c_plus_plus_knows_all_ranges(tmp_path: Path) -> None:
    if shutil.which("c++") is None:
        pytest.skip("this machine has no C++ compiler")
    (tmp_path / "select.cpp").write_text(SELECTING)
    library = Path(tvm_ffi.libinfo.find_libtvm_ffi())
    flags = ["-std=c++17", "-Wall", "-Wextra", "-pedantic", "-Werror", f"-I{INCLUDE}"]
    headers = [word for path in tvm_ffi.libinfo.include_paths() for word in ("-isystem", path)]
    linked = [library, f"-Wl,-rpath,{library.parent}"]
    command = ["c++", *flags, *headers, "select.cpp", *linked, "-o", tmp_path / "select"]
    subprocess.run(command, check=True, cwd=tmp_path)
    for name, shapes, said in (
        (
            "values",
            [1, 3, 9, 10],
            "0\nT: 3; allowed: one of 1, 2, 4, 9\n1\nT: 10; allowed: one of 1, 2, 4, 9\n",
        ),
        ("order", [1, 2, 4, 6, 0, 6, 4, 1], "0\n1\nQ: 0; allowed: 1...4\nB: 1; allowed: 2...6\n"),
    ):
        num_variables = len(SPECS[name]["shape_vars"])
        words = [tmp_path / "select", built(name), LAUNCHER, num_variables, *shapes]
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=True)
        assert done.stdout == said


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command, as a reader has it on the path."""
    place = tmp_path_factory.mktemp("tools")
    (place / "dietcode").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dietcode "$@"\n')
    (place / "dietcode").chmod(0o755)
    return place


def test_a_program_in_c_has_a_header_of_its_library(folder: Path, tools: Path, tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("this machine has no C compiler")
    page = (ROOT / "docs" / "cpp.md").read_text(encoding="utf-8")
    block = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)[1]
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / NAME).symlink_to(folder)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    path = f"{tools}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    commands = block.replace("cc -std", "cc -Wall -Wextra -Werror -std")
    done = subprocess.run(
        ["bash", "-euc", commands],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PATH": path},
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "category 1, Y[0, 0] = 31, Y[T-1, 511] = 31\n"), done.stderr
    assert "Categories" in (tmp_path / "small-dense.txt").read_text()
    launcher = tmp_path / "none.so"
    done = subprocess.run(
        [tmp_path / "call", folder / "library.so", launcher, "1"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "none.so" in done.stderr


# The launcher, which says how many parts the loops of each function have that it binds.
WATCHING = """
#include <stdio.h>
#include <tvm/ffi/c_api.h>
#undef __tvm_ffi_bind
int bind_really(void *self, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result);
TVM_FFI_DLL_EXPORT int __tvm_ffi_bind(void *self, const TVMFFIAny *args, int32_t count, TVMFFIAny *result) {
  fprintf(stderr, "%lld\\n", count == 6 ? (long long)args[5].v_int64 : -1);
  return bind_really(self, args, count, result);
}
"""


def test_programs_say_how_many_parts_loops_have(program: Path, folder: Path, tmp_path: Path) -> None:
    """So that the launcher cuts them for a thread that comes late, as it does for Python."""
    (tmp_path / "watching.c").write_text(WATCHING)
    manifest = read_manifest(folder)
    lanes = str(next(iter(manifest["packed"].values()))["lanes"])  # 16 of AVX-512, 8 of AVX2
    (tmp_path / "small_dense.h").write_text(c_header(manifest))
    headers = [f"-I{path}" for path in tvm_ffi.libinfo.include_paths()]
    library = Path(tvm_ffi.libinfo.find_libtvm_ffi())
    linked = [library, f"-Wl,-rpath,{library.parent}", "-ldl", "-Wl,-z,nodelete"]
    sources, compiler = (
        sorted(SOURCES.glob("*.c")),
        ["cc", "-std=c11", "-pthread", "-D__tvm_ffi_bind=bind_really"],
    )
    source, in_c, launcher = ROOT / "examples" / "call.c", tmp_path / "call", tmp_path / "watching.so"
    for command in (
        [*compiler, "-shared", "-fPIC", *headers, "watching.c", *sources, *linked, "-o", launcher],
        [*compiler, *headers, f"-I{tmp_path}", source, *linked, "-o", in_c],
    ):
        subprocess.run(command, check=True, cwd=tmp_path)
    named = shutil.copytree(folder, tmp_path / "named")  # a shape variable may have that name
    named_so = manifest | {"binding": {"num_parts": {}, **manifest["binding"]}}
    (named / MANIFEST).write_bytes(pretty_json(named_so))
    older = shutil.copytree(folder, tmp_path / "older")  # its loops have a part for each thread
    without = {key: value for key, value in manifest.items() if key != "num_parts"} | {"num_threads": 5}
    (older / MANIFEST).write_bytes(pretty_json(without))
    for words, num_parts in (
        ([program, folder, launcher, lanes, "33"], manifest["num_parts"]),
        ([program, named, launcher, lanes, "33"], manifest["num_parts"]),
        ([in_c, folder / "library.so", launcher, "33"], manifest["num_parts"]),
        ([program, older, launcher, lanes, "33"], without["num_threads"]),
    ):
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (words, done.stderr)
        right = {str(num_parts), "0"}  # of what computes, and of what packs
        assert set(done.stderr.split()) == right, (words, done.stderr)


NAMES = spec_data(
    "int",  # words of C or C++, and what the header calls its own
    tensors={"own": {"dims": "mk", "dtype": "float32"}}
    | {"packed": {"dims": "nk", "dtype": "float32", "constant": True}},
    output={"name": "template", "dtype": "float32"},
    shape_vars={"shape_0": {"min": 1, "max": 4}, "int": {"min": 1, "max": 3}, "int_": {"values": [1, 4]}},
    dims={"m": "int*shape_0", "n": "8*int_", "k": 16},
)


BLOCKS = [json.loads(text) for text in (SEVERAL, STATES)]
CONVOLUTIONS = [conv_data("NHWC"), conv_data("NCHW")]


@pytest.mark.parametrize("data", [*SPECS.values(), NAMES, *CONVOLUTIONS, *BLOCKS], ids=str)
def test_every_library_of_these_tests_has_a_header(data: Mapping[str, Any], tmp_path: Path) -> None:
    """One that says nothing, whatever a compiler of C or C++ is asked to look for."""
    parts = make_parts(data)
    header = c_header(manifest_of(parts, {}, {"cpu_features": []}, own_fields(parts)))
    headers = [word for path in tvm_ffi.libinfo.include_paths() for word in ("-isystem", path)]
    strict = ["-fsyntax-only", "-Wall", "-Wextra", "-pedantic", "-Wshadow", "-Werror", *headers]
    for compiler, standard, name in (
        ("cc", "c99", "one.c"),
        ("cc", "c11", "one.c"),
        ("c++", "c++17", "one.cpp"),
    ):
        (tmp_path / name).write_text(f"{2 * header}\nint main(void) {{ return 0; }}\n")
        subprocess.run([compiler, *strict, f"-std={standard}", name], check=True, cwd=tmp_path)


# A table of nine rows, two of which are written; the third position is nowhere.
TABLE = """
#include "states.h"
int main(int count, char **words) {
  char why[512];
  float table[9 * 40], x[3 * 40], mean[3] = {0};
  const int32_t at[] = {0, 1, 1}, to[] = {5, -3, 8};
  states_library library;
  for (int i = 0; i < 9 * 40; i++) table[i] = (float)(i % 7);
  for (int i = 0; i < 3 * 40; i++) x[i] = (float)(i % 5);
  if (count < 3 || states_load(&library, words[1], words[2], 2) ||
      states_run(&library, table, at, to, x, mean, 3)) {
    fprintf(stderr, "%s\\n", dietcode_error(why, sizeof why));
    return 1;
  }
  for (int i = 0; i < 3; i++) printf("%.6g ", mean[i]);
  for (int i = 0; i < 9 * 40; i++) printf("%.6g ", table[i]);
  states_free(&library);
  return 0;
}
"""


def test_a_program_in_c_writes_rows_of_a_table(tmp_path: Path) -> None:
    folder = built_of(STATES)
    (tmp_path / "table.c").write_text(TABLE)
    (tmp_path / "states.h").write_text(c_header(read_manifest(folder)))
    library = Path(tvm_ffi.libinfo.find_libtvm_ffi())
    headers = [word for path in tvm_ffi.libinfo.include_paths() for word in ("-isystem", path)]
    strict = ["-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror", *headers, "-I."]
    linked = [library, f"-Wl,-rpath,{library.parent}"]
    subprocess.run(["cc", *strict, "table.c", *linked, "-o", "table"], check=True, cwd=tmp_path)
    words = [tmp_path / "table", folder / "library.so", LAUNCHER]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = np.array(done.stdout.split(), np.float32)
    table = (np.arange(9 * 40) % 7).reshape(9, 40).astype(np.float32)
    rows = table[[0, 1, 1]] + (np.arange(3 * 40) % 5).reshape(3, 40)
    table[[5, 8]] = rows[[0, 2]]
    np.testing.assert_allclose(found, [*rows.mean(axis=1), *table.ravel()], rtol=1e-5)


# Loads and calls again and again, also what cannot be loaded, and says what it is told.
CAREFUL = """
#include "small_dense.h"
int main(int count, char **words) {
  char why[512], little[8];
  static float x[64 * 256], w[512 * 256], panels[512 * 256], bias[512], y[65 * 512];
  small_dense_library library;
  if (count < 3) return 1;
  if (small_dense_load(&library, "none.so", words[2], 2) != -1) return 2;
  printf("%s\\n", dietcode_error(little, sizeof little));
  if (small_dense_load(&library, words[1], words[1], 2) != -1) return 3;
  printf("%s\\n", dietcode_error(why, sizeof why));
  for (int i = 0; i < 3; i++) {
    if (small_dense_load(&library, words[1], words[2], 2)) return 4;
    if (small_dense_pack_W(&library, w, panels)) return 4;
    if (small_dense_run(&library, x, panels, bias, y, 64)) return 5;
    if (i == 0) {
      if (small_dense_run(&library, x, panels, bias, y, 65) != -1) return 6;
      printf("%s\\n", dietcode_error(why, sizeof why));
      if (small_dense_select(&library, 0) != -1) return 7;
      printf("%s|", dietcode_error(why, sizeof why));
      printf("%s\\n", dietcode_error(why, sizeof why));
    }
    small_dense_free(&library);
  }
  return 0;
}
"""


def test_a_header_s_functions_refuse_and_let_go(folder: Path, tmp_path: Path) -> None:
    """Under a sanitizer, which finds what is left behind."""
    (tmp_path / "careful.c").write_text(CAREFUL)
    (tmp_path / "small_dense.h").write_text(c_header(read_manifest(folder)))
    headers = [f"-I{path}" for path in tvm_ffi.libinfo.include_paths()]
    library = Path(tvm_ffi.libinfo.find_libtvm_ffi())
    linked = [library, f"-Wl,-rpath,{library.parent}"]
    flags, program = ["-std=c11", "-Wall", "-Wextra", "-Werror"], tmp_path / "careful"
    if sanitizer_runs(tmp_path, "address,undefined"):
        flags.append("-fsanitize=address,undefined")
    subprocess.run(["cc", *flags, *headers, "careful.c", *linked, "-o", program], check=True, cwd=tmp_path)
    words = [program, folder / "library.so", LAUNCHER]
    done = subprocess.run(words, capture_output=True, text=True, check=False, preexec_fn=tame)
    assert done.returncode == 0, (done.returncode, done.stderr[-3000:])
    begun, none, outside, twice = done.stdout.splitlines()
    assert (len(begun), none) == (7, "no such function: attach")
    assert (outside, twice) == ("T: 65; allowed: 1…64", "T: 0; allowed: 1…64|")


def test_a_header_tells_the_launcher_what_python_does() -> None:
    manifest = read_manifest(built("dense"))
    assert facts_of_run(manifest) == {"uncounted": 0, "num_parts": manifest["num_parts"]}
    older = {key: value for key, value in manifest.items() if key != "num_parts"} | {"num_threads": 7}
    graph = {"Y": {"gather": ["X", "at"]}}  # and T is the rows of a table alone
    older |= {"workload": {"op": {"block": {"graph": graph}}}, "output": manifest["output"] | {"dims": "n"}}
    assert facts_of_run(older) == {"uncounted": 1, "num_parts": 7}
    assert '"run", num_threads, 1, 7, &own->run' in c_header(older)


def test_what_has_no_header() -> None:
    manifest = read_manifest(built("dense"))
    with pytest.raises(RequestError, match="dense: has no C header: it does not run on a processor"):
        c_header(manifest | {"requires": {"archs": ["sm_90"]}})
    with pytest.raises(RequestError, match="the extent of k, m, n is not in its manifest"):
        c_header(manifest | {"dims": {}})
