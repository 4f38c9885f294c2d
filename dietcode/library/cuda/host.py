"""C text of a library's host part: the launcher, and tables of what this library launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dietcode.search_space.cuda.forms import (
    call_shape,
    classes_of,
    cuda_form,
    device_problem,
    emitted_functions,
    launches_of,
)
from dietcode.search_space.cuda.function import Function
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.dispatch_tree import DispatchTree
from dietcode.search_space.problem import AnyProblem
from dietcode.target.cuda import CudaTarget

_LAUNCHER = Path(__file__).with_name("launcher")
_FILES = ("library.h", "driver.c", "devices.c", "tensors.c", "calls.c")  # in this order
_DTYPES = {  # DLPack's codes, and bits
    "float32": (2, 32),
    "float16": (2, 16),
    "bfloat16": (4, 16),
    "int32": (0, 32),
}


@dataclass(frozen=True)
class Image:
    """Code for one architecture.

    Attributes
    ----------
    target : CudaTarget
    is_ptx : bool
        Text that the driver compiles, for that architecture and all later ones.
    file : str
        Name of the file with its bytes, beside the C text.
    """

    target: CudaTarget
    is_ptx: bool
    file: str


class _Size:
    """An int64 expression of C, so that `CallShape` gives text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __mul__(self, other: object) -> _Size:
        return _Size(f"{self.text} * {_text(other)}")

    __rmul__ = __mul__

    def __add__(self, other: object) -> _Size:
        return _Size(f"({self.text} + {_text(other)})")

    __radd__ = __add__


class _COps:
    """`dietcode.search_space.partition.Ops` over C expressions; a grid takes divisions alone."""

    def floordiv(self, a: Any, b: Any) -> Any:
        """Divide non-negative integers."""
        return _Size(f"({_text(a)} / {_text(b)})")

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        """Not used by a grid."""
        raise NotImplementedError

    def maximum(self, a: Any, b: Any) -> Any:
        """Not used by a grid."""
        raise NotImplementedError

    def bind(self, value: Any) -> Any:
        """Return the value itself."""
        return value


def _text(value: object) -> str:
    return value.text if isinstance(value, _Size) else f"INT64_C({value})"


def host_text(
    problem: AnyProblem,
    tiles: Sequence[CudaMicroKernel],
    tree: DispatchTree,
    variables: Sequence[str],
    images: Sequence[Image],
    min_driver: int,
) -> str:
    """Return the C text.

    Parameters
    ----------
    tiles : sequence of CudaMicroKernel
        One for each category, in the order that the tree's leaves number them.
    tree : DispatchTree
        Category of each value of the shape variables.
    min_driver : int
        Least version of CUDA of the driver, as 13000 for 13.0.
    """
    problem = device_problem(problem)
    names = (*problem.arguments, *problem.outputs)
    indices = sorted(problem.extents)
    emitted = [emitted_functions(problem, tiles, image.target.sm) for image in images]
    kernels = list(emitted[0])
    most_maps = max(len(function.maps) for of_image in emitted for function in of_image.values())
    known = ", ".join(f"{i.target.arch}{' and newer (PTX)' if i.is_ptx else ''}" for i in images)
    defines = {
        "NUM_IMAGES": len(images),
        "NUM_KERNELS": len(kernels),
        "NUM_TENSORS": len(names),
        "NUM_OUTPUTS": len(problem.outputs),
        "NUM_INDICES": len(indices),
        "NUM_DYNAMIC": len(problem.dynamic),
        "NUM_VARIABLES": len(variables),
        "NUM_WINDOWS": len(problem.windows),
        "MAX_REGIONS": max(1, *(len(_shape(problem, tile, indices).regions) for tile in tiles)),
        "MAX_LAUNCHES": max(len(launches_of(problem, tile)) for tile in tiles),
        "MAX_RANK": max(len(problem.axes(name)) for name in names),
        "MAX_MAPS": most_maps,
        "HAS_PERSISTENT": int(any(own.persistent for of_image in emitted for own in of_image.values())),
        "MIN_DRIVER": min_driver,
        "IMAGES_TEXT": f'"{known}"',
    }
    uneven = [w.end - w.padding for w in problem.windows]
    if any(uneven):
        defines["UNEVEN_PADDING"] = 1
    parts = [
        "".join(f"#define {name} {value}\n" for name, value in defines.items()),
        *((_LAUNCHER / name).read_text(encoding="utf-8") for name in _FILES),
        _images(images),
        _array("const char* const kernel_names[NUM_KERNELS]", [f'"{name}"' for name in kernels]),
        _array("const Kernel kernels[NUM_IMAGES][NUM_KERNELS]", [_kernels(own, kernels) for own in emitted]),
        _overlaps(problem, tiles, kernels),
        _tensors(problem, tiles, names),
        _array("const int into[NUM_OUTPUTS]", [str(_table(problem, name)) for name in problem.outputs]),
        _axes(problem, names, indices),
        _windows(problem, indices),
        _array("const int64_t more_after[NUM_WINDOWS]", [str(n) for n in uneven]) if any(uneven) else "",
        _array("const int64_t fixed[NUM_INDICES]", [f"{problem.extents[k] or 0}" for k in indices]),
        _array(
            "const int dynamic[NUM_DYNAMIC + 1]", [*(str(indices.index(k)) for k in problem.dynamic), "-1"]
        ),
        f"static int64_t select_category(const int64_t* values) {{\n{_branches(tree, variables, '  ')}}}\n",
        _plan(problem, tiles, kernels, names, indices),
    ]
    return "\n".join(parts)


