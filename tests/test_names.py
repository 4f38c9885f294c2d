"""Names: a class has one of its own, a thing one word, and what a docstring refers to exists."""

from __future__ import annotations

import ast
import functools
import importlib
import re
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from needs import import_ray_with_token, of_extra

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {
    "dietcode": ROOT / "dietcode",
    "dietcode_server": ROOT / "server" / "dietcode_server",
    "dietcode_migrations": ROOT / "migrations" / "dietcode_migrations",
}

ONE_WORD = (
    *("dietcode.cli", "dietcode.client", "dietcode.protocol", "dietcode.trust"),
    *("dietcode.cost_model", "dietcode.dispatcher", "dietcode.search_space", "dietcode.workload"),
    *("dietcode.measure", "dietcode.tuner", "dietcode.library", "dietcode.target"),
    "dietcode_server",
)
"""Packages in which no other word stands for what the glossary has a word for."""

OTHER_WORDS = {
    *("letter", "letters", "subscript", "subscripts", "place", "places", "piece", "pieces"),
    *("sums", "ask", "asks", "put", "told", "hear", "whose"),
}
"""Words that no name has: index, offset or position, k_tile or k_outer, accumulators, emit or write are."""

_FROM_OUTSIDE = {"ascii_letters", "put_along_axis"}  # of Python and NumPy
_REFERENCE = re.compile(r"(?<!`)`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\(\))?`(?!`)")


@functools.cache
def trees() -> dict[str, ast.Module]:
    """The syntax of every module of the project, by its full name."""
    found = {}
    for package, folder in FOLDERS.items():
        for path in sorted(folder.rglob("*.py")):
            parts = (package, *path.relative_to(folder).with_suffix("").parts)
            name = ".".join(parts).removesuffix(".__init__")
            found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


@functools.cache
def classes() -> list[tuple[str, str]]:
    """Every class of the project, nested ones too: its module and its name."""
    return [
        (module, node.name)
        for module, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]


def references() -> list[tuple[str, str]]:
    """Every dotted name in single backticks of a docstring: the docstring's module, the name."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        (module, name)
        for module, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, owners)
        for name in _REFERENCE.findall(ast.get_docstring(node) or "")
    ]


def follow(name: str) -> bool:
    """Whether a full dotted name leads to a module, or to an attribute of what it is in."""
    first, *rest = name.split(".")
    found, path = importlib.import_module(first), first
    for part in rest:
        path = f"{path}.{part}"
        if hasattr(found, part):
            found = getattr(found, part)
        elif isinstance(found, ModuleType) and hasattr(found, "__path__"):
            try:
                found = importlib.import_module(path)
            except ModuleNotFoundError as error:
                if error.name != path:
                    raise
                return False
        else:
            return path == name and is_declared(found, part)
    return True


def is_declared(owner: Any, attribute: str) -> bool:
    """Whether a class has an attribute that only its instances hold: annotated, or in its ``Attributes``."""
    if not isinstance(owner, type):
        return False
    if any(attribute in vars(base).get("__annotations__", {}) for base in owner.__mro__):
        return True
    _, _, section = (owner.__doc__ or "").partition("Attributes\n")
    return re.search(rf"^ *(?:\w+, )*{attribute}(?:, \w+)* : ", section, re.MULTILINE) is not None


def candidates(name: str) -> list[str]:
    """The full names that a reference may stand for.

    It is full itself, or begins with a class of the project, or with a module of it by its last name.
    """
    first = name.partition(".")[0]
    owners = [module for module, of in classes() if of == first]
    last = [module.rpartition(".") for module in trees()]
    modules = [package for package, _, name in last if name == first and "without_torch" not in package]
    return [f"{owner}.{name}" for owner in [*owners, *modules] if owner] or [name]


def test_a_class_name_stands_once() -> None:
    counts = Counter(name for _, name in classes())
    assert [name for name, count in counts.items() if count > 1] == []


def names_in(tree: ast.Module) -> set[str]:
    """Every name that a module defines or uses: variables, parameters, attributes, functions, classes."""
    found = set()
    for node in ast.walk(tree):
        for field in ("id", "arg", "attr", "name"):
            name = getattr(node, field, None)
            if isinstance(name, str):
                found.add(name)
    return found


def other_words(name: str) -> set[str]:
    """The words of a name for which the glossary has another; bare ``steps`` may be anything's."""
    words = name.lower().strip("_").split("_")
    return (OTHER_WORDS & set(words)) | ({"steps"} & {"_".join(words)})


@pytest.mark.parametrize("package", ONE_WORD)
def test_a_thing_has_one_word(package: str) -> None:
    found = {
        (module, name)
        for module, tree in trees().items()
        if f"{module}.".startswith(f"{package}.")
        for name in names_in(tree) - _FROM_OUTSIDE
        if other_words(name)
    }
    # The field of manifests: the steps of a plan of bindings.
    assert found - {("dietcode.workload.binding", "steps")} == set()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("row_places", {"places"}),
        ("replace", set()),
        ("steps", {"steps"}),
        ("num_steps", set()),
        ("first_step", set()),
        ("weighted_sum", set()),
        ("_SUMS", {"sums"}),
    ],
)
def test_words_of_a_name(name: str, words: set[str]) -> None:
    assert other_words(name) == words


def test_references_of_docstrings_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    import_ray_with_token(monkeypatch)
    for module, extra in {"tvm": "tune", "fastapi": "server", "torch": "bench"}.items():
        pytest.importorskip(module, reason=of_extra(extra))
    found = references()
    assert len(found) > 100
    wrong = [(module, name) for module, name in found if not any(map(follow, candidates(name)))]
    assert wrong == []


@pytest.mark.parametrize(
    ("name", "exists"),
    [
        ("dietcode.workload.spec.Spec.to_json", True),
        ("dietcode.workload.spec.Spec.target", True),
        ("dietcode.workload.spec.Spec.colour", False),
        ("dietcode.workload.spec.Spec.target.kind.colour", False),
        ("dietcode.workload.specs", False),
        ("time.monotonic", True),
    ],
)
def test_following_a_name(name: str, exists: bool) -> None:
    assert follow(name) is exists
