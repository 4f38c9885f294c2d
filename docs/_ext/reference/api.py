"""Functions and classes of Python: how each is called, and its docstring as Markdown."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import BaseModel

from dietcode import errors
from reference.markdown import prose, table

_NAMED = {  # tables of (name, type and what it is); the other sections are prose
    "Parameters": "parameter",
    "Attributes": "attribute",
    "Returns": "returns",
    "Yields": "yields",
    "Raises": "raises",
}
_HEAD = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)


def described(name: str, *members: str) -> str:
    """An object and some of its members, in the order in which they are named.

    Parameters
    ----------
    name : str
        With its module, as it is imported.
    members : str
        Of a class; ``*`` for all that are public, in the order of the source.
    """
    module, _, attribute = name.rpartition(".")
    found = getattr(importlib.import_module(module), attribute)
    if members == ("*",):
        members = tuple(_public(found))
    parts = [_one(name, found), *(_one(_call(attribute, m), _member(found, m)) for m in members)]
    return "\n\n".join(parts) + "\n"


def several(module: str, names: str) -> str:
    """Some classes of a module."""
    return "\n".join(described(f"{module}.{name}") for name in names.split())


def exceptions() -> str:
    """All exceptions: the parent of each, its exit status, and when it is raised."""
    kinds = [
        one for one in vars(errors).values() if inspect.isclass(one) and one.__module__ == errors.__name__
    ]
    return "\n".join(f"{_one(f'dietcode.errors.{kind.__name__}', kind)}\n" for kind in kinds)


PARTS: dict[str, Callable[[], str]] = {
    f"python {title}": part
    for title, part in {
        "load": partial(described, "dietcode.load"),
        "pull": partial(described, "dietcode.pull"),
        "Library": partial(
            described,
            "dietcode.runtime.library.Library",
            *("pack", "bind", "torch_op", "torch_op_name", "select", "__call__", "report", "dispatch"),
        ),
        "Bound": partial(described, "dietcode.runtime.lean_call.Bound", "__call__"),
        "Model": partial(
            described,
            "dietcode.runtime.models.model.Model",
            *("__call__", "report", "torch_module", "step_secs"),
        ),
        "Structure": partial(described, "dietcode.runtime.recursion.structure.Structure", "of"),
        "LoadedRecursion": partial(
            described,
            "dietcode.runtime.recursion.loaded.LoadedRecursion",
            *("__call__", "report", "range_secs"),
        ),
        "RecordedProgram": partial(
            described,
            "dietcode.runtime.recorded.loaded.RecordedProgram",
            *("__call__", "explain", "block_runs", "profile"),
        ),
        "LoadedProgram": partial(
            described, "dietcode.runtime.programs.loaded.LoadedProgram", "__call__", "report", "block_runs"
        ),
        "BlockRun": partial(described, "dietcode.runtime.programs.loaded.BlockRun"),
        "TorchOp": partial(described, "dietcode.runtime.torch_operator.TorchOp", "forward"),
        "ModelModule": partial(described, "dietcode.runtime.models.torch_module.ModelModule", "forward"),
        "Linear": partial(described, "dietcode.nn.Linear", "from_torch", "forward"),
        "replace": partial(described, "dietcode.nn.replace"),
        "Client": partial(described, "dietcode.client.Client", "*"),
        "AsyncClient": partial(described, "dietcode.client.AsyncClient", "*"),
        "protocol": partial(
            several,
            "dietcode.protocol",
            "Job JobState JobEvent Progress JobPage LibraryRef LibraryInfo LibraryPage FileFacts Runner "
            "RunnerDevice",
        ),
        "load_spec": partial(described, "dietcode.workload.parse.load_spec"),
        "parse_spec": partial(described, "dietcode.workload.parse.parse_spec"),
        "spec_from_data": partial(described, "dietcode.workload.parse.spec_from_data"),
        "tune": partial(described, "dietcode.tuner.tune.tune"),
        "reselect": partial(described, "dietcode.tuner.reselect.reselect"),
        "errors": exceptions,
    }.items()
}


def _public(kind: type) -> Iterator[str]:
    """Names of the members that a class itself has and documents."""
    for name, value in vars(kind).items():
        if not name.startswith("_") and inspect.getdoc(value):
            yield name


def _member(kind: type, name: str) -> Any:
    return inspect.getattr_static(kind, name)


def _call(owner: str, member: str) -> str:
    """How a member is written in a program: of an object of the class, or the object itself called."""
    thing = re.sub(r"(?<!^)(?=[A-Z])", "_", owner).lower()
    return thing if member == "__call__" else f"{thing}.{member}"


def _one(name: str, found: Any) -> str:
    """One object: its call in bold, and its docstring."""
    if isinstance(found, classmethod | staticmethod):
        found = found.__func__
    text = inspect.getdoc(found) or ""
    return f"**`{name}{_signature(found)}`**\n\n{_markdown(text)}".rstrip()


def _signature(found: Any) -> str:
    """The parameters with their defaults, without types, which the docstring has with shapes and units."""
    if inspect.isclass(found) and (issubclass(found, BaseModel | Exception) or not _is_made(found)):
        return ""
    if not callable(found):
        return ""
    signature = inspect.signature(found)
    parameters = [
        one.replace(annotation=inspect.Parameter.empty, default=_default(one.default))
        for name, one in signature.parameters.items()
        if name not in {"self", "cls"}
    ]
    return str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))


@dataclass(frozen=True)
class _Named:
    """A default value that is shown by its name."""

    name: str

    def __repr__(self) -> str:
        return self.name


def _default(value: Any) -> Any:
    """A function is shown by its name: its own text has an address, which differs each time."""
    return _Named(value.__name__) if inspect.isfunction(value) else value


def _is_made(kind: type) -> bool:
    """Whether users make objects of a class: then its docstring says with what."""
    return "Parameters\n---" in (inspect.getdoc(kind) or "") and "__signature__" not in vars(kind)


def _markdown(text: str) -> str:
    """A docstring of numpydoc as Markdown."""
    pieces = _HEAD.split(text)
    parts = [_paragraphs(pieces[0])]
    for title, body in zip(pieces[1::2], pieces[2::2], strict=True):
        if title in _NAMED:
            parts.append(table((_NAMED[title], ""), _rows(body)))
        else:
            parts.append(f"*{title}*\n\n{_paragraphs(body)}")
    return "\n\n".join(part.strip() for part in parts if part.strip())


def _rows(body: str) -> Iterator[tuple[str, str]]:
    """Entries of a section: a line that is not indented, and what is below it."""
    entries = re.findall(r"^(\S.*)\n((?:[ \t]+.*\n?|\n(?=[ \t]))*)", body.rstrip() + "\n", re.MULTILINE)
    for head, text in entries:
        name, _, kind = (part.strip() for part in head.partition(" : "))
        said = ". ".join(part for part in (prose(kind), prose(text)) if part)
        yield ", ".join(f"`{one.strip()}`" for one in name.split(",")), said


def _paragraphs(text: str) -> str:
    """Paragraphs; what is indented after ``::`` is a block of code."""
    parts: list[str] = []
    for part in re.split(r"\n\s*\n", text.strip("\n")):
        if part.startswith("    "):
            code = "\n".join(line[4:] for line in part.splitlines())
            if parts and parts[-1].startswith("```python\n"):
                parts[-1] = f"{parts[-1][:-4]}\n\n{code}\n```"
            else:
                parts.append(f"```python\n{code}\n```")
        elif part.strip():
            parts.append(prose(part.removesuffix("::")) + (":" if part.endswith("::") else ""))
    return "\n\n".join(parts)
