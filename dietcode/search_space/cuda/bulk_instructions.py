"""Bulk copies of tensors and the barriers that count them, which only sm_90a has, as device functions.

``cp.async.bulk.tensor`` copies a box of a tensor to shared memory by itself, and completes so many bytes of a
transaction of an mbarrier. It writes by way of the asynchronous proxy, by which ``wgmma`` reads: nothing has
to be published. Sources: PTX ISA, "Data Movement and Conversion Instructions: Bulk and Tensor copy",
"Parallel Synchronization and Communication Instructions: mbarrier", "Tracking asynchronous operations by the
mbarrier object", "membar / fence", and "Miscellaneous Instructions: setmaxnreg".
"""

from __future__ import annotations

_HEAD = "__device__ __forceinline__"
TENSOR_MAP = "CUtensorMap"
"""Name of the type of a map, as code generation has it."""
MAP_BYTES = 128
MAP_TEXT = f"""\
struct alignas({MAP_BYTES}) {TENSOR_MAP} {{
  unsigned long long words[{MAP_BYTES // 8}];
}};
"""
"""What declares it."""
_CONSUMERS_BARRIER = 1  # 0 is that of the whole block
MAX_AXES = 3


def _copy(axes: int, to_all: bool) -> str:
    """Begin to copy the box at coordinates, the innermost axis first, and tell a barrier of its bytes.

    Or to the blocks of a cluster that a mask names.
    """
    given = ", ".join(f"int at_{i}" for i in range(axes))
    coordinates = ", ".join(f"%{i + 3}" for i in range(axes))
    values = ", ".join(f'"r"(at_{i})' for i in range(axes))
    if to_all:
        return f"""\
template <int MASK>
{_HEAD} void copy_box_{axes}_to_all(const {TENSOR_MAP}& map, uint to, uint barrier, {given}) {{
  asm volatile("cp.async.bulk.tensor.{axes}d.shared::cluster.global.mbarrier::complete_tx::bytes"
               ".multicast::cluster [%0], [%1, {{{coordinates}}}], [%2], %{axes + 3};"
               :: "r"(to), "l"(&map), "r"(barrier), {values}, "h"((ushort)MASK) : "memory");
}}
"""
    return f"""\
{_HEAD} void copy_box_{axes}(const {TENSOR_MAP}& map, uint to, uint barrier, {given}) {{
  asm volatile("cp.async.bulk.tensor.{axes}d.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1, {{{coordinates}}}], [%2];"
               :: "r"(to), "l"(&map), "r"(barrier), {values} : "memory");
}}
"""


BULK_HELPERS: dict[str, str] = {
    "make_barrier": f"""\
template <int ARRIVALS>
{_HEAD} void make_barrier(uint barrier) {{
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "n"(ARRIVALS) : "memory");
}}
""",
    "show_barriers": f"""\
{_HEAD} void show_barriers() {{
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}}
""",
    "prefetch_map": f"""\
{_HEAD} void prefetch_map(const {TENSOR_MAP}& map) {{
  asm volatile("prefetch.tensormap [%0];" :: "l"(&map) : "memory");
}}
""",
    "arrive": f"""\
{_HEAD} void arrive(uint barrier) {{
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(barrier) : "memory");
}}
""",
    "arrive_and_expect": f"""\
template <int BYTES>
{_HEAD} void arrive_and_expect(uint barrier) {{
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :: "r"(barrier), "n"(BYTES) : "memory");
}}
""",
    "wait_for_phase": f"""\
{_HEAD} void wait_for_phase(uint barrier, int parity) {{
  asm volatile("{{\\n.reg .pred is_over;\\nagain:\\n"
               "mbarrier.try_wait.parity.shared::cta.b64 is_over, [%0], %1;\\n"
               "@!is_over bra again;\\n}}"
               :: "r"(barrier), "r"(parity) : "memory");
}}
""",
    "give_registers": f"""\
template <int KEPT>
{_HEAD} void give_registers() {{
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(KEPT));
}}
""",
    "take_registers": f"""\
template <int TAKEN>
{_HEAD} void take_registers() {{
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(TAKEN));
}}
""",
    "meet_consumers": f"""\
template <int THREADS>
{_HEAD} void meet_consumers() {{
  asm volatile("barrier.sync.aligned {_CONSUMERS_BARRIER}, %0;" :: "n"(THREADS) : "memory");
}}
""",
    "arrive_in_cluster": f"""\
{_HEAD} void arrive_in_cluster(uint barrier, int block) {{
  asm volatile("{{\\n.reg .b32 there;\\n"
               "mapa.shared::cluster.u32 there, %0, %1;\\n"
               "mbarrier.arrive.shared::cluster.b64 _, [there];\\n}}"
               :: "r"(barrier), "r"(block) : "memory");
}}
""",
    "meet_cluster": f"""\
{_HEAD} void meet_cluster() {{
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}}
""",
    "blocks_of_grid": f"""\
{_HEAD} int blocks_of_grid() {{
  return (int)gridDim.x;
}}
""",
    **{f"copy_box_{axes}": _copy(axes, False) for axes in range(2, MAX_AXES + 1)},
    **{f"copy_box_{axes}_to_all": _copy(axes, True) for axes in range(2, MAX_AXES + 1)},
}
"""Text of each function by its name.

``make_barrier`` says how many arrivals end a phase, together with all bytes that it was told to expect;
``show_barriers`` shows the new barriers to other threads, and to copies. ``wait_for_phase`` waits until the
phase of that parity is over; of a new barrier the one of parity 1 is. ``give_registers`` and
``take_registers`` are run by whole warpgroups, and the latter waits until registers are there.

Blocks of a cluster have numbers from 0. ``copy_box_2_to_all`` copies to the blocks of a mask, to the address
in each that `to` is in this one, and tells the barrier of each at the address that `barrier` is here.
``arrive_in_cluster`` tells the barrier of another block, or of this one. It has no scope of a cluster, which
would take a fence of the whole GPU for what threads have written: what is told is that tensor cores have
read, and what follows are copies. ``meet_cluster`` waits for all threads of all blocks of a cluster.
"""
