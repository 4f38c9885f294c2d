"""Every command of ``dietcode`` with its arguments and options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dietcode.cli.app import commands
from reference.markdown import code, prose, table

_DEFAULT = re.compile(r"\s*\[default: (.+?)\]")
_TYPES = {int: "INTEGER", float: "NUMBER", Path: "FILE"}


def tree() -> Iterator[tuple[str, Any]]:
    """``("records export", command)`` for each command, groups left out, by name."""
    yield from _below("", commands())


def _below(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name in sorted(inner):
        yield from _below(f"{path} {name}".strip(), inner[name])


def text() -> str:
    """A section for each command."""
    return "\n".join(_section(path, command) for path, command in tree())


def _section(path: str, command: Any) -> str:
    shown = [param for param in command.params if not param.hidden]
    arguments = [param for param in shown if not param.opts[0].startswith("-")]
    options = [param for param in shown if param.opts[0].startswith("-")]
    words = ["dietcode", path]
    words += [_metavar(param) if param.required else f"[{_metavar(param)}]" for param in arguments]
    words += [f"{param.opts[0]} {_metavar(param)}" for param in options if param.required]
    words += ["[OPTIONS]"] if any(not param.required for param in options) else []
    about = "\n\n".join(prose(part) for part in command.help.split("\n\n"))
    rows = [(code(_metavar(param)), prose(param.help or ""), "") for param in arguments]
    rows += [(_names(param), *_meaning(param)) for param in options]
    parts = [f"## `dietcode {path}`", f"    {' '.join(words)}", about]
    parts += [table(("", "meaning", "default"), rows)] if rows else []
    return "\n\n".join(parts) + "\n"


def _metavar(param: Any) -> str:
    annotation = param.type_descriptor.annotation
    return str(param.metavar or _TYPES.get(annotation, "TEXT"))


def _names(param: Any) -> str:
    value = "" if param.is_flag else f" {_metavar(param)}"
    return ", ".join(code(name + value) for name in param.opts)


def _meaning(param: Any) -> tuple[str, str]:
    """Help and default of an option; help texts that name their default have it in brackets."""
    about = param.help or ""
    if named := _DEFAULT.search(about):
        return prose(_DEFAULT.sub("", about)), prose(named[1])
    bounds = [f"at least {param.min}"] if param.min is not None else []
    bounds += [f"at most {param.max}"] if param.max is not None else []
    about = prose(about) + (f" ({', '.join(bounds)})" if bounds else "")
    if param.required:
        return about, "required"
    has_default = param.default is not None and not param.is_flag
    return about, code(param.default) if has_default else ""
