"""Instructions of warpgroups, which only sm_90a has, as small device functions in CUDA text.

``wgmma.mma_async`` multiplies 64 rows by up to 256 columns, 16 steps at a time, of operands that it reads
from shared memory by descriptors, while threads go on. It reads by way of the asynchronous proxy: what
threads have written there, ``cp.async`` too, has to be published by a fence first. Sources: PTX ISA,
"Asynchronous Warpgroup Level Matrix Instructions", and "Async proxy".
"""

from __future__ import annotations

_HEAD = "__device__ __forceinline__"
_STEP = 8  # columns in whose multiples an instruction multiplies
MAX_COLUMNS = 256
SWIZZLE_MODES = {128: 1, 64: 2, 32: 3}
"""What a descriptor says of the bytes of a line in shared memory."""
_KINDS = {"float16": "f16", "bfloat16": "bf16"}


def multiply_name(dtype: str, columns: int) -> str:
    """Return the name of the function that multiplies so many columns."""
    return f"multiply_warpgroup_{dtype}_{columns}"


def _multiply(dtype: str, columns: int) -> str:
    """Accumulate sums[64, columns] += rows[64, 16] · columns[columns, 16]ᵀ, once it is waited for.

    An operand is transposed where neighbouring elements in shared memory are of neighbouring rows (columns),
    and not of neighbouring steps.
    """
    count, kind = columns // 2, _KINDS[dtype]
    accumulators = ", ".join(f"%{i}" for i in range(count))
    given = ", ".join(f'"+f"(sums[{i}])' for i in range(count))
    return f"""\
template <int IS_ROWS_TRANSPOSED, int IS_COLUMNS_TRANSPOSED>
{_HEAD} void {multiply_name(dtype, columns)}(
    float* sums, unsigned long long rows, unsigned long long columns) {{
  asm volatile("{{\\n.reg .pred adds;\\nsetp.ne.b32 adds, %{count + 2}, 0;\\n"
               "wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{kind}.{kind} "
               "{{{accumulators}}}, %{count}, %{count + 1}, adds, 1, 1, %{count + 3}, %{count + 4};\\n}}"
               : {given}
               : "l"(rows), "l"(columns), "r"(1), "n"(IS_ROWS_TRANSPOSED), "n"(IS_COLUMNS_TRANSPOSED));
}}
"""


DESCRIPTOR = "matrix_descriptor"
"""Name of the function that describes a tile in shared memory."""
WARPGROUP_HELPERS: dict[str, str] = {
    DESCRIPTOR: f"""\
template <int SWIZZLE, int LEADING_BYTES, int STRIDE_BYTES>
{_HEAD} unsigned long long {DESCRIPTOR}(uint address) {{
  return (unsigned long long)((address & 0x3ffff) >> 4) | (unsigned long long)(LEADING_BYTES >> 4) << 16 |
         (unsigned long long)(STRIDE_BYTES >> 4) << 32 | (unsigned long long)SWIZZLE << 62;
}}
""",
    "same_in_warp": f"""\
{_HEAD} int same_in_warp(int value) {{
  return __shfl_sync(0xffffffffu, value, 0);
}}
""",
    "publish_copies": f"""\
{_HEAD} void publish_copies() {{
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}}
""",
    "begin_products": f"""\
{_HEAD} void begin_products() {{
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}}
""",
    "end_products": f"""\
{_HEAD} void end_products() {{
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}}
""",
    "wait_for_products": f"""\
template <int MAY_BE_ON_THEIR_WAY>
{_HEAD} void wait_for_products() {{
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(MAY_BE_ON_THEIR_WAY) : "memory");
}}
""",
    "hold_sums": f"""\
template <int COUNT>
{_HEAD} void hold_sums(float* sums) {{
#pragma unroll
  for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(sums[i]) :: "memory");
}}
""",
    **{
        multiply_name(dtype, columns): _multiply(dtype, columns)
        for dtype in _KINDS
        for columns in range(_STEP, MAX_COLUMNS + 1, _STEP)
    },
}
"""Text of each function by its name.

``matrix_descriptor`` takes the 18 bits of an address, and offsets in multiples of 16 bytes; the base offset
is 0, since tiles begin where the pattern of the swizzle does. ``publish_copies`` shows other threads'
instructions what the thread has written, behind the next barrier. ``begin_products`` comes between a thread's
own use of accumulators and instructions that take them; ``hold_sums`` keeps the compiler from moving that use
over them.
"""
