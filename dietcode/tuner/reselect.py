"""``dietcode reselect``: other categories from the measurements that a library's report holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dietcode.errors import LibraryError
from dietcode.measure.children import Children
from dietcode.runtime.manifest import REPORT, check_writable, read_json, read_manifest
from dietcode.target.kinds import archs_of
from dietcode.tuner.events import OnEvent, silent
from dietcode.tuner.report import records_of
from dietcode.tuner.tune import TuneResult, make_library, write_library
from dietcode.workload.identity import workload_digest
from dietcode.workload.parse import spec_from_data, spec_of
from dietcode.workload.spec import Spec


def reselect(
    library: Path,
    objective: Mapping[str, Any],
    folder: Path,
    *,
    on_event: OnEvent = silent,
    children: Children | None = None,
) -> TuneResult:
    """Choose and build again for another objective; nothing is measured.

    Parameters
    ----------
    library : Path
        A library folder; it stays as it is.
    objective : mapping
        Fields of the spec's objective that change.
    folder : Path
        Where the new library goes.

    Raises
    ------
    SpecError
        A field of the objective is refused.
    LibraryError
        The library is incomplete or altered, or holds no measurements; `folder` cannot be written.
    RecordsError
        The measurements in its report are synthetic.
    TuningError
        The caps cannot be met.
    """
    manifest = read_manifest(library)
    spec = with_objective(spec_of(manifest), objective)
    check_writable(folder)
    report = read_json(library / REPORT)
    if report.get("workload_digest", workload_digest(spec)) != workload_digest(spec):
        raise LibraryError(f"{library}: its report is of another workload; tune again")
    # A library for GPUs holds code for some architectures, and again for these.
    archs = archs_of(manifest["requires"])
    result = make_library(spec, known=records_of(report), on_event=on_event, children=children, archs=archs)
    write_library(result, folder, on_event)
    return result


def with_objective(spec: Spec, changes: Mapping[str, Any]) -> Spec:
    """Return a spec with other fields of its objective.

    Raises
    ------
    SpecError
        A field is unknown or its value is refused.
    """
    data = spec.to_json()
    return spec_from_data(data | {"objective": data["objective"] | dict(changes)})
