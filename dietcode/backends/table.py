"""From the kind of a target to its backend; a new one is added here and to the formats of records."""

from __future__ import annotations

from dietcode.backends.cpu.backend import CpuBackend
from dietcode.backends.cuda.backend import CudaBackend
from dietcode.backends.protocol import Backend
from dietcode.target.base import kind_of
from dietcode.workload.spec import Spec

BACKENDS: dict[str, Backend] = {backend.kind: backend for backend in (CpuBackend(), CudaBackend())}


def backend_of(spec: Spec) -> Backend:
    """Return the backend of a spec's target."""
    return BACKENDS.get(kind_of(spec.target), BACKENDS["llvm"])
