"""Opening the bundle of a recorded program, and joining it with its function."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

from dietcode.errors import LibraryError
from dietcode.runtime.loading import LoadOptions
from dietcode.runtime.manifest import PROGRAM, RECORDED_FORMAT, WEIGHTS
from dietcode.runtime.models.executable import KernelStep
from dietcode.runtime.models.loading import kernels_of, open_bundle
from dietcode.runtime.models.weights import read_weights
from dietcode.runtime.programs.loading import check_ranges, tables_of_ids
from dietcode.runtime.programs.plan import read_recorded
from dietcode.runtime.recorded.loaded import Opened, RecordedProgram
from dietcode.runtime.recorded.regions import Parts, Region
from dietcode.runtime.recorded.session import Rewritten
from dietcode.runtime.recorded.units import Unit, units_of
from dietcode.runtime.recorded.variants import RecordedRegion, Variant


def load_recorded(folder: Path, options: LoadOptions, program: Any) -> RecordedProgram:
    """Load the bundle of a recorded program; errors as for a model.

    Parameters
    ----------
    folder : Path
    options : LoadOptions
    program : Program
        The function that it was compiled from, or a later version of it: functions whose source has changed run as
        plain Python.

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
    path = folder / PROGRAM
    limits: dict[tuple[int, int], int] = {}
    for number, block in enumerate(plan.blocks):
        for step in block.steps:
            if isinstance(step, KernelStep):
                check_ranges(path, plan, block, step, libraries[step.digest])
        for operand, rows in tables_of_ids(path, plan, block, libraries):
            limits[number, operand] = min(rows, limits.get((number, operand), rows))
    weights = read_weights(options.weights or folder / WEIGHTS, plan.weights)
    kernels_of(plan, libraries, weights)
    return Opened(folder, manifest, plan, libraries, weights, limits)


def found_units(
    data: Sequence[Mapping[str, Any]], function: FunctionType
) -> tuple[
    dict[Unit, Parts],
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
    units : dict of Unit to Parts
    regions : list of RecordedRegion
        Of functions whose source is as it was.
    flags, spaces : dict
        As `Rewritten` takes them.
    changed : list of str
        Functions that are not as they were, as ``trees.py:node``.
    """
    names = {str(one["file"]) for one in data}
    flags: dict[str, int] = {}
    spaces: dict[str, dict[str, Any]] = {}
    own = [one for one in gc.get_objects() if type(one) is FunctionType]
    for one in [function, *own]:
        file = one.__code__.co_filename
        if Path(file).name in names:
            flags.setdefault(file, one.__code__.co_flags)
            spaces.setdefault(file, one.__globals__)
    units: dict[Unit, Parts] = {}
    regions: list[RecordedRegion] = []
    changed: list[str] = []
    for unit_data in data:
        files = [file for file in spaces if Path(file).name == unit_data["file"]]
        known = [one for file in files for one in units_of(file) if one.qualname == unit_data["qualname"]]
        unit = next((one for one in known if one.digest == unit_data["digest"]), None)
        if unit is None:
            changed.append(f"{unit_data['file']}:{unit_data['qualname']}")
            continue
        found: list[Region] = []
        for one in unit_data["regions"]:
            region = Region.from_json(one["region"])
            variants = [Variant.from_json(variant) for variant in one["variants"]]
            regions.append(RecordedRegion(unit, region, variants, str(one["reason"])))
            found.append(region)
        numbers = (
            [int(number) for number in unit_data[word]] for word in ("concurrent", "stored", "instances")
        )
        units[unit] = Parts(found, *numbers)
    return units, regions, flags, spaces, changed
