"""The files of a bundle that say what it is; its libraries and weights are put beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from dietcode._version import __version__
from dietcode.models.budgets import PartSearch, unfinished
from dietcode.models.planning import ModelPlan, PlannedPart
from dietcode.runtime.manifest import (
    BUNDLE_FORMAT,
    MODEL,
    PROGRAM,
    PROGRAM_FORMAT,
    RECORDED_FORMAT,
    RECURSION,
    RECURSION_FORMAT,
    REPORT,
    pretty_json,
)


class Planned(Protocol):
    """What a report is written of: a model, or a recursion, that is taken apart."""

    @property
    def parts(self) -> Sequence[PlannedPart]:
        """Its parts."""

    @property
    def facts(self) -> dict[str, Any]:
        """What a report says of the whole."""


def report_of_model(
    plan: Planned, code_bytes: Mapping[str, int], searches: Mapping[str, PartSearch | None]
) -> dict[str, Any]:
    """Return what ``dietcode inspect`` shows of a model.

    Parameters
    ----------
    code_bytes : mapping of str to int
        Of each part, by its digest.
    searches : mapping of str to PartSearch or None
        How far that of each part went; None, or left out, where that is not known.
    """
    known = {digest: search.to_json() for digest, search in searches.items() if search is not None}
    rows: list[dict[str, Any]] = [
        {
            "digest": part.digest,
            "name": part.name,
            "kind": part.kind,
            "operator": part.spec.op.whole,
            "calls": part.calls,
            "flops_at_most": part.flops_at_most,
            "code_bytes": code_bytes[part.digest],
            "search": known.get(part.digest),
        }
        for part in plan.parts
    ]
    by_work = sorted(rows, key=lambda row: -int(row["flops_at_most"]))
    return {**plan.facts, "warning": unfinished(rows), "parts": by_work}


_DESCRIPTIONS = {RECURSION_FORMAT: RECURSION, PROGRAM_FORMAT: PROGRAM, RECORDED_FORMAT: PROGRAM}


def described_files(plan: ModelPlan, report: Mapping[str, Any]) -> dict[str, bytes]:
    """Return steps and report, by the name of the file."""
    name = _DESCRIPTIONS.get(plan.description["format"], MODEL)
    return {name: pretty_json(plan.description), REPORT: pretty_json(report)}


def bundle_manifest(
    plan: ModelPlan,
    files: Mapping[str, Mapping[str, Any]],
    libraries: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the manifest; that of a recursion says what samples it was tuned for.

    Parameters
    ----------
    files : mapping
        ``{"bytes", "sha256"}`` of each file of the bundle's own.
    libraries : mapping
        What is listed of each library, by the digest of its part: ``manifest``, the digest of its manifest.
    """
    known = plan.description["format"]
    stated = ("workspace_bytes", "node_bytes", "samples")  # a program's memory follows from its instances
    return {
        "format": known if known in _DESCRIPTIONS else BUNDLE_FORMAT,
        "name": plan.name,
        "version": __version__,
        "files": files,
        "libraries": libraries,
        "dimensions": plan.facts["dimensions"],
        **{key: plan.facts[key] for key in stated if plan.facts.get(key) is not None},
    }
