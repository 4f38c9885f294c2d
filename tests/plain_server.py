"""What a server is tested with without a compiler: files of a library, and targets that nobody has."""

from __future__ import annotations

import hashlib
import json

from small_libraries import spec_data

from dietcode.workload.spec import Spec
from dietcode_server.engine.targets import Resolved, Targets


class NoTargets(Targets):
    """Every target is one that no runner here has; jobs wait."""

    def resolve(self, spec: Spec) -> Resolved:
        return Resolved({"kind": spec.target.kind, "mcpu": "test"}, None, False)


def plain_files(name: str = "dense", code: bytes = b"code") -> dict[str, bytes]:
    """Files that can be published, and not run."""
    runtime = b"runtime"
    dispatch, report = {"categories": [], "rule": {}}, {"micro_kernels": [], "instances": []}
    files = {
        "library.so": code,
        "dispatch.json": json.dumps(dispatch).encode(),
        "report.json": json.dumps(report).encode(),
    }
    manifest = {
        "format": "dietcode-library/1",
        "name": name,
        "workload": spec_data(name),
        "workload_digest": "sha256:" + "ab" * 32,
        "target": {"kind": "llvm", "mcpu": "test"},
        "variable_order": ["T"],
        "runtime": _facts(runtime),
        "files": {path: _facts(data) for path, data in files.items()},
    }
    blob = f"blobs/{_facts(runtime)['sha256']}".replace(":", "-")
    return {**files, "manifest.json": json.dumps(manifest).encode(), blob: runtime}


def _facts(data: bytes) -> dict[str, object]:
    return {"bytes": len(data), "sha256": f"sha256:{hashlib.sha256(data).hexdigest()}"}
