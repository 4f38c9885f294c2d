"""What a multiprocessor of a GPU holds, as plain numbers: imports nothing, to be read anywhere."""

from __future__ import annotations

from dataclasses import dataclass

WARP = 32
"""Threads that run in step."""
WARPGROUP = 4 * WARP
"""Threads that multiply together with ``wgmma.mma_async``."""
KIB = 1 << 10


@dataclass(frozen=True)
class Multiprocessor:
    """What one multiprocessor (SM) of an architecture holds.

    Attributes
    ----------
    max_threads, max_blocks : int
        Resident at a time.
    num_registers : int
        32-bit registers.
    shared_bytes : int
        Shared memory for all resident blocks.
    block_shared_bytes : int
        Most that one block may take; beyond 48 KiB it is requested as a kernel is loaded.
    reserved_bytes, shared_unit : int
        Shared memory that the system takes for each block, and the unit of allocation, in bytes.
    tensor_dtypes : tuple of str
        What its tensor cores multiply with ``mma.sync``.
    has_wgmma : bool
        Whether warpgroups multiply from shared memory, with ``wgmma.mma_async``.
    """

    max_threads: int
    max_blocks: int
    shared_bytes: int
    block_shared_bytes: int
    tensor_dtypes: tuple[str, ...]
    reserved_bytes: int = 1 * KIB
    shared_unit: int = 128
    num_registers: int = 64 * KIB
    max_registers_per_thread: int = 255
    register_unit: int = 256
    max_threads_per_block: int = 1024
    has_wgmma: bool = False

    @property
    def max_warps(self) -> int:
        """Resident warps."""
        return self.max_threads // WARP

    def resident_blocks(self, threads: int, registers: int, shared_bytes: int) -> int:
        """Return how many blocks of one kernel are resident at a time; 0 where not even one fits.

        Parameters
        ----------
        threads : int
            Of a block.
        registers : int
            Of a thread, at least 1.
        shared_bytes : int
            Of a block, without what the system reserves.
        """
        too_many = threads > self.max_threads_per_block or registers > self.max_registers_per_thread
        if threads < 1 or too_many or shared_bytes > self.block_shared_bytes:
            return 0
        warps = -(-threads // WARP)
        # Registers are given to warps, in units, and warps to the four parts of a multiprocessor in turn.
        of_warp = -(-max(1, registers) * WARP // self.register_unit) * self.register_unit
        by_registers = self.num_registers // of_warp // 4 * 4 // warps
        taken = -(-(shared_bytes + self.reserved_bytes) // self.shared_unit) * self.shared_unit
        by_shared = self.shared_bytes // taken if taken else self.max_blocks
        return min(self.max_blocks, self.max_warps // warps, by_registers, by_shared)
