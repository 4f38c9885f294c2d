"""What a micro-kernel of attention has in shared memory and in registers, before anything is compiled.

`rows` are queries of a group, `columns` keys that are taken at a time, a thread's tile is one of scores,
`k_tile` are elements of queries and keys in shared memory at a time, and `splits` parts of the keys.
"""

from __future__ import annotations

from dataclasses import dataclass

from dietcode.search_space.attention.problem import AttentionProblem
from dietcode.search_space.cuda.banks import SPACER
from dietcode.search_space.cuda.fetching import WIDTHS
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.target.multiprocessor import WARP

STATE_THREADS = 128
"""Threads of a block that combines what parts of the keys gave: a warp for each query."""
WEIGHTED, TOTALS = "(weighted values)", "(maxima and sums)"
"""Regions of the workspace where keys are split: of each part and query, its values, and two numbers."""
FRAGMENT_COLUMNS = 64
"""Keys, or elements of a result, whose fragments a warp has in registers at a time."""
_MIN_VALUE_KEYS = 8
_OTHER_REGISTERS = 56  # addresses, bounds, counters


def vector_width(extent: int) -> int:
    """Return how many elements of a last axis of this extent are read or written at once."""
    return next(width for width in WIDTHS if extent % width == 0)


@dataclass(frozen=True)
class SimtLayout:
    """Shared memory, in floats, and a thread's part of the result.

    Attributes
    ----------
    across : int
        Threads that have the scores of one query, neighbours in a warp.
    own_columns, run : int
        Elements of a query's result that a thread accumulates, and how many of them lie side by side.
    columns : int
        Elements of all these threads: those of the result, and what fills the last ones.
    value_keys : int
        Keys whose values are in shared memory at a time.
    queries, operand, weights : int
        Floats of a tile of queries, of keys or values, and of weights.
    """

    across: int
    own_columns: int
    run: int
    columns: int
    value_keys: int
    queries: int
    operand: int
    weights: int

    @classmethod
    def of(cls, problem: AttentionProblem, micro_kernel: CudaMicroKernel) -> SimtLayout:
        """Return the layout of a micro-kernel."""
        across = micro_kernel.columns // micro_kernel.thread_columns
        least = -(-problem.head[1] // across)
        run = next((width for width in WIDTHS if least >= width), 1)
        own = -(-least // run) * run
        keys = micro_kernel.k_tile * (micro_kernel.columns + SPACER)
        value_keys = micro_kernel.columns
        while value_keys > _MIN_VALUE_KEYS and value_keys % 2 == 0 and value_keys * own * across > keys:
            value_keys //= 2
        return cls(
            across,
            own,
            run,
            own * across,
            value_keys,
            micro_kernel.k_tile * (micro_kernel.rows + SPACER),
            max(keys, value_keys * own * across),
            micro_kernel.columns * (micro_kernel.rows + SPACER),
        )

    @property
    def num_bytes(self) -> int:
        """Shared memory of a block of threads."""
        return 4 * (self.queries + self.operand + self.weights)


def copied_width(extent: int) -> int:
    """Return how many elements of a last axis of this extent are copied at once; 1 by way of registers."""
    return next((width for width in (8, 4, 2) if extent % width == 0), 1)


@dataclass(frozen=True)
class TensorLayout:
    """Shared memory where tensor cores multiply.

    Attributes
    ----------
    width : int
        Elements of a line of values: those of a result, in whole fragments.
    queries : int
        Elements of the tile of queries, which is before the stages.
    stage_bytes : int
        Of a tile of keys and one of values.
    num_bytes : int
        Shared memory of a block of threads.
    """

    width: int
    queries: int
    stage_bytes: int
    num_bytes: int

    @classmethod
    def of(cls, problem: AttentionProblem, micro_kernel: CudaMicroKernel) -> TensorLayout:
        """Return the layout of a micro-kernel."""
        width, queries = -(-problem.head[1] // 8) * 8, micro_kernel.rows * micro_kernel.k_tile
        stage = 2 * micro_kernel.columns * (micro_kernel.k_tile + width)
        return cls(width, queries, stage, 2 * queries + micro_kernel.stages * stage)


def tensor_steps(problem: AttentionProblem) -> int:
    """Return `k_tile` of all micro-kernels on tensor cores: a whole query."""
    depth = problem.head[0]
    return 16 if depth <= 16 else -(-depth // 32) * 32


def attention_bytes(problem: AttentionProblem, micro_kernel: CudaMicroKernel) -> int:
    """Return the shared memory of a block of threads."""
    layout = TensorLayout if micro_kernel.is_tensor else SimtLayout
    return layout.of(problem, micro_kernel).num_bytes


def attention_registers(problem: AttentionProblem, micro_kernel: CudaMicroKernel) -> int:
    """Estimate a thread's registers: scores, its part of the result, a step of both, five of each query."""
    if micro_kernel.is_tensor:
        width, down = TensorLayout.of(problem, micro_kernel).width, micro_kernel.thread_rows // 16
        fragments = 4 * down + min(FRAGMENT_COLUMNS, max(micro_kernel.columns, width)) // 4
        return down * (micro_kernel.columns + width) // 2 + fragments + 10 * down + _OTHER_REGISTERS
    layout, rows = SimtLayout.of(problem, micro_kernel), micro_kernel.thread_rows
    own = micro_kernel.num_accumulators + rows * layout.own_columns
    step = rows + max(micro_kernel.thread_columns, layout.run)
    return own + step + 5 * rows + _OTHER_REGISTERS


def no_attention(problem: AttentionProblem, micro_kernel: CudaMicroKernel) -> str | None:
    """Return why there is no code of a micro-kernel; None where there is."""
    axes = (micro_kernel.row_vthreads, micro_kernel.column_vthreads)
    most = {"simt": 1, "mma": 2}.get(micro_kernel.unit, 0)
    if micro_kernel.tails != "local" or axes != (1, 1) or micro_kernel.stages > most:
        allowed = "SIMT units and one stage, or mma and up to two; local padding"
        return f"{micro_kernel.name}: allowed in attention: {allowed}"
    return (_no_tensor_attention if micro_kernel.is_tensor else _no_simt_attention)(problem, micro_kernel)


def _no_simt_attention(problem: AttentionProblem, micro_kernel: CudaMicroKernel) -> str | None:
    across = micro_kernel.columns // micro_kernel.thread_columns
    if across > WARP or across & (across - 1):
        return f"{micro_kernel.name}: {across} threads of a query; allowed: a power of two up to {WARP}"
    inner = micro_kernel.k_tile // vector_width(problem.head[0])
    if micro_kernel.k_tile % WIDTHS[0] or micro_kernel.threads % inner:
        return f"{micro_kernel.name}: {micro_kernel.threads} threads; allowed: a multiple of {inner}"
    return None


def _no_tensor_attention(problem: AttentionProblem, micro_kernel: CudaMicroKernel) -> str | None:
    whole = tensor_steps(problem)
    if micro_kernel.k_tile != whole:
        return f"{micro_kernel.name}: allowed on tensor cores: {whole} steps, a whole query"
    if micro_kernel.thread_columns != micro_kernel.columns or micro_kernel.columns % 16:
        return f"{micro_kernel.name}: allowed on tensor cores: all keys of a tile in a warp, 16 or more"
    return None


def attention_alignments(problem: AttentionProblem, micro_kernel: CudaMicroKernel) -> dict[str, int]:
    """Return the bytes that the address of each tensor must be a multiple of: of what is read at once."""
    plan = problem.plan
    if micro_kernel.is_tensor:
        depth, width = (copied_width(extent) for extent in problem.head)
        written = min(vector_width(problem.head[1]), 2)
    else:
        depth, width = (vector_width(extent) for extent in problem.head)
        width = written = min(width, SimtLayout.of(problem, micro_kernel).run)
    widths = {plan.query: depth, plan.key: depth, plan.value: width}
    if micro_kernel.splits == 1:
        widths[problem.outputs[0]] = written
    names = (*problem.inputs, *problem.outputs)
    return {name: widths.get(name, 1) * problem.storage(name).itemsize for name in names}


def attention_order(micro_kernel: CudaMicroKernel) -> tuple[str, int, int]:
    """Return the key of the order of additions along the keys: by threads of a query, tiles and parts."""
    across = 4 if micro_kernel.is_tensor else micro_kernel.columns // micro_kernel.thread_columns
    return f"{AttentionProblem.form}-{micro_kernel.unit}-{across}", micro_kernel.columns, micro_kernel.splits
