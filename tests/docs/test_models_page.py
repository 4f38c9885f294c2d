"""The page of models: each operator of graphs with its attributes, and a snippet that works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from needs import of_extra
from pages import DOCS, ROOT, blocks

from dietcode.graph.operators import GRAPH_OPERATORS
from dietcode.lean import with_torch

PAGE = DOCS / "models.md"
_ROW = re.compile(r"^\| (`[a-z_0-9]+`(?:, `[a-z_0-9]+`)*) \|([^|]*)\| [^|]+ \|$", re.MULTILINE)


def _rows() -> dict[str, set[str]]:
    """The attributes that the table names, by operator."""
    found = {}
    for operators, attributes in _ROW.findall(PAGE.read_text(encoding="utf-8")):
        for operator in re.findall(r"`([a-z_0-9]+)`", operators):
            assert operator not in found, operator
            found[operator] = set(re.findall(r"`([a-z_]+)`", attributes))
    return found


def test_every_operator_of_a_graph_and_no_other() -> None:
    rows = _rows()
    assert set(rows) == set(GRAPH_OPERATORS)
    for name, operator in GRAPH_OPERATORS.items():
        assert set(operator.attributes) <= rows[name], name
    known = {attribute for one in GRAPH_OPERATORS.values() for attribute in one.attributes}
    words = {
        "erf",
        "tanh",
        *("none", "nan", "zero"),
        "first",
        "last",
        "lstm",
        "gru",
        "lower",
        "upper",
        "avg_pool",
        "take_along",
        "scatter_along",
        *("set", "add", "mul", "max", "min", "rnn_tanh", "rnn_relu"),
    }
    assert {attribute for attributes in rows.values() for attribute in attributes} <= known | words


@pytest.mark.skipif(find_spec("onnx") is None, reason=of_extra("onnx"))
def test_every_operator_of_onnx_that_is_read_and_no_other() -> None:
    import dietcode.models.importing.onnx.model  # noqa: F401 - the rules
    from dietcode.models.importing.onnx.context import ONNX_RULES
    from dietcode.models.importing.onnx.flow import ONNX_FLOW

    section = PAGE.read_text(encoding="utf-8").partition("## From ONNX")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", section, re.MULTILINE)
    named = [operator for row in rows for operator in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted([*ONNX_RULES, *ONNX_FLOW])


@pytest.mark.thorough
@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize("page", [PAGE, ROOT / "README.md"])
def test_the_export_that_is_shown_can_be_compiled(page: Path, tmp_path: Path) -> None:
    if find_spec("torch") is None:
        pytest.skip(of_extra("models"))
    (snippet,) = (one.text for one in blocks(page) if "torch.export.save" in one.text)
    script = f"""{snippet}
from pathlib import Path
from dietcode.models.importing.exported import import_exported, load_exported
graph, weights = import_exported(load_exported(Path("model.pt2")), "shown", {{}})
print(*graph.ranges.values(), len(weights))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=with_torch(os.environ),
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(1, 512) 4\n"
