"""The files of a bundle that say what it is; its libraries and weights are put beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dietcode._version import __version__
from dietcode.models.planning import ModelPlan
from dietcode.runtime.manifest import BUNDLE_FORMAT, MODEL, REPORT, pretty_json


def report_of_model(plan: ModelPlan, code_bytes: Mapping[str, int]) -> dict[str, Any]:
    """Return what ``dietcode inspect`` shows of a model.

    Parameters
    ----------
    code_bytes : mapping of str to int
        Of each part, by its digest.
    """
    rows = [
        {
            "digest": part.digest,
            "name": part.name,
            "kind": part.kind,
            "operator": str(part.spec.op),
            "calls": part.calls,
            "flops_at_most": part.flops_at_most,
            "code_bytes": code_bytes[part.digest],
        }
        for part in plan.parts
    ]
    return {**plan.facts, "parts": sorted(rows, key=lambda row: -int(row["flops_at_most"]))}


def described_files(plan: ModelPlan, report: Mapping[str, Any]) -> dict[str, bytes]:
    """Return steps and report, by the name of the file."""
    return {MODEL: pretty_json(plan.description), REPORT: pretty_json(report)}


def bundle_manifest(
    plan: ModelPlan, files: Mapping[str, Mapping[str, Any]], libraries: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the manifest.

    Parameters
    ----------
    files : mapping
        ``{"bytes", "sha256"}`` of each file of the bundle's own.
    libraries : mapping
        What is listed of each library, by the digest of its part: ``manifest``, the digest of its manifest.
    """
    return {
        "format": BUNDLE_FORMAT,
        "name": plan.name,
        "version": __version__,
        "files": files,
        "libraries": libraries,
        "dimensions": plan.description["dimensions"],
        "workspace_bytes": plan.description["storages"]["max_bytes"],
    }
