"""Opening the bundle of a recorded program, and joining it with its function."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from dietcode.errors import LibraryError
from dietcode.runtime.loading import LoadOptions
from dietcode.runtime.manifest import PROGRAM, RECORDED_FORMAT, WEIGHTS
from dietcode.runtime.models.loading import kernels_of, open_bundle
from dietcode.runtime.models.weights import read_weights
from dietcode.runtime.programs.loading import checked_limits
from dietcode.runtime.programs.plan import read_recorded
from dietcode.runtime.recorded.loaded import Opened, RecordedProgram
from dietcode.runtime.recorded.regions import SourceRegion, UnitParts
from dietcode.runtime.recorded.session import Rewritten
from dietcode.runtime.recorded.units import (
    SourceUnit,
    forget_changed_files,
    outermost,
    runs_as_written,
    units_of,
)
from dietcode.runtime.recorded.variants import RecordedRegion, Variant


def load_recorded(folder: Path, options: LoadOptions, program: Any) -> RecordedProgram:
    """Load the bundle of a recorded program; errors as for a model.

    Parameters
    ----------
    folder : Path
    options : LoadOptions
    program : Program
        The function that it was compiled from, or a later version of it: functions whose source has changed
        run as plain Python.

    Raises
    ------
    LibraryError
        `program` is none; or as for a model.
    """
    if program is None or not hasattr(program, "function") or not hasattr(program, "bound"):
        raise LibraryError(
            f"{folder}: the kernels of a program, which run with its Python function; give it: "
            "dietcode.load(DIR, program=encode)"
        )
    found = open_recorded(folder, options)
    units, regions, flags, spaces, changed = found_units(found.plan.units, program.function)
    return RecordedProgram(found, program, regions, Rewritten(units, flags, spaces), changed)


def open_recorded(folder: Path, options: LoadOptions) -> Opened:
    """Open the bundle of a recorded program, and check all of it; errors as for a model."""
    manifest, plan, libraries = open_bundle(folder, (RECORDED_FORMAT, PROGRAM), read_recorded, options)
    limits = checked_limits(folder / PROGRAM, plan, libraries)
    weights = read_weights(options.weights or folder / WEIGHTS, plan.weights)
    kernels_of(plan, libraries, weights)
    return Opened(folder, manifest, plan, libraries, weights, limits)


def found_units(
    data: Sequence[Mapping[str, Any]], function: FunctionType
) -> tuple[
    dict[SourceUnit, UnitParts],
    list[RecordedRegion],
    dict[str, int],
    dict[str, dict[str, Any]],
    list[str],
]:
    """Return the units of a bundle as they stand in the files of this process.

    Parameters
    ----------
    data : sequence of mapping
        ``units`` of ``program.json``.
    function : function
        The program's: its file is looked through first.

    Returns
    -------
    units : dict of SourceUnit to UnitParts
    regions : list of RecordedRegion
        Of functions whose source is as it was.
    flags, spaces : dict
        As `Rewritten` takes them.
    changed : list of str
        Functions that are not as they were, as ``trees.py:node``.
    """
    names = {file for file, _, _ in _sources_in(data)}
    flags: dict[str, int] = {}
    spaces: dict[str, dict[str, Any]] = {}
    codes: list[CodeType] = []
    for one in [function, *(one for one in gc.get_objects() if type(one) is FunctionType)]:
        file = one.__code__.co_filename
        if Path(file).name in names:
            codes.append(one.__code__)
            flags.setdefault(file, one.__code__.co_flags)
            spaces.setdefault(file, one.__globals__)
    units: dict[SourceUnit, UnitParts] = {}
    regions: list[RecordedRegion] = []
    sources = _Sources(data, codes)
    for unit_data in data:
        unit = sources.unit_of(unit_data["file"], unit_data["qualname"], unit_data["digest"])
        if unit is None:
            continue
        found: list[SourceRegion] = []
        for one in unit_data["regions"]:
            if any(sources.unit_of(*source) is None for source in one["reads"]):
                continue  # plain Python calls these functions, which may have regions of their own
            region = SourceRegion.from_json(one["region"])
            variants = [Variant.from_json(variant) for variant in one["variants"]]
            regions.append(RecordedRegion(unit, region, variants, str(one["reason"])))
            found.append(region)
        numbers = (
            [int(number) for number in unit_data[word]] for word in ("concurrent", "stored", "instances")
        )
        units[unit] = UnitParts(found, *numbers)
    return units, regions, flags, spaces, list(sources.changed)


def _sources_in(data: Sequence[Mapping[str, Any]]) -> set[tuple[str, str, str]]:
    """Return file, qualified name and digest of all functions of a bundle."""
    found = {(str(one["file"]), str(one["qualname"]), str(one["digest"])) for one in data}
    for source in (source for one in data for region in one["regions"] for source in region["reads"]):
        file, qualname, digest = map(str, source)
        found.add((file, qualname, digest))
    return found


class _Sources:
    """The functions of a bundle in the files of this process.

    Parameters
    ----------
    data : sequence of mapping
        As `found_units` takes it.
    codes : sequence of CodeType
        Of the functions of all files that may have them, the program's first.

    Attributes
    ----------
    changed : dict of str
        Those that were asked for and have another source now, in order.
    """

    def __init__(self, data: Sequence[Mapping[str, Any]], codes: Sequence[CodeType]) -> None:
        forget_changed_files()
        self.changed: dict[str, None] = {}
        self._own = own = codes[0].co_filename
        self._codes: dict[tuple[str, str], list[CodeType]] = {}
        for code in codes:
            self._codes.setdefault((code.co_filename, outermost(code)), []).append(code)
        files = dict.fromkeys(code.co_filename for code in codes)
        self._known: dict[tuple[str, str, str], SourceUnit] = {}
        for one in (unit for file in files for unit in units_of(file)):
            self._known.setdefault((Path(one.file).name, one.qualname, one.digest), one)
        of_own = {(Path(own).name, one.qualname, one.digest) for one in units_of(own)}
        self._newer = {source[:2] for source in of_own - _sources_in(data)}

    def unit_of(self, file: str, qualname: str, digest: str) -> SourceUnit | None:
        """Return a function; None where its source has changed."""
        found = self._known.get((file, qualname, digest))
        is_newest = found is not None and (found.file == self._own or (file, qualname) not in self._newer)
        if found is not None and is_newest and runs_as_written(found, self._codes[found.file, qualname]):
            return found
        self.changed[f"{file}:{qualname}"] = None
        return None
