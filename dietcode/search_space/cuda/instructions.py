"""Instructions that TVM does not emit, those of the tensor cores, as small device functions in CUDA text.

Shared memory has 32-bit addresses, as these instructions take them. One text serves all architectures: what
an instruction of sm_80 does, sm_75 does with older ones, and it copies at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from dietcode.search_space.cuda.bulk_instructions import BULK_HELPERS
from dietcode.search_space.cuda.warpgroup_instructions import WARPGROUP_HELPERS

_HEAD = "__device__ __forceinline__"


def _matrices(name: str, count: int, suffix: str) -> str:
    """Read 8x8 matrices of two-byte elements; a quarter of the warp gives the addresses of one's rows."""
    operands = ", ".join(f"%{i}" for i in range(count))
    results = ", ".join(f'"=r"(to[{i}])' for i in range(count))
    # Half a warp gives the rows of two matrices; on sm_75 the addresses of the other half must be valid, too.
    others = (
        ""
        if count == 4
        else ("#if __CUDA_ARCH__ < 800\n  from = __shfl_sync(0xffffffffu, from, threadIdx.x % 16);\n#endif\n")
    )
    return f"""\
{_HEAD} void {name}(uint* to, uint from) {{
{others}  asm volatile("ldmatrix.sync.aligned.m8n8.x{count}{suffix}.shared.b16 {{{operands}}}, [%{count}];"
               : {results} : "r"(from) : "memory");
}}
"""


def _multiply(dtype: str, kind: str) -> str:
    """Accumulate: sums[16, 8] += rows[16, 16] · columns[8, 16]ᵀ, each spread over the warp."""
    accumulators = '"+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])'
    whole = f"""\
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 "
               "{{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
               : {accumulators}
               : "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "r"(columns[0]), "r"(columns[1]));
"""
    halves = "".join(
        f"""\
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.{kind}.{kind}.f32 "
               "{{%0, %1, %2, %3}}, {{%4, %5}}, {{%6}}, {{%0, %1, %2, %3}};"
               : {accumulators}
               : "r"(rows[{2 * i}]), "r"(rows[{2 * i + 1}]), "r"(columns[{i}]));
"""
        for i in range(2)
    )
    body = f"#if __CUDA_ARCH__ >= 800\n{whole}#else\n{halves}#endif\n" if kind == "f16" else whole
    return f"{_HEAD} void multiply_{dtype}(float* sums, const uint* rows, const uint* columns) {{\n{body}}}\n"


def _copy(num_bytes: int) -> str:
    """Copy to shared memory what exists, else zeros; complete behind `wait_for_copies`."""
    # Whole sectors go past L1, and bring those beside them to L2.
    cache, more = ("cg", ".L2::128B") if num_bytes == 16 else ("ca", "")
    words = num_bytes // 4
    kind = {1: "uint", 2: "uint2", 4: "uint4"}[words]
    fields = [f"value.{c}" for c in "xyzw"[:words]] if words > 1 else ["value"]
    clear = " = ".join([*fields, "0"])
    vector = f".v{words}" if words > 1 else ""
    operands = ", ".join(f"%{i + 1}" for i in range(words))
    operands = f"{{{operands}}}" if words > 1 else operands
    given = ", ".join(f'"r"({field})' for field in fields)
    return f"""\
{_HEAD} void copy_{num_bytes}(uint to, const void* from, bool exists) {{
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.{cache}.shared.global{more} [%0], [%1], {num_bytes}, %2;"
               :: "r"(to), "l"(from), "r"(exists ? {num_bytes} : 0) : "memory");
#else
  {kind} value;
  {clear};
  if (exists) value = *(const {kind}*)from;
  asm volatile("st.shared{vector}.b32 [%0], {operands};" :: "r"(to), {given} : "memory");
#endif
}}
"""


def _selected(name: str, comparison: str) -> str:
    return f"""\
{_HEAD} float {name}(float a, float b) {{
  return a {comparison} b || a != a ? a : b;
}}
"""


def _pack(dtype: str, kind: str) -> str:
    """Round two numbers to a pair, the first one in the low bits."""
    whole = f"""  asm("cvt.rn.{kind}x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));\n"""
    halves = """\
  asm("{.reg .f16 a, b; cvt.rn.f16.f32 a, %1; cvt.rn.f16.f32 b, %2; mov.b32 %0, {a, b};}"
      : "=r"(pair) : "f"(low), "f"(high));
"""
    body = f"#if __CUDA_ARCH__ >= 800\n{whole}#else\n{halves}#endif\n" if kind == "f16" else whole
    return f"{_HEAD} uint pack_{dtype}(float low, float high) {{\n  uint pair;\n{body}  return pair;\n}}\n"


HELPERS: dict[str, str] = {
    "larger_or_nan": _selected("larger_or_nan", ">"),
    "smaller_or_nan": _selected("smaller_or_nan", "<"),
    "shared_address": f"""\
{_HEAD} uint shared_address(const void* place) {{
  return (uint)__cvta_generic_to_shared(place);
}}
""",
    "read_matrices_4": _matrices("read_matrices_4", 4, ""),
    "read_matrices_2": _matrices("read_matrices_2", 2, ""),
    "read_matrices_4_transposed": _matrices("read_matrices_4_transposed", 4, ".trans"),
    "read_matrices_2_transposed": _matrices("read_matrices_2_transposed", 2, ".trans"),
    "multiply_float16": _multiply("float16", "f16"),
    "multiply_bfloat16": _multiply("bfloat16", "bf16"),
    "pack_float16": _pack("float16", "f16"),
    "pack_bfloat16": _pack("bfloat16", "bf16"),
    "copy_16": _copy(16),
    "copy_8": _copy(8),
    "copy_4": _copy(4),
    "end_copies": f"""\
{_HEAD} void end_copies() {{
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}}
""",
    "wait_for_copies": f"""\
template <int MAY_BE_ON_THEIR_WAY>
{_HEAD} void wait_for_copies() {{
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" :: "n"(MAY_BE_ON_THEIR_WAY) : "memory");
#endif
}}
""",
    "let_next_begin": f"""\
{_HEAD} void let_next_begin() {{
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}}
""",
    "wait_for_previous": f"""\
{_HEAD} void wait_for_previous() {{
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}}
""",
    "read_written": f"""\
{_HEAD} float read_written(const float* from) {{
  float value;
  asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(value) : "l"(from) : "memory");
  return value;
}}
""",
    **WARPGROUP_HELPERS,
    **BULK_HELPERS,
}
"""Text of each function by its name.

``read_matrices`` is ldmatrix; `from` is the address of a row: of matrix ``lane / 8``, row ``lane % 8``.
Fragments lie in the lanes of a warp as the PTX ISA has them for m16n8k16. ``wait_for_copies<n>`` waits for a
thread's own copies, all but those of the last n calls of ``end_copies``; a barrier waits for those of others.

A function that is launched to overlap with the one before it waits by ``wait_for_previous`` until that is
done and can be read; on older architectures it is launched when that is done. ``let_next_begin`` says
that a block's place may be taken by then. ``read_written`` reads what another function wrote meanwhile: the
compiler would take the read-only path for what a function itself does not write.
"""


def helpers_for(texts: Iterable[str]) -> str:
    """Return the functions that some texts call, in the order of `HELPERS`."""
    names = {name for text in texts for name in re.findall(r"\b(\w+)(?:<[\d, ]+>)?\(", text)}
    return "".join(f"\n{text}" for name, text in HELPERS.items() if name in names)
