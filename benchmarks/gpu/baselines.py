"""What micro-kernels are compared with: cuBLAS, torch.compile, Triton's autotuner; float32, TF32 off."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from packed import Pack, reference

_DENSE, _SCORES, _VALUES = "mk,nk->mn", "bmk,bnk->bmn", "bmk,bkn->bmn"
Function = Callable[[Mapping[str, Any]], Any]


def cublas(torch: Any, pack: Pack) -> Function:
    """The workload as PyTorch computes it eagerly: the contraction by cuBLAS, then one kernel a stage."""
    names = pack.facts["operands"]
    products = {
        _DENSE: torch.nn.functional.linear,
        _SCORES: lambda a, b: torch.bmm(a, b.transpose(1, 2)),
        _VALUES: torch.bmm,
    }
    product = products.get(pack.facts["einsum"])
    if product is None or pack.facts["stages"]:
        return lambda given: reference(torch, pack, given)
    return lambda given: product(given[names[0]], given[names[1]])


def compiled(torch: Any, pack: Pack) -> Function:
    """The same by ``torch.compile(dynamic=True)`` in max-autotune; its own CUDA graphs are left out, because
    all that is timed runs in one.
    """
    return torch.compile(cublas(torch, pack), dynamic=True, mode="max-autotune-no-cudagraphs")


def triton(torch: Any, pack: Pack) -> Function | None:
    """A plain matrix product tuned by Triton for each shape; None for workloads that it does not compute."""
    einsum, names = pack.facts["einsum"], pack.facts["operands"]
    if pack.facts["stages"] or einsum not in {_DENSE, _SCORES, _VALUES}:
        return None
    from triton_matmul import matmul

    def call(given: Mapping[str, Any]) -> Any:
        a, b = given[names[0]], given[names[1]]
        if einsum == _DENSE:
            a, b = a[None], b[None]
        return matmul(torch, a, b if einsum == _VALUES else b.transpose(1, 2))

    return call
