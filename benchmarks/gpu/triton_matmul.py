"""A batched matrix product in Triton, tuned for each shape; float32, as cuBLAS with TF32 off."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

_TILES = (
    (128, 128, 16, 8),
    (128, 64, 16, 4),
    (64, 128, 16, 4),
    (64, 64, 16, 4),
    (64, 64, 32, 4),
    (32, 64, 32, 4),
    (16, 64, 32, 2),
    (16, 128, 32, 4),
)
_CONFIGS = [
    triton.Config({"BM": m, "BN": n, "BK": k}, num_warps=warps, num_stages=stages)
    for m, n, k, warps in _TILES
    for stages in (2, 3)
]


@triton.autotune(configs=_CONFIGS, key=["M", "N", "K"])
@triton.jit
def _kernel(a, b, c, M, N, K, ab, am, ak, bb, bk, bn, cb, cm, cn,
            BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    batch = tl.program_id(1).to(tl.int64)
    tiles = tl.cdiv(N, BN)
    rows = tl.program_id(0) // tiles * BM + tl.arange(0, BM)
    columns = tl.program_id(0) % tiles * BN + tl.arange(0, BN)
    steps = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        left = tl.load(
            a + batch * ab + rows[:, None] * am + (k + steps)[None, :] * ak,
            mask=(rows[:, None] < M) & ((k + steps)[None, :] < K),
            other=0.0,
        )
        right = tl.load(
            b + batch * bb + (k + steps)[:, None] * bk + columns[None, :] * bn,
            mask=((k + steps)[:, None] < K) & (columns[None, :] < N),
            other=0.0,
        )
        total = tl.dot(left, right, total, input_precision="ieee")
    place = c + batch * cb + rows[:, None] * cm + columns[None, :] * cn
    tl.store(place, total, mask=(rows[:, None] < M) & (columns[None, :] < N))


def matmul(torch: Any, a: Any, b: Any) -> Any:
    """``a[b, m, k] · b[b, k, n]``; strides may be any."""
    batch, rows, reduction = a.shape
    columns = b.shape[2]
    c = torch.empty((batch, rows, columns), device=a.device, dtype=a.dtype)

    def grid(meta: Any) -> tuple[int, int]:
        return triton.cdiv(rows, meta["BM"]) * triton.cdiv(columns, meta["BN"]), batch

    _kernel[grid](a, b, c, rows, columns, reduction, *a.stride(), *b.stride(), *c.stride())
    return c
