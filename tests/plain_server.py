"""What a server is tested with without a compiler: files of a library, and targets that nobody has."""

from __future__ import annotations

import json
from typing import Any

from small_libraries import with_manifest

from dietcode.workload.spec import Spec
from dietcode_server.engine.targets import Resolved, Targets


class NoTargets(Targets):
    """Every target is one that no runner here has; jobs wait."""

    def resolve(self, spec: Spec) -> Resolved:
        return Resolved({"kind": spec.target.kind, "mcpu": "test"}, None, False)


def plain_files(name: str = "dense", code: bytes = b"code", **changes: Any) -> dict[str, bytes]:
    """Files that can be published, and not run; `changes` are fields of the manifest."""
    dispatch, report = {"categories": [], "rule": {}}, {"micro_kernels": [], "instances": []}
    files = {
        "library.so": code,
        "dispatch.json": json.dumps(dispatch).encode(),
        "report.json": json.dumps(report).encode(),
    }
    return with_manifest(files, name, **changes)
