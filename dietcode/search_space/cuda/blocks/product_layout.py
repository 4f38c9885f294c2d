"""How tensor cores of a block with products read its operands, before anything is compiled."""

from __future__ import annotations

from dataclasses import dataclass

from dietcode.search_space.access import ONE, View, size_of, view_of
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.products.problem import ProductProblem
from dietcode.target.multiprocessor import WARP
from dietcode.workload.products import Gates, ProductTerm, Read

_COPIED = (8, 4, 2)  # elements of 16, 8 and 4 bytes, which go past the registers
Targets = list[tuple[Gates, str]]


def distinct_gates(terms: Targets) -> list[Gates]:
    """Return the positions along gates that the sums of one term need, each once."""
    return list(dict.fromkeys(gates for gates, _ in terms))


@dataclass(frozen=True)
class OperandLayout:
    """How one operand of a product is copied.

    Attributes
    ----------
    along_reduction : bool
        Whether its lines in shared memory are rows (columns), rather than steps of the reduction.
    width : int
        Elements that are copied at once; 1 by way of registers.
    """

    along_reduction: bool
    width: int


def read_view(problem: ProductProblem, read: Read) -> View:
    """Return the layout of what is read: of a table, or of a tensor under the indices of the read."""
    if read.positions is not None:
        return view_of(problem, read.tensor)
    return view_of(problem, read.tensor, read.indices)


def _width(problem: ProductProblem, view: View, indices: tuple[str, ...], most: int) -> int:
    """Return how many elements along some flattened indices always lie at a multiple of their number."""
    groups = view.groups(indices)
    if not groups or groups[-1].stride != ONE:
        return 1
    inner = groups[-1]
    others = [
        stride.factor
        for index, stride in view.strides.items()
        if index not in inner.indices and size_of(problem, index) != ONE
    ]
    sizes = (most, inner.extent.factor, *others)
    return next((width for width in _COPIED if not any(size % width for size in sizes)), 1)


def rows_layout(problem: ProductProblem, term: ProductTerm, micro_kernel: CudaMicroKernel) -> OperandLayout:
    """Return how the rows of a product are copied: their lines lie along the reduction in any case."""
    view = read_view(problem, term.rows)
    return OperandLayout(True, _width(problem, view, tuple(term.reduction), micro_kernel.k_tile))


def columns_layout(
    problem: ProductProblem, term: ProductTerm, micro_kernel: CudaMicroKernel
) -> OperandLayout:
    """Return how the columns of a product are copied: as they lie."""
    view = view_of(problem, term.columns)
    along_columns = _width(problem, view, problem.columns, micro_kernel.columns)
    along_reduction = _width(problem, view, tuple(term.reduction), micro_kernel.k_tile)
    if along_columns > along_reduction or view.stride(problem.columns) == ONE:
        return OperandLayout(False, along_columns)
    return OperandLayout(True, along_reduction)


def stage_elements(problem: ProductProblem, micro_kernel: CudaMicroKernel) -> int:
    """Return the elements of shared memory of one stage: rows, and columns of each gate, of one product."""
    gates = max(len(distinct_gates(targets)) for _, targets in problem.plan.terms)
    return micro_kernel.k_tile * (micro_kernel.rows + gates * micro_kernel.columns)


def tensor_bytes(problem: ProductProblem, micro_kernel: CudaMicroKernel) -> int:
    """Return the shared memory of a block of threads."""
    return 2 * micro_kernel.stages * stage_elements(problem, micro_kernel)


def tensor_registers(problem: ProductProblem, micro_kernel: CudaMicroKernel) -> int:
    """Estimate a lane's registers: accumulators of all sums, fragments of a step, addresses."""
    own = micro_kernel.num_accumulators // WARP * len(problem.plan.accumulators)
    gates = max(len(distinct_gates(targets)) for _, targets in problem.plan.terms)
    turns = -(-micro_kernel.rows * micro_kernel.k_tile // (8 * micro_kernel.threads))
    return own + micro_kernel.thread_rows // 4 + micro_kernel.thread_columns // 4 + 2 * turns + gates + 56


def no_tensor_product(problem: ProductProblem, micro_kernel: CudaMicroKernel) -> str | None:
    """Return why there is no code of a micro-kernel with `unit` "mma"; None where there is."""
    for term, _ in problem.plan.terms:
        dtypes = {problem.dtype(name) for name in (term.rows.tensor, term.columns)}
        if dtypes != {problem.operand_dtype}:
            given = f"a product of {', '.join(sorted(dtypes))}"
            return f"{micro_kernel.name}: {given}; allowed on tensor cores: of one dtype, in half precision"
        layouts = rows_layout(problem, term, micro_kernel), columns_layout(problem, term, micro_kernel)
        of_columns = micro_kernel.k_tile if layouts[1].along_reduction else micro_kernel.columns
        lengths = (micro_kernel.k_tile, of_columns)
        for layout, length in zip(layouts, lengths, strict=True):
            inner = length // layout.width
            if micro_kernel.threads % inner:
                return f"{micro_kernel.name}: {micro_kernel.threads} threads; allowed: a multiple of {inner}"
    return None


def product_alignments(problem: ProductProblem, micro_kernel: CudaMicroKernel) -> dict[str, int]:
    """Return the bytes that the address of each tensor must be a multiple of: of what is copied at once."""
    names = (*problem.inputs, *problem.outputs)
    widths = dict.fromkeys(names, 1)
    if micro_kernel.is_tensor:
        for term, _ in problem.plan.terms:
            rows, columns = term.rows.tensor, term.columns
            widths[rows] = max(widths[rows], rows_layout(problem, term, micro_kernel).width)
            widths[columns] = max(widths[columns], columns_layout(problem, term, micro_kernel).width)
    return {name: width * problem.storage(name).itemsize for name, width in widths.items()}
