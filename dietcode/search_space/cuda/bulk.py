"""One thread block where a warpgroup copies in bulk and the others multiply, while its function is built.

    all: make the barriers, meet
    producer, one thread of the last warpgroup:                    the others give their registers
      for k_outer, tiles of `k_tile` steps:
        wait until the stage is empty
        full[stage] expects the tile's bytes
        begin bulk copies of the boxes of rows and columns         cp.async.bulk.tensor; zeros past an edge
    consumers, the other warpgroups:
      for k_outer:
        wait until the stage is full
        for 16 steps of the tile: acc += shared · shared           wgmma.mma_async
        wait for the products of tile k_outer - 1; its stage is empty
      Y[row, column] = epilogue(acc)                               as `TensorCoreKernel` does

Stages are a ring. Of each a barrier is told that it is full, by an arrival and by the bytes that copies have
written, and another that it is empty, by an arrival of each consuming warp. Barriers count phases: a stage is
full for the n-th time when phase n of the first is over, and a phase is told by its parity, since no thread
is more than one phase behind.

In a cluster both blocks have the tile of one operand in common: each copies half of it to both, and the whole
of its own tile of the other operand.

    all: make the barriers, meet the other block's threads
    producer:  stage empty in both blocks -> copy own tile, and half of the common one to both
    consumers: products of a tile done    -> the stage is empty, told to both blocks
    all: meet the other block's threads                            nobody may use memory of a block that ended

A stage is full when a block has its bytes, whoever copied them: bytes may come before the block expects them,
but no phase too early, since the other producer waits for this block's consumers as well. A block whose tile
is past the last one takes part, with zeros for what only it has, and writes nothing.

With a persistent grid both roles go through the block's tiles, and ring and phases go on across them.
Consumers write from memory of their own, while the producer copies for the next tile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.cuda.building import both, local, narrow, once, only_if, run, sync, sync_warp
from dietcode.search_space.cuda.bulk_maps import BATCH, LINE, STEP, OperandMap, maps_of
from dietcode.search_space.cuda.output import Writer
from dietcode.search_space.cuda.raster import TileOrder
from dietcode.search_space.cuda.swizzled_tile import Stages
from dietcode.search_space.cuda.warpgroup import WarpgroupKernel, WarpgroupOperand
from dietcode.search_space.tir import DTYPE, store
from dietcode.target.multiprocessor import WARP, WARPGROUP

_BARRIER_BYTES = 8


class BulkKernel(WarpgroupKernel):
    """A micro-kernel with `unit` "tma" of one problem, while its function is built."""

    def _make_operands(self, stages: Stages) -> None:
        super()._make_operands(stages)
        begin = self.micro_kernel.barriers_at
        self.barriers = stages.address + tirx.const(begin, "uint32")
        self.described = maps_of(self.problem, self.micro_kernel)

    def take_tiles(self, order: TileOrder, index: Any) -> None:
        """Take one tile now, or all of the block in turn, as each role comes to them."""
        self.order, self.index = order, index
        self.rank = tirx.truncmod(index, self.micro_kernel.cluster)
        if not self.micro_kernel.persistent:
            super().take_tiles(order, index)

    @contextmanager
    def _each_tile(self) -> Iterator[None]:
        """Emit statements for each tile of the block, of which they know where it is."""
        if not self.micro_kernel.persistent:
            yield
            return
        num_blocks = once("num_blocks", tirx.call_extern("int32", "blocks_of_grid"))
        turns = tirx.truncdiv(self.order.num_blocks - self.index + (num_blocks - 1), num_blocks)
        with T.serial(0, turns) as turn:
            super().take_tiles(self.order, once("block", self.index + turn * num_blocks))
            yield

    def run_roles(self, compute: Callable[[], None]) -> None:
        """Emit the producer's part, and the consumers': theirs is `compute`, for each tile."""
        micro_kernel = self.micro_kernel
        self._make_barriers()
        registers = micro_kernel.role_registers
        with T.If(self.group == micro_kernel.parts):
            with T.Then():
                if registers is not None:
                    run(f"give_registers<{registers[0]}>")
                with only_if(self.thread == micro_kernel.parts * WARPGROUP):
                    self._produce()
            with T.Else():
                if registers is not None:
                    run(f"take_registers<{registers[1]}>")
                if micro_kernel.persistent:
                    self.read_ring = self._ring("read", 0)
                with self._each_tile():
                    compute()
        if micro_kernel.cluster > 1:
            run("meet_cluster")

    def _make_barriers(self) -> None:
        """Make all barriers by one thread, and meet: in a cluster all of it, since others tell them too."""
        micro_kernel = self.micro_kernel
        consuming_warps = micro_kernel.parts * WARPGROUP // WARP
        with only_if(self.thread == 0):
            for own in self.described:
                run("prefetch_map", self.maps[own.argument])
            for stage in range(micro_kernel.stages):
                run("make_barrier<1>", self._full(stage))
                run(f"make_barrier<{consuming_warps * micro_kernel.cluster}>", self._empty(stage))
            run("show_barriers")
        if micro_kernel.cluster > 1:
            run("meet_cluster")
        else:
            sync()

    def _full(self, stage: Any) -> Any:
        """Return the address of the barrier that is told when a stage is full, uint32."""
        return self.barriers + tirx.Cast("uint32", stage * _BARRIER_BYTES)

    def _empty(self, stage: Any) -> Any:
        """Return the address of the barrier that is told when a stage is empty, uint32."""
        return self.barriers + tirx.Cast("uint32", (stage + self.micro_kernel.stages) * _BARRIER_BYTES)

    def _ring(self, name: str, parity: int) -> Any:
        """Return a stage and the parity of its phase, int32, as they are at first."""
        ring = local(name, 2, "int32")
        store(ring, tirx.const(0, "int32"), [0], 1)
        store(ring, tirx.const(parity, "int32"), [1], 1)
        return ring

    def _advance(self, ring: Any) -> None:
        """Go on to the next stage, and behind the last to the next phase."""
        is_last = ring[0] == self.micro_kernel.stages - 1
        store(ring, tirx.Select(is_last, 1 - ring[1], ring[1]), [1], 1)
        store(ring, tirx.Select(is_last, 0, ring[0] + 1), [0], 1)

    def _produce(self) -> None:
        """Copy the tiles of the reduction, one after the other, each as soon as its stage is empty."""
        micro_kernel = self.micro_kernel
        num_bytes = 2 * micro_kernel.k_tile * (micro_kernel.rows + micro_kernel.columns)
        low, high = self._k_outer_range()
        ring = self._ring("filled", 1)
        with self._each_tile():
            firsts = (self.first_row, self.first_column)
            with T.serial(low, high) as k_outer:
                run("wait_for_phase", self._empty(ring[0]), ring[1])
                run(f"arrive_and_expect<{num_bytes}>", self._full(ring[0]))
                step = narrow(k_outer * micro_kernel.k_tile)
                for operand, own, first in zip(self.operands_in_shared, self.described, firsts, strict=True):
                    at = {LINE: narrow(first), STEP: step, BATCH: narrow(self.batch)}
                    self._send(operand, own, ring[0], at)
                self._advance(ring)

    def _send(self, operand: WarpgroupOperand, own: OperandMap, stage: Any, first: dict[str, Any]) -> None:
        """Begin to copy a tile of one operand to a stage, box by box.

        Where blocks of a cluster have it in common each begins to copy its part of the lines, to all of
        them: to the same place, and told to the same barrier in each.

        Parameters
        ----------
        own : OperandMap
            Its map.
        first : dict of str to int32 expression
            Coordinates of the tile by their roles.
        """
        inner, outer = (STEP, LINE) if operand.plan.along_reduction else (LINE, STEP)
        boxes, sharing = {axis.role: axis.box for axis in own.axes}, self.micro_kernel.sharing(operand.is_row)
        lines, copy = own.panels.lines // sharing, f"copy_box_{len(own.axes)}"
        start = operand.stages.begin(stage) + tirx.const(2 * operand.base, "uint32")
        if sharing > 1:
            copy += f"_to_all<{(1 << sharing) - 1}>"
            start = start + tirx.Cast("uint32", self.rank * (lines * own.panels.line_bytes))
            first = first | {outer: first[outer] + self.rank * lines}
        for panel in range(own.panels.num_panels):
            for line in range(0, lines, boxes[outer]):
                offset = panel * own.panels.num_bytes + line * own.panels.line_bytes
                moved = {inner: panel * boxes[inner], outer: line, BATCH: 0}
                at = [first[axis.role] + moved[axis.role] for axis in own.axes]
                to = start + tirx.const(offset, "uint32")
                run(copy, self.maps[own.argument], to, self._full(stage), *at)

    def _free(self, stage: Any, condition: Any | None) -> None:
        """Tell that a warp reads a stage no more, under a condition: to all blocks that copy to it."""
        sync_warp()
        if self.micro_kernel.cluster == 1:
            with only_if(both(self.lane == 0, condition)):
                run("arrive", self._empty(stage))
            return
        with only_if(both(self.lane < self.micro_kernel.cluster, condition)):
            run("arrive_in_cluster", self._empty(stage), self.lane)

    def accumulate(self, is_inside: bool) -> None:
        """Accumulate as `BlockKernel` does, by the consumers; tiles past an edge are filled with zeros."""
        micro_kernel, count = self.micro_kernel, self.num_accumulators
        behind = 1 if micro_kernel.stages > 1 else 0  # tiles whose products are on their way
        with T.unroll(0, count) as i:
            store(self.accumulators, tirx.const(0, DTYPE), [i], 1)
        low, high = self._k_outer_range()
        ring = self.read_ring if micro_kernel.persistent else self._ring("read", 0)
        freed = local("freed", 1, "int32")
        store(freed, tirx.const(0, "int32"), [0], 1)
        run(f"hold_sums<{count}>", tirx.address_of(self.accumulators[0]))
        with T.serial(low, high) as k_outer:
            run("wait_for_phase", self._full(ring[0]), ring[1])
            self._multiply_tile(ring[0])
            run(f"wait_for_products<{behind}>")
            self._free(freed[0] if behind else ring[0], k_outer >= low + behind)
            store(freed, ring[0], [0], 1)
            self._advance(ring)
        run("wait_for_products<0>")
        run(f"hold_sums<{count}>", tirx.address_of(self.accumulators[0]))
        if not micro_kernel.persistent:
            # Accumulators go to the output by way of the same shared memory; every tile has been waited for.
            run(f"meet_consumers<{micro_kernel.parts * WARPGROUP}>")
        elif behind:
            self._free(freed[0], None)

    def write_back(self, writer: Writer, is_inside: bool) -> None:
        """Write what exists of the block's tile, if there is one."""
        with only_if(self.exists):
            super().write_back(writer, is_inside)
