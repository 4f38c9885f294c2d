"""Examples that the OpenAPI document shows; the tests hold them against the models."""

from __future__ import annotations

from typing import Any

_DIGEST = "sha256:" + "5f" * 32
_AT = "2026-01-05T09:30:00Z"

SPEC: dict[str, Any] = {
    "name": "bert-dense",
    "op": {"einsum": "mk,nk->mn"},
    "tensors": {
        "X": {"dims": "mk", "dtype": "float32"},
        "W": {"dims": "nk", "dtype": "float32", "constant": True},
    },
    "output": {"name": "Y", "dtype": "float32"},
    "shape_vars": {"T": {"min": 1, "max": 128}},
    "dims": {"m": "16*T", "n": 2304, "k": 768},
    "target": {"kind": "llvm"},
    "budget": {"trials": 256, "seconds": 600},
}
SUBMIT: dict[str, Any] = {
    "spec": SPEC,
    "model": None,
    "force": False,
    "measure": True,
    "priority": 0,
    "deadline": None,
}
TARGET: dict[str, Any] = {"kind": "llvm", "mcpu": "skylake-avx512", "num_cores": 2}
PROGRESS: dict[str, Any] = {
    "stage": "measure",
    "message": "micro-kernels",
    "done": 41,
    "total": 256,
    "best_gflops": 251.4,
    "secs_left": 190.0,
}
JOB: dict[str, Any] = {
    "id": "0123456789abcdef",
    "name": "bert-dense",
    "kind": "spec",
    "owner": "local",
    "state": "running",
    "workload": _DIGEST,
    "device_id": "8c1f2a",
    "device": "Intel Xeon, 2 cores",
    "target": TARGET,
    "spec": SPEC,
    "parts": None,
    "force": False,
    "measure": True,
    "attempt": 1,
    "measured": 41,
    "cancel_requested": False,
    "priority": 0,
    "deadline_at": None,
    "progress": PROGRESS,
    "error": None,
    "waits_for": None,
    "standing": None,
    "library": None,
    "created_at": _AT,
    "started_at": _AT,
    "finished_at": None,
    "updated_at": _AT,
}
JOB_PAGE: dict[str, Any] = {"jobs": [JOB], "next": None}
EVENT: dict[str, Any] = {
    "id": 7,
    "job": JOB["id"],
    "at": _AT,
    "kind": "progress",
    "state": None,
    "progress": PROGRESS,
    "message": "micro-kernels",
    "data": {},
}
LIBRARY: dict[str, Any] = {
    "name": "bert-dense",
    "version": 3,
    "kind": "library",
    "owner": "local",
    "job": JOB["id"],
    "workload": _DIGEST,
    "device": "Intel Xeon, 2 cores",
    "target": TARGET,
    "num_micro_kernels": 3,
    "size_bytes": 53_248,
    "manifest": {"sha256": _DIGEST, "size_bytes": 4_096},
    "created_at": _AT,
    "yanked_at": None,
    "standing": None,
}
LIBRARY_PAGE: dict[str, Any] = {"libraries": [LIBRARY], "next": None}
COMPARISON: dict[str, Any] = {
    "name": "bert-dense",
    "version": 3,
    "instances": [
        {
            "position": 36,
            "shape_vars": {"T": 37},
            "category": 1,
            "predicted_gflops": 251.4,
            "measured_gflops": 246.0,
            "vendor": "torch-eager",
            "vendor_gflops": 198.7,
            "vendors": {"torch-eager": 198.7},
            "company_gflops": 238.1,
            "vendor_company_gflops": 190.2,
            "max_rel_error": 3.1e-7,
            "spread": 1.04,
            "disturbed": None,
            "peak_gflops": 321.0,
            "roof_gflops": 321.0,
            "measured_at": _AT,
        }
    ],
}
MANIFEST: dict[str, Any] = {
    "format": "dietcode-library/1",
    "name": "bert-dense",
    "files": {"library.so": {"bytes": 53_248, "sha256": _DIGEST}},
}
ENVELOPE: dict[str, Any] = {
    "payload": "eyJpc3N1ZWRfYXQiOi…",
    "payloadType": "application/vnd.dietcode.manifest+json",
    "signatures": [{"keyid": _DIGEST, "sig": "kq3…"}],
}
PROVENANCE: dict[str, Any] = ENVELOPE | {"payloadType": "application/vnd.in-toto+json"}
KEYS: dict[str, Any] = {
    "current": _DIGEST,
    "keys": [
        {
            "fingerprint": _DIGEST,
            "public_key": "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA…\n-----END PUBLIC KEY-----\n",
            "state": "current",
            "since": _AT,
        }
    ],
    "rotations": [],
}
RUNNERS: dict[str, Any] = {
    "runners": [
        {
            "name": "rack1",
            "host": "rack1.example",
            "engine": "local",
            "version": "0.1.0",
            "devices": [
                {"id": "8c1f2a", "name": "Intel Xeon, 2 cores", "target": TARGET, "slot": "rack1.example"}
            ],
            "job": JOB["id"],
            "started_at": _AT,
            "seen_at": _AT,
        }
    ]
}
_GPU = {"kind": "cuda", "arch": "sm_90a"}
_GPU_HEADER: dict[str, Any] = {
    "format": "dietcode-records/1",
    "workload": _DIGEST,
    "device": {"id": "4e0c9d", "name": "a GPU", "num_sms": 132, "target": _GPU, "synthetic": False},
}
RECORDS_IMPORT: dict[str, Any] = {"lines": [_GPU_HEADER, {"kind": "calibration"}], "spec": SUBMIT["spec"]}
RECORDS_IMPORTED: dict[str, Any] = {
    "workload": _DIGEST,
    "device_id": "4e0c9d",
    "device": "a GPU",
    "added": 96,
    "known": 96,
    "queued": [JOB["id"]],
}
RECORDS_LIST: dict[str, Any] = {
    "workload": _DIGEST,
    "devices": [
        {
            "id": "4e0c9d",
            "name": "a GPU",
            "target": _GPU | {"num_sms": 132},
            "num_micro_kernels": 96,
            "last_at": _AT,
        }
    ],
}
RECORDS_FILE: dict[str, Any] = {"lines": [_GPU_HEADER]}
PROBLEMS: dict[int, tuple[str, str]] = {
    400: ("request", "the body is not JSON: Expecting value"),
    401: ("unauthorized", "no token that is valid here; make one on the server with `dietcode token create`"),
    403: ("origin", "Origin: given 'https://example.org'; allowed: http://127.0.0.1:8000, or none"),
    404: ("not-found", "job '0123456789abcdef': no such job; `dietcode jobs` lists them"),
    408: (
        "too-slow",
        "the request did not arrive within 30 s; DIETCODE_SERVE_SLOW_PEER_SECS sets the limit",
    ),
    409: ("conflict", "job '0123456789abcdef' has succeeded already; there is nothing to cancel"),
    413: (
        "body-too-large",
        "the body is larger than 1048576 bytes",
    ),
    415: ("request", "Content-Type: given 'text/plain'; allowed: application/json"),
    416: ("request", "Range: given 'bytes=900-'; allowed: within 0 to 511"),
    421: ("host", "Host: given 'example.org'; allowed: 127.0.0.1, localhost, [::1]"),
    422: ("request", "query.limit: given '0'; Input should be greater than or equal to 1"),
    429: ("too-many", "more than 600 submissions a minute; try again in 3 s"),
    500: ("internal", "the server failed on this request; its log says why"),
    503: ("unavailable", "the server's database does not answer; try again later"),
}
FORBIDDEN = ("forbidden", "bert-dense belongs to alice; submit under another name")
SPEC_PROBLEM = ("spec", "given 0; allowed: at least 1", "shape_vars.T.min")
TOKEN: dict[str, Any] = {
    "id": "1a2b3c4d",
    "owner": "alice",
    "scopes": ["read", "submit", "publish"],
    "state": "live",
    "created_at": "2026-01-05T09:30:00Z",
    "expires_at": "2026-04-05T09:30:00Z",
    "revoked_at": None,
    "last_used_at": None,
}
TOKENS = {"tokens": [TOKEN]}
TOKEN_REQUEST = {"owner": "alice", "scopes": ["read", "submit"], "expires_secs": 86400}
TOKEN_MADE = TOKEN | {"token": "dct_" + "x" * 43}
METRICS = 'dietcode_jobs{state="running"} 1.0\n'
EVENTS = 'event: state\ndata: {"id":1,"job":"0123456789abcdef","kind":"state","state":"queued"}\nid: 1\n\n'
