"""One core, and a home where nothing can be written: everything works, or says in one line what to set."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_libraries import copy_of, spec_data

READ_ONLY = "/proc"  # where not even root can make a folder


def dietcode(
    *arguments: object, cores: int | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, on the first `cores` cores alone."""
    held = {"HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "DIETCODE_CACHE", "DIETCODE_TRUST"}
    kept = {name: value for name, value in os.environ.items() if variables == {} or name not in held}
    first = sorted(os.sched_getaffinity(0))[:cores]
    return subprocess.run(
        [sys.executable, "-m", "dietcode", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=kept | variables,
        preexec_fn=lambda: os.sched_setaffinity(0, first),
    )


@pytest.mark.thorough
def test_one_core_is_told_as_one() -> None:
    done = dietcode("targets", "--json", cores=1)
    assert done.returncode == 0, done
    assert json.loads(done.stdout)[0]["num_cores"] == 1


@pytest.mark.long
def test_a_library_is_tuned_on_one_core(tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(spec_data(budget={"trials": 2, "seconds": 60})))
    done = dietcode("tune", spec, "-o", tmp_path / "lib", cores=1)
    assert done.returncode == 0, done
    facts = json.loads(dietcode("inspect", tmp_path / "lib", "--json").stdout)
    assert facts["report"]["target"]["num_cores"] == 1
    done = dietcode("bench", tmp_path / "lib", "--instances", "2", "--rounds", "1", "--json", cores=1)
    assert done.returncode == 0, done
    assert all(row["max_rel_error"] < 1e-5 for row in json.loads(done.stdout))


@pytest.mark.long
def test_a_library_of_more_cores_runs_on_one(tmp_path: Path) -> None:
    folder = copy_of("dense", tmp_path / "lib")
    use = (
        "import os; os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])\n"
        "import sys, dietcode, numpy as np\n"
        "lib = dietcode.load(sys.argv[1]); x = np.ones((64, 48), 'float32')\n"
        "print(np.abs(lib(X=x, W=lib.pack(W=x)) - 48).max())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", use, str(folder)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    assert float(done.stdout) < 1e-3


@pytest.mark.thorough
def test_a_library_is_looked_at_and_loaded_without_a_home(tmp_path: Path) -> None:
    folder = copy_of("dense", tmp_path / "lib")
    done = dietcode("inspect", folder, "--json", HOME=READ_ONLY)
    assert done.returncode == 0, done
    done = dietcode("bench", folder, "--instances", "2", "--rounds", "1", "--json", HOME=READ_ONLY)
    assert done.returncode == 0, done
    assert np.isfinite([row["measured_gflops"] for row in json.loads(done.stdout)]).all()


@pytest.mark.thorough
@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("tune", "spec.json", "-o", "lib"), "DIETCODE_CACHE"),
        (("records", "export", "out.jsonl", "--spec", "spec.json"), ""),
        (("serve", "--port", "0"), "--data-dir"),
        (("worker",), "--data-dir"),
        (("token", "list"), "--data-dir"),
        (("db", "upgrade"), "--data-dir"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_what_must_be_kept_says_where_to_keep_it(
    arguments: tuple[str, ...], names: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.json").write_text(json.dumps(spec_data(budget={"trials": 1, "seconds": 20})))
    done = dietcode(*arguments, HOME=READ_ONLY)
    line = done.stderr.removesuffix("\n")
    assert done.returncode in {1, 2} and "\n" not in line and line.startswith("dietcode: "), done
    assert READ_ONLY in line or not names, line
    assert names in line
    assert [path.name for path in tmp_path.iterdir()] == ["spec.json"]
