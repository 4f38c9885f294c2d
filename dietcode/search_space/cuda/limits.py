"""The limits of a multiprocessor, which say what it holds before anything is compiled."""

from __future__ import annotations

from dataclasses import dataclass

from dietcode.search_space.access import padded_windows
from dietcode.search_space.cuda.blocks.demands import BLOCK_DEMANDS
from dietcode.search_space.cuda.bulk_maps import maps_of
from dietcode.search_space.cuda.classes import alignment_classes
from dietcode.search_space.cuda.fetching import plan_fetch
from dietcode.search_space.cuda.forms import device_problem
from dietcode.search_space.cuda.micro_kernel import OTHER_REGISTERS, CudaMicroKernel
from dietcode.search_space.cuda.padding import block_problem
from dietcode.search_space.problem import AnyProblem, Problem
from dietcode.target.cuda import CudaTarget
from dietcode.target.multiprocessor import WARP, WARPGROUP, Multiprocessor

# Addresses, bounds, counters.
_OTHER_REGISTERS = {"simt": 24, "mma": 36, "wgmma": OTHER_REGISTERS, "tma": OTHER_REGISTERS}
_TENSOR_DTYPES = ("float16", "bfloat16")  # those of the tensor cores' that code is generated for
_PANEL_COLUMNS = 16  # of the shortest line, 32 bytes, that instructions of warpgroups read along columns
_MIN_FMAS_PER_STEP = 4  # of a thread: with fewer, reads of shared memory take longer