def _array(declaration: str, values: Sequence[str]) -> str:
    return f"static {declaration} = {{{', '.join(values)}}};\n"


def _images(images: Sequence[Image]) -> str:
    text = ""
    for index, image in enumerate(images):
        # A zero at the end: PTX is a string.
        lines = (
            ".section .rodata\\n.balign 16\\n",
            f'image_{index}:\\n.incbin \\"{image.file}\\"\\n.byte 0\\n',
        )
        text += f'__asm__("{lines[0]}{lines[1]}.previous\\n");\n'
        text += f'extern const char image_{index}[] __attribute__((visibility("hidden")));\n'
    rows = [
        f"{{{i.target.number}, {int(not i.target.arch[-1].isdigit())}, {int(i.is_ptx)}, image_{index}}}"
        for index, i in enumerate(images)
    ]
    return text + _array("const Image images[NUM_IMAGES]", rows)


def _kernels(emitted: Mapping[str, Function], kernels: Sequence[str]) -> str:
    """Return what an architecture's code of each kernel needs of a launch."""
    rows = [emitted[name] for name in kernels]
    own = [
        f"{{{one.threads}, {one.shared_bytes}, {len(one.maps)}, {one.cluster}, {int(one.persistent)}}}"
        for one in rows
    ]
    return "{" + ", ".join(own) + "}"


def _overlaps(problem: AnyProblem, tiles: Sequence[CudaMicroKernel], kernels: Sequence[str]) -> str:
    """Return which kernels may begin while the launch before them ends."""
    found = {one.symbol for tile in tiles for one in launches_of(problem, tile) if one.overlaps}
    return _array("const char overlaps[NUM_KERNELS]", [f"{int(name in found)}" for name in kernels])


def _tensors(problem: AnyProblem, tiles: Sequence[CudaMicroKernel], names: Sequence[str]) -> str:
    needed = [cuda_form(problem).alignments(problem, tile) for tile in tiles]
    rows = []
    for name in names:
        code, bits = _DTYPES[problem.dtype(name)]
        alignment = max(of_tile[name] for of_tile in needed)
        shown = name if name.isidentifier() else "tensor"
        rows.append(f'{{"{shown}", {code}, {bits}, {len(problem.axes(name))}, {alignment}}}')
    return _array("const Tensor tensors[NUM_TENSORS]", rows)


def _axes(problem: AnyProblem, names: Sequence[str], indices: Sequence[str]) -> str:
    """Return the indices of each axis as callers see it: one, or two of which the outer one is fixed."""
    rows = []
    for name in names:
        axes = [[indices.index(index) for index in reversed(parts)] for parts in problem.axes(name)]
        rows.append("{" + ", ".join(f"{{{own[0]}, {own[1] if own[1:] else -1}}}" for own in axes) + "}")
    return _array("const Axis axes[NUM_TENSORS][MAX_RANK]", rows)


def _table(problem: AnyProblem, output: str) -> int:
    """Return the input that an output is written to rows of; -1 for none."""
    return problem.arguments.index(problem.into[output][0]) if output in problem.into else -1


def _windows(problem: AnyProblem, indices: Sequence[str]) -> str:
    """Return the windows; one without an index of its own is of so many elements as its dilation says."""
    lengths = {one.axis: one.window for axes in getattr(problem, "pools", {}).values() for one in axes}
    rows = [
        f"{{{indices.index(w.axis)}, {indices.index(w.output)}, "
        f"{indices.index(w.kernel) if w.kernel else -1}, "
        f"{w.stride}, {w.dilation if w.kernel else lengths[w.axis]}, {w.padding}}}"
        for w in problem.windows
    ]
    return _array("const Window windows[NUM_WINDOWS + 1]", [*rows, "{0}"])


