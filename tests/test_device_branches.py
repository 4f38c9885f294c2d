"""Product code asks a backend, a target or a record what differs between kinds of devices, and never which
kind it is: whoever adds a kind changes no file of the pipeline.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = (ROOT / "dietcode", ROOT / "server" / "dietcode_server")
OF_ONE_KIND = re.compile(r"dietcode/(backends|target)/|/(cpu|cuda|formats)/|/(cpu|cuda|gpu)(_\w+)?\.py$")
KINDS = {"cuda", "llvm"}
CLASSES = re.compile(r"(Cpu|Cuda|Gpu)[A-Z]\w*|Gpu|is_(cuda|gpu)")
ALLOWED = {
    "dietcode/extras.py": "names of extras",
    "dietcode/measure/rpc.py": "an engine that reaches processors alone",
    "dietcode/runtime/loading.py": "the runtime reads what a manifest requires, where no backend is",
    "dietcode/runtime/registered_operator.py": "the runtime reads what a manifest requires, as above",
    "dietcode/search_space/seed.py": "TVM's own names of rules",
    "dietcode/workload/spec_checks.py": "the spec's own kind, where no backend is installed",
    "dietcode/workload/target_spec.py": "the spec's own kind, as it is written",
    "dietcode/workload/spec_fields.py": "the spec's own kind, where it is left out",
    "server/dietcode_server/api/examples.py": "specs and targets that the API's pages show",
    "server/dietcode_server/dashboard/templates/_result_code.html": "languages of generated code",
}


def branches(text: str) -> Iterator[tuple[int, str]]:
    """Lines of Python that name a kind, or ask for the class of one."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and node.value in KINDS:
            yield node.lineno, repr(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            asked = ast.unparse(node.args[-1]) if name == "isinstance" else name
            if re.fullmatch(r"is_(cuda|gpu)", name) or (name == "isinstance" and CLASSES.search(asked)):
                yield node.lineno, ast.unparse(node)


def found() -> dict[str, list[str]]:
    """Of each file that is of no kind alone, what it says of kinds."""
    lines: dict[str, list[str]] = {}
    for path in (path for folder in PRODUCT for path in sorted(folder.rglob("*"))):
        name, text = str(path.relative_to(ROOT)), ""
        if path.suffix not in {".py", ".html", ".js"} or OF_ONE_KIND.search(name) or "vendored" in name:
            continue
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            said = list(branches(text))
        else:
            numbered = enumerate(text.splitlines(), 1)
            said = [
                (number, line) for number, line in numbered if re.search(r"""["'](cuda|llvm)["']""", line)
            ]
        if said:
            lines[name] = [f"{name}:{number}: {what}" for number, what in said]
    return lines


def test_no_branch_on_the_kind_of_a_target() -> None:
    there = found()
    new = [line for name, lines in there.items() if name not in ALLOWED for line in lines]
    assert not new, "ask a Backend, a TargetKind or the record instead:\n" + "\n".join(new)
    assert set(there) == set(ALLOWED), "what is allowed and not there any more goes"


@pytest.mark.parametrize(
    "text",
    [
        'x = target["kind"] == "cuda"',
        "isinstance(target, CudaTarget)",
        "isinstance(target, (int, cpu.CpuTarget))",
        'names = {"llvm": 1}',
        "is_cuda(spec)",
    ],
)
def test_such_a_branch_is_found(text: str) -> None:
    assert list(branches(text))
