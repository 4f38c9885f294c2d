"""A batched matrix product in Triton, tuned for each shape; sums in float32, TF32 off."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

# Rows, columns, steps, warps; the first on SIMT units, the second on tensor cores.
_FLOAT = (
    (128, 128, 16, 8),
    (128, 64, 16, 4),
    (64, 128, 16, 4),
    (64, 64, 16, 4),
    (64, 64, 32, 4),
    (32, 64, 32, 4),
    (16, 64, 32, 2),
    (16, 128, 32, 4),
)
_HALF = (
    (128, 256, 64, 8),
    (128, 128, 64, 8),
    (128, 128, 32, 4),
    (128, 64, 64, 4),
    (64, 128, 64, 4),
    (64, 64, 64, 4),
    (32, 64, 64, 4),
    (16, 64, 128, 4),
    (16, 128, 64, 4),
)
_GROUP = 8  # rows of tiles that are computed together, for the L2 cache


def _configs(tiles: tuple[tuple[int, int, int, int], ...], stages: tuple[int, ...]) -> list[Any]:
    return [
        triton.Config({"BM": m, "BN": n, "BK": k}, num_warps=warps, num_stages=count)
        for m, n, k, warps in tiles
        for count in stages
    ]


def _kernel(a, b, c, M, N, K, ab, am, ak, bb, bk, bn, cb, cm, cn,
            BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):  # fmt: skip
    batch = tl.program_id(1).to(tl.int64)
    tiles, lines = tl.cdiv(N, BN), tl.cdiv(M, BM)
    index = tl.program_id(0)
    group = index // (GROUP * tiles)
    height = tl.minimum(lines - group * GROUP, GROUP)
    inside = index % (GROUP * tiles)
    rows = (group * GROUP + inside % height) * BM + tl.arange(0, BM)
    columns = inside // height * BN + tl.arange(0, BN)
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
    tl.store(place, total.to(c.dtype.element_ty), mask=(rows[:, None] < M) & (columns[None, :] < N))


_compiled = triton.jit(_kernel)
_tuned = {
    is_half: triton.autotune(configs=configs, key=["M", "N", "K"])(_compiled)
    for is_half, configs in ((False, _configs(_FLOAT, (2, 3))), (True, _configs(_HALF, (3, 4))))
}


def matmul(torch: Any, a: Any, b: Any, config: dict[str, int] | None = None) -> Any:
    """``a[b, m, k] · b[b, k, n]`` in the dtype of both; strides may be any.

    Parameters
    ----------
    config : dict, optional
        Extents of a tile, instead of tuning them.
    """
    batch, rows, reduction = a.shape
    columns = b.shape[2]
    c = torch.empty((batch, rows, columns), device=a.device, dtype=a.dtype)

    def grid(meta: Any) -> tuple[int, int]:
        return triton.cdiv(rows, meta["BM"]) * triton.cdiv(columns, meta["BN"]), batch

    kernel = _compiled if config else _tuned[a.dtype.itemsize == 2]
    kernel[grid](
        a, b, c, rows, columns, reduction, *a.stride(), *b.stride(), *c.stride(), GROUP=_GROUP, **config or {}
    )
    return c
