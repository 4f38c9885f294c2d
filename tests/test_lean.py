"""Processes that tune find no PyTorch, and those that do not tune are left alone."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
from needs import of_extra

from dietcode.lean import with_torch, without_torch
from dietcode.measure.cpu_worker import CpuWorker
from dietcode.measure.local import LocalChildren

LOOK = "import importlib.util as u; print(u.find_spec('torch').origin if u.find_spec('torch') else None)"


@pytest.mark.skipif(find_spec("torch") is None, reason=of_extra("bench"))
def test_children_find_no_torch() -> None:
    def has_torch() -> bool:  # in here, so that it goes there by value
        import sys

        import tvm  # noqa: F401 - as a child has it

        return "torch" in sys.modules

    before = dict(os.environ)
    children = LocalChildren(CpuWorker(1), measures=False)
    try:
        assert children._runner.process is not None
        children._runner.process.send(has_torch)
        assert children._runner.process.recv() is False
        assert children._builders.submit(has_torch).result() is False
    finally:
        children.close()
    assert os.environ.get("PYTHONPATH") == before.get("PYTHONPATH")


def test_what_they_start_finds_none_either() -> None:
    look = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {LOOK!r}], check=True)"
    once = without_torch(os.environ)
    assert without_torch(once) == once
    done = subprocess.run([sys.executable, "-c", look], env=once, capture_output=True, text=True, check=True)
    assert "without_torch" in done.stdout
    done = subprocess.run(
        [sys.executable, "-c", "import torch"], env=once, capture_output=True, text=True, check=False
    )
    assert "ImportError: a process that tunes does without PyTorch" in done.stderr


def test_other_paths_stay() -> None:
    (first, *others) = without_torch({"PYTHONPATH": os.pathsep.join(["/a", "/b"])})["PYTHONPATH"].split(
        os.pathsep
    )
    assert first.endswith("without_torch") and others == ["/a", "/b"]


@pytest.mark.skipif(find_spec("torch") is None, reason=of_extra("bench"))
def test_who_compares_with_torch_finds_it_again() -> None:
    look = "from dietcode.lean import has_torch; import importlib.util as u; "
    look += "print(has_torch(), u.find_spec('torch').origin)"
    for environment, found in (
        (without_torch(os.environ), False),
        (with_torch(without_torch(os.environ)), True),
    ):
        done = subprocess.run(
            [sys.executable, "-c", look], env=environment, capture_output=True, text=True, check=True
        )
        installed, _, origin = done.stdout.partition(" ")
        assert installed == "True"
        assert ("without_torch" not in origin) is found


@pytest.mark.skipif(find_spec("torch") is None, reason=of_extra("bench"))
def test_commands_that_need_the_compiler_leave_it_out() -> None:
    before = "from dietcode.cli.common import need_compiler"
    for script, found in ((before, False), (f"{before}; need_compiler()", True)):
        done = subprocess.run(
            [sys.executable, "-c", f"{script}; {LOOK}"],
            env=with_torch(os.environ),
            capture_output=True,
            text=True,
            check=True,
        )
        assert ("without_torch" in done.stdout) is found


LOOKS = {
    "name": "print(tvm.relax.Var.__name__)",
    "module of it": "import tvm.relax.expr as e; print(e.Var.__name__)",
    "from": "from tvm.relax import Var; print(Var.__name__)",
    "threads": "from concurrent.futures import ThreadPoolExecutor as P;"
    "print(*{one.__name__ for one in P(8).map(lambda _: tvm.relax.Var, range(8))})",
}


@pytest.mark.thorough
@pytest.mark.parametrize("look", [LOOKS["threads"], pytest.param(LOOKS["name"], marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "first", [LOOKS["module of it"], pytest.param(LOOKS["from"], marks=pytest.mark.long)]
)
def test_relax_is_imported_once_somebody_looks(first: str, look: str) -> None:
    script = f"""
import sys
from dietcode.lean import import_less_of_tvm
import_less_of_tvm(), import_less_of_tvm()
import tvm, dietcode.search_space.cpu.compiling
assert tvm.relax.__file__.endswith("__init__.py") and not hasattr(tvm.relax, "__wrapped__")
print("tvm.relax.expr" in sys.modules)
{look}
{first}
print(hasattr(tvm.relax, "nothing"), "tvm.relax.expr" in sys.modules)
"""
    for text in (script, script.replace(f"{look}\n{first}", f"{first}\n{look}")):
        done = subprocess.run(
            [sys.executable, "-c", text],
            env=without_torch(os.environ),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout.split() == ["False", "Var", "Var", "False", "True"], done.stderr


def test_building_imports_neither_relax_nor_what_fits_models() -> None:
    def imported() -> set[str]:  # in here, so that it goes there by value
        import sys

        import dietcode.search_space.cpu.host
        import dietcode.tuner.tune  # noqa: F401

        return set(sys.modules)

    children = LocalChildren(CpuWorker(1), measures=False)
    try:
        found = children._builders.submit(imported).result()
    finally:
        children.close()
    assert "dietcode.search_space.cpu.compiling" in found
    assert not {"tvm.relax.expr", "scipy.optimize", "scipy.special"} & found


def test_completion_shows_what_users_take() -> None:
    import dietcode

    shown = dir(dietcode)
    assert {"load", "pull", "Structure", "Recursion", "program", "export", "nn"} <= set(shown)
    assert {"importlib", "Any", "TYPE_CHECKING"}.isdisjoint(shown)


def test_logs_and_a_server_that_refuses_import_little() -> None:
    """Rich is found again afterwards."""
    code = """
import sys
from dietcode_server import logs, run
print([name for name in ("rich", "fastapi", "sqlalchemy", "uvicorn") if name in sys.modules])
import rich
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