def _shape(problem: AnyProblem, tile: CudaMicroKernel, indices: Sequence[str]) -> Any:
    """Return the shape of a call whose extents are those that the text reads."""
    extents: dict[str, Any] = {
        k: _Size(f"extents[{indices.index(k)}]") if extent is None else extent
        for k, extent in problem.extents.items()
    }
    return call_shape(problem, tile, extents, _COps())


def _branches(tree: DispatchTree, variables: Sequence[str], indent: str) -> str:
    if isinstance(tree, int):
        return f"{indent}return {tree};\n"
    variable, *test, first, other = tree
    number = f"INT64_C({test[-1]})"
    condition = f"values[{variables.index(variable)}] " + (
        f"<= {number}" if len(test) == 1 else f"% {number} == 0"
    )
    inner = _branches(first, variables, indent + "  ")
    return f"{indent}if ({condition}) {{\n{inner}{indent}}}\n{_branches(other, variables, indent)}"


def _plan(
    problem: AnyProblem,
    tiles: Sequence[CudaMicroKernel],
    kernels: Sequence[str],
    names: Sequence[str],
    indices: Sequence[str],
) -> str:
    """Return what a call of each category launches, in order, and where its workspace is."""
    text = "static Plan plan(int64_t category, const int64_t* extents, const uintptr_t* addresses, "
    text += "Launch* launches) {\n"
    text += "  Plan result = {0};\n  (void)extents;\n  (void)addresses;\n  switch (category) {\n"
    for category, tile in enumerate(tiles):
        functions = launches_of(problem, tile)
        shape = _shape(problem, tile, indices)
        regions = shape.regions
        positions = {name: index for index, name in enumerate([*names, *regions])}
        text += f"    case {category}: {{\n"
        for index, (function, (x, y)) in enumerate(zip(functions, shape.grids, strict=True)):
            given = [str(positions[name]) for name in function.arguments]
            text += f"      static const int of_{index}[] = {{{', '.join(given)}}};\n"
            text += (
                f"      launches[{index}] = (Launch){{{_text(x)}, {y}, "
                f"{kernels.index(function.symbol)}, {len(given)}, of_{index}}};\n"
            )
            if function.symbol == tile.symbol:
                text += _maps(problem, tile, index, shape, positions)
                text += _wider(problem, tile, index, kernels, names, indices)
        for index, region in enumerate(regions.values()):
            text += f"      result.first[{index}] = {_text(region.first)};\n"
            text += f"      result.workspace = {_text(region.first)} + {_text(region.size)};\n"
        text += f"      result.launches = {len(functions)};\n      break;\n    }}\n"
    return text + "    default:\n      break;\n  }\n  return result;\n}\n"


def _maps(
    problem: AnyProblem, tile: CudaMicroKernel, launch: int, shape: Any, positions: Mapping[str, int]
) -> str:
    """Return what describes the tensor maps of a block function, which are alike in all classes with any."""
    widest = launches_of(problem, tile, classes_of(problem, tile)[0])[launch]
    text = ""
    for number, one in enumerate(own.at(shape.block_extents) for own in widest.maps):
        numbers = (positions[one.argument], one.data_type, one.swizzle, len(one.extents))
        lists = (map(_text, one.extents), map(_text, one.strides), map(str, one.box))
        fields = [*map(str, numbers), *("{" + ", ".join(values) + "}" for values in lists)]
        text += f"      launches[{launch}].maps[{number}] = (Map){{{', '.join(fields)}}};\n"
    return text


def _wider(
    problem: AnyProblem,
    tile: CudaMicroKernel,
    launch: int,
    kernels: Sequence[str],
    names: Sequence[str],
    indices: Sequence[str],
) -> str:
    """Return what launches the block function of the widest alignment class that a call has."""
    wider = classes_of(problem, tile)[:-1]
    alignments = cuda_form(problem).alignments
    text, least = "", alignments(problem, tile)
    for own in wider:
        needed = alignments(own.problem(problem), tile)
        asked = [f"extents[{indices.index(index)}] % {own.multiple} == 0" for index in own.indices]
        asked += [
            f"addresses[{names.index(name)}] % {num_bytes} == 0"
            for name, num_bytes in needed.items()
            if num_bytes > least[name]
        ]
        text += f"      {'else ' if text else ''}if ({' && '.join(asked)}) "
        text += f"launches[{launch}].kernel = {kernels.index(own.symbol(tile))};\n"
    return text