@dataclass(frozen=True)
class CudaLimits:
    """Bounds of the search space, all from the architecture."""

    sm: Multiprocessor

    @classmethod
    def of(cls, target: CudaTarget) -> CudaLimits:
        """Limits of a target."""
        return cls(target.sm)

    @property
    def tensor_dtypes(self) -> tuple[str, ...]:
        """Dtypes of operands that code of tensor cores is generated for."""
        return tuple(dtype for dtype in _TENSOR_DTYPES if dtype in self.sm.tensor_dtypes)

    def shared_bytes(self, problem: AnyProblem, micro_kernel: CudaMicroKernel) -> int:
        """Return the bytes of shared memory of a block of threads."""
        own = BLOCK_DEMANDS.get(problem.form)
        return micro_kernel.shared_bytes if own is None else own.shared_bytes(problem, micro_kernel)

    def registers(self, problem: AnyProblem, micro_kernel: CudaMicroKernel) -> int:
        """Estimate a thread's registers: accumulators, a step of both operands, fetched elements, addresses.

        The cubin has the exact number later; the estimate saves compiling what would spill in any case.
        """
        if problem.form in BLOCK_DEMANDS:
            return BLOCK_DEMANDS[problem.form].registers(problem, micro_kernel)
        if micro_kernel.is_tensor:
            return self._tensor_registers(problem, micro_kernel)
        fetched, problem = 0, block_problem(problem, micro_kernel)
        for name, extent in zip(problem.inputs[:2], (micro_kernel.rows, micro_kernel.columns), strict=True):
            width, itemsize = plan_fetch(problem, name, micro_kernel).width, problem.storage(name).itemsize
            turns = -(-(extent * micro_kernel.k_tile // width) // micro_kernel.threads)
            windows = padded_windows(problem, name)
            fetched += -(-turns * width * itemsize // 4) + turns * (2 + len(windows) if windows else 0)
        own = micro_kernel.num_accumulators + micro_kernel.thread_rows + micro_kernel.thread_columns
        return own + fetched + _OTHER_REGISTERS["simt"]

    def _tensor_registers(self, problem: Problem, micro_kernel: CudaMicroKernel) -> int:
        """Estimate a lane's: accumulators, fragments of 16 steps, two of them in turns, fetched elements.

        What warpgroups multiply is in shared memory, and in no fragments. Where warpgroups change their
        registers with their roles it is what they begin with.
        """
        if micro_kernel.unit == "tma":
            needed = micro_kernel.num_accumulators // WARPGROUP + OTHER_REGISTERS
            return needed if micro_kernel.role_registers is None else micro_kernel.first_registers
        fragments, lanes, of_element = 0, WARPGROUP, 3
        if micro_kernel.unit == "mma":
            fragments, lanes = micro_kernel.thread_rows // 4 + micro_kernel.thread_columns // 4, WARP
            of_element = 2
            fragments *= 2 if micro_kernel.k_tile > 16 else 1
        fetched = 0
        for name, extent in zip(problem.inputs[:2], (micro_kernel.rows, micro_kernel.columns), strict=True):
            if plan_fetch(problem, name, micro_kernel).width == 1:
                fetched += of_element * -(-extent * micro_kernel.k_tile // micro_kernel.threads)
        own = micro_kernel.num_accumulators // lanes
        return own + fragments + fetched + _OTHER_REGISTERS[micro_kernel.unit]

    def why_never(self, problem: AnyProblem, micro_kernel: CudaMicroKernel) -> str | None:
        """Return why no code of a micro-kernel can run on the architecture; None where some may.

        Some is that of `CudaMicroKernel.on`: a micro-kernel of warpgroups may have a twin there.
        """
        micro_kernel = micro_kernel.on(self.sm)
        if micro_kernel.threads > self.sm.max_threads_per_block or micro_kernel.threads % WARP:
            allowed = f"multiples of {WARP} up to {self.sm.max_threads_per_block}"
            return f"{micro_kernel.name}: {micro_kernel.threads} threads in a block; allowed: {allowed}"
        if problem.form in BLOCK_DEMANDS:
            own = BLOCK_DEMANDS[problem.form].why_never(problem, micro_kernel)
            return own or self._why_no_room(problem, micro_kernel)
        without = self._why_no_room(problem, micro_kernel)
        if without is None and micro_kernel.has_warpgroups:
            return self._why_no_panels(problem, micro_kernel)
        return without

    def _why_no_room(self, problem: AnyProblem, micro_kernel: CudaMicroKernel) -> str | None:
        """Return why shared memory, or the dtypes of the tensor cores, are not enough."""
        shared_bytes = self.shared_bytes(problem, micro_kernel)
        if shared_bytes > self.sm.block_shared_bytes:
            most = self.sm.block_shared_bytes
            return f"{micro_kernel.name}: {shared_bytes} bytes of shared memory; allowed: {most}"
        if micro_kernel.is_tensor and problem.operand_dtype not in self.tensor_dtypes:
            allowed = ", ".join(self.tensor_dtypes)
            dtypes = f"{problem.operand_dtype} operands for tensor cores; allowed: {allowed}"
            return f"{micro_kernel.name}: {dtypes}"
        return None

    def _why_no_panels(self, problem: Problem, micro_kernel: CudaMicroKernel) -> str | None:
        """Return why operands of a warpgroup cannot lie in shared memory as its instructions read them.

        Or why they cannot come there in bulk, where that is asked for.
        """
        if micro_kernel.unit == "tma" and not any(_in_bulk(problem, micro_kernel)):
            given = "operands that no tensor map describes"
            allowed = "no windows, and strides that may be multiples of 16 bytes"
            return f"{micro_kernel.name}: {given}; allowed: {allowed}"
        padded = block_problem(problem, micro_kernel)
        along_reduction = plan_fetch(padded, padded.column_operand, micro_kernel).along_reduction
        if along_reduction or micro_kernel.thread_columns % _PANEL_COLUMNS == 0:
            return None
        given = f"{micro_kernel.thread_columns} columns of a warpgroup, of an operand that lies along columns"
        return f"{micro_kernel.name}: {given}; allowed: multiples of {_PANEL_COLUMNS}"

    def why_not(self, problem: AnyProblem, micro_kernel: CudaMicroKernel) -> str | None:
        """Return why a micro-kernel cannot run on the architecture: what it needs and what there is; or None.

        Parameters
        ----------
        problem : Problem
            As `dietcode.search_space.cuda.forms.device_problem` gives it.
        """
        if micro_kernel.on(self.sm) != micro_kernel:
            return f"{micro_kernel.name}: the architecture has no instructions of warpgroups; allowed: sm_90a"
        never = self.why_never(problem, micro_kernel)
        if never is not None:
            return never
        if micro_kernel.unit == "tma":
            why = self._why_no_roles(problem, micro_kernel)
            if why is not None:
                return why
        registers = self.registers(problem, micro_kernel)
        if registers > self.sm.max_registers_per_thread:
            most = self.sm.max_registers_per_thread
            return f"{micro_kernel.name}: about {registers} registers; allowed: {most}"
        if not self.sm.resident_blocks(
            micro_kernel.threads, registers, self.shared_bytes(problem, micro_kernel)
        ):
            needs = f"{micro_kernel.threads} threads of about {registers} registers"
            return f"{micro_kernel.name}: {needs}; a multiprocessor has {self.sm.num_registers}"
        return None

    def _why_no_roles(self, problem: Problem, micro_kernel: CudaMicroKernel) -> str | None:
        """Return why consumers have too few registers, or why classes that are not copied in bulk fit not."""
        roles = micro_kernel.role_registers
        most = micro_kernel.first_registers if roles is None else roles[1]
        needed = micro_kernel.num_accumulators // WARPGROUP + OTHER_REGISTERS
        if needed > most:
            of = f"{most} of {micro_kernel.threads} threads"
            return f"{micro_kernel.name}: about {needed} registers; allowed: {of}"
        if all(_in_bulk(problem, micro_kernel)):
            return None
        return self.why_not(problem, micro_kernel.of_unit("wgmma"))

    def holds(self, problem: AnyProblem, micro_kernel: CudaMicroKernel) -> bool:
        """Whether it can run, and has enough to do between two reads of shared memory."""
        if problem.form in BLOCK_DEMANDS:
            return self.why_not(problem, micro_kernel) is None
        if micro_kernel.unit == "simt" and micro_kernel.num_accumulators < _MIN_FMAS_PER_STEP:
            return False
        return self.why_not(device_problem(problem), micro_kernel) is None


def _in_bulk(problem: Problem, micro_kernel: CudaMicroKernel) -> list[bool]:
    """Return of each alignment class whether it is copied in bulk."""
    classes = alignment_classes(problem, micro_kernel)
    return [bool(maps_of(one.problem(problem), micro_kernel)) for one in classes]
