"""Environments that lack the packages of one extra, made of links to what is installed."""

from __future__ import annotations

import os
import re
import shutil
import site
import subprocess
import sys
import venv
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

from dietcode.extras import DISTRIBUTION, INCLUDED


def declared_extras() -> dict[str, tuple[Requirement, ...]]:
    """Requirements of each extra as the metadata of the distribution has them; the base's under ``""``."""
    own = distribution(DISTRIBUTION)
    names = own.metadata.get_all("Provides-Extra") or []
    lines = [Requirement(line) for line in own.requires or []]
    base = tuple(one for one in lines if one.marker is None or one.marker.evaluate({"extra": ""}))
    asked = {
        name: tuple(one for one in lines if one not in base and one.marker.evaluate({"extra": name}))
        for name in names
    }
    return {"": base, **asked}


def without(extra: str, folder: Path) -> Path:
    """An interpreter that finds all that is installed here, but for the packages of one extra.

    What the base installation needs stays, and so does what an extra includes of another one.

    Parameters
    ----------
    extra : str
        ``""`` leaves nothing out.
    folder : path
        Where the environment is made; it holds links only.
    """
    extras = declared_extras()
    kept = _closure(tuple(sorted(one.name for one in extras[""])))
    included = {one.name for name in INCLUDED.get(extra, ()) for one in extras[name]}
    hidden = (
        {_plain(one.name) for one in extras[extra] if one.name not in included} - kept if extra else set()
    )
    venv.create(folder, symlinks=True)
    (target,) = folder.glob("lib/python*/site-packages")
    for source in _site_folders():
        _link(source, target, _files_of(hidden, source))
    return folder / "bin" / "python"


def run(python: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """What a command of this environment prints; no variable leads to the packages that are hidden."""
    kept = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    return subprocess.run(
        [str(python), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=kept | variables,
    )


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def _closure(names: tuple[str, ...]) -> set[str]:
    """These distributions and all that they need, where installed."""
    found: set[str] = set()
    todo = [(name, "") for name in names]
    while todo:
        name, extra = todo.pop()
        if (_plain(name), extra) in found:
            continue
        found.add((_plain(name), extra))
        try:
            lines = distribution(name).requires or []
        except PackageNotFoundError:
            continue
        for one in map(Requirement, lines):
            if one.marker is None or one.marker.evaluate({"extra": extra}):
                todo += [(one.name, asked) for asked in ("", *one.extras)]
    return {name for name, _ in found}


def _site_folders() -> list[Path]:
    """Folders of packages, those that a .pth file adds among them."""
    own = {Path(place).resolve() for place in site.getsitepackages()}
    every = dict.fromkeys(Path(place).resolve() for place in sys.path)
    return [path for path in every if path.is_dir() and (path in own or path.name == "site-packages")]


def _files_of(hidden: set[str], folder: Path) -> set[str]:
    """What these distributions have put into a folder, and the folders below it that it lies in."""
    found: set[str] = set()
    for name in hidden:
        try:
            known = distribution(name)
        except PackageNotFoundError:
            continue
        place = os.path.realpath(str(known.locate_file("")))
        for file in known.files or []:
            path = os.path.normpath(os.path.join(place, str(file)))  # noqa: PTH118 - of 20,000
            while "__pycache__" not in file.parts and path not in found and path.startswith(f"{folder}/"):
                found.add(path)
                path = os.path.dirname(path)  # noqa: PTH120
    return found


def _link(source: Path, target: Path, hidden: set[str]) -> None:
    """Link what a folder holds into another; folders with something hidden are made, the rest are links.

    Parameters
    ----------
    hidden : set of str
        Files to leave out, and all folders that they lie in.
    """
    for entry in source.iterdir():
        place = target / entry.name
        is_hidden = str(entry) in hidden
        if place.exists() or (is_hidden and not entry.is_dir()):
            continue
        if not is_hidden:
            place.symlink_to(entry)
            continue
        place.mkdir()
        _link(entry, place, hidden)
        if not any(one.suffix != ".pyc" and not one.is_dir() for one in place.rglob("*")):
            shutil.rmtree(place)  # an empty folder would be found as a namespace
