"""Which micro-kernels a multiprocessor holds, judged before anything is compiled."""

from __future__ import annotations

from dataclasses import dataclass

from dietcode.search_space.access import padded_windows
from dietcode.search_space.cuda.fetching import plan_fetch
from dietcode.search_space.cuda.lowering import device_problem
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.padding import block_problem
from dietcode.search_space.problem import Problem
from dietcode.target.cuda import WARP, CudaTarget, Multiprocessor

_OTHER_REGISTERS = {"simt": 24, "mma": 36}  # addresses, bounds, counters
_TENSOR_DTYPES = ("float16", "bfloat16")  # of what tensor cores multiply, those that code is generated for
_MIN_FMAS_PER_STEP = 4  # of a thread: fewer are held up by reading shared memory


@dataclass(frozen=True)
class CudaLimits:
    """Bounds of the search space, all from the architecture."""

    sm: Multiprocessor

    @classmethod
    def of(cls, target: CudaTarget) -> CudaLimits:
        """Limits of a target."""
        return cls(target.sm)

    def registers(self, problem: Problem, tile: CudaMicroKernel) -> int:
        """An estimate of a thread's registers: sums, one step of both operands, what is fetched, addresses,
        places under windows.

        The cubin tells the truth later; this keeps from compiling what would spill in any case.
        """
        if tile.unit == "mma":
            return self._tensor_registers(problem, tile)
        fetched, problem = 0, block_problem(problem, tile)
        for name, extent in zip(problem.inputs[:2], (tile.rows, tile.columns), strict=True):
            width, itemsize = plan_fetch(problem, name, tile).width, problem.storage(name).itemsize
            turns = -(-(extent * tile.steps // width) // tile.threads)
            windows = padded_windows(problem, name)
            fetched += -(-turns * width * itemsize // 4) + turns * (2 + len(windows) if windows else 0)
        sums = tile.thread_rows * tile.thread_columns
        return sums + tile.thread_rows + tile.thread_columns + fetched + _OTHER_REGISTERS["simt"]

    def _tensor_registers(self, problem: Problem, tile: CudaMicroKernel) -> int:
        """A lane's sums, its fragments of 16 steps, two of them by turns, and elements with their places."""
        fragments = (tile.thread_rows // 4 + tile.thread_columns // 4) * (2 if tile.steps > 16 else 1)
        fetched = 0
        for name, extent in zip(problem.inputs[:2], (tile.rows, tile.columns), strict=True):
            if plan_fetch(problem, name, tile).width == 1:
                fetched += 2 * -(-extent * tile.steps // tile.threads)
        sums = tile.thread_rows * tile.thread_columns // WARP
        return sums + fragments + fetched + _OTHER_REGISTERS["mma"]

    def why_never(self, problem: Problem, tile: CudaMicroKernel) -> str | None:
        """Why an architecture has no code of a micro-kernel, whatever the compiler makes of it; or None."""
        if tile.threads > self.sm.max_threads_per_block or tile.threads % WARP:
            allowed = f"multiples of {WARP} up to {self.sm.max_threads_per_block}"
            return f"{tile.name}: {tile.threads} threads in a block; allowed: {allowed}"
        if tile.shared_bytes > self.sm.block_shared_bytes:
            most = self.sm.block_shared_bytes
            return f"{tile.name}: {tile.shared_bytes} bytes of shared memory; allowed: {most}"
        known = [dtype for dtype in _TENSOR_DTYPES if dtype in self.sm.tensor_dtypes]
        if tile.unit == "mma" and problem.operand_dtype not in known:
            dtypes = f"{problem.operand_dtype} operands for tensor cores; allowed: {', '.join(known)}"
            return f"{tile.name}: {dtypes}"
        return None

    def why_not(self, problem: Problem, tile: CudaMicroKernel) -> str | None:
        """Why a micro-kernel cannot run on the architecture, as what is asked for and what there is; or None.

        Parameters
        ----------
        problem : Problem
            As `dietcode.search_space.cuda.lowering.device_problem` gives it.
        """
        never = self.why_never(problem, tile)
        if never is not None:
            return never
        registers = self.registers(problem, tile)
        if registers > self.sm.max_registers_per_thread:
            return f"{tile.name}: about {registers} registers; allowed: {self.sm.max_registers_per_thread}"
        if not self.sm.resident_blocks(tile.threads, registers, tile.shared_bytes):
            needs = f"{tile.threads} threads of about {registers} registers"
            return f"{tile.name}: {needs}; a multiprocessor has {self.sm.num_registers}"
        return None

    def holds(self, problem: Problem, tile: CudaMicroKernel) -> bool:
        """Whether it can run, and has enough to do between two reads of shared memory."""
        if tile.unit == "simt" and tile.thread_rows * tile.thread_columns < _MIN_FMAS_PER_STEP:
            return False
        return self.why_not(device_problem(problem), tile) is None
