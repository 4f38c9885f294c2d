"""What micro-kernels are compared with: cuBLAS or cuDNN, MetaSchedule, torch.compile, Triton's autotuner.

In float32 with TF32 off; in half precision as PyTorch has it by default: sums in float32, but that cuBLAS may
add parts of a split reduction of float16 in float16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from alone import AloneKernel
from block_graph import attention_value
from convolution import in_other_format
from device import Driver
from packed import Pack, reference

_DENSE, _SCORES, _VALUES = "ab,cb->ac", "abc,adc->abd", "abc,acd->abd"
Function = Callable[[Mapping[str, Any]], Any]


def kind_of(einsum: str) -> str:
    """An einsum with its letters renamed in the order in which they come: ``mk,nk->mn`` is ``ab,cb->ac``."""
    letters = dict.fromkeys(letter for letter in einsum if letter.isalpha())
    names = {ord(letter): chr(ord("a") + place) for place, letter in enumerate(letters)}
    return einsum.translate(names)


def cublas(torch: Any, pack: Pack) -> Function | None:
    """`eager`, where that is by cuBLAS."""
    return eager(torch, pack) if pack.facts["conv2d"] is None else None


def cudnn(torch: Any, pack: Pack) -> Function | None:
    """`eager` of a convolution, which is by cuDNN, in the memory format of the workload's layout."""
    return None if pack.facts["conv2d"] is None else eager(torch, pack)


def cudnn_other_format(torch: Any, pack: Pack) -> Function | None:
    """`cudnn` of operands in the other memory format; they are converted once, ahead of what is timed."""
    op, names = pack.facts["conv2d"], pack.facts["operands"]
    if op is None:
        return None
    kept: list[tuple[Mapping[str, Any], dict[str, Any]]] = []

    def call(given: Mapping[str, Any]) -> Any:
        if kept and kept[0][1][names[0]].shape != given[names[0]].shape:
            kept.clear()  # of another instance
        known = next((converted for source, converted in kept if source is given), None)
        if known is None:
            layouts = {names[1]: "kernel_layout"}
            known = {
                n: in_other_format(torch, op, layouts.get(n, "data_layout"), v) for n, v in given.items()
            }
            kept.append((given, known))
        return reference(torch, pack, known)

    return call


def eager(torch: Any, pack: Pack) -> Function:
    """The workload as PyTorch computes it eagerly: the operator by its library, then one kernel a stage."""
    names = pack.facts["operands"]
    products = {
        _DENSE: torch.nn.functional.linear,
        _SCORES: lambda a, b: torch.bmm(a, b.transpose(1, 2)),
        _VALUES: torch.bmm,
    }
    product = None if pack.facts["einsum"] is None else products.get(kind_of(pack.facts["einsum"]))
    if product is None or pack.facts["stages"]:
        return lambda given: reference(torch, pack, given)
    return lambda given: product(given[names[0]], given[names[1]])


def attention(torch: Any, pack: Pack) -> Function | None:
    """``scaled_dot_product_attention``, by the kernel that PyTorch chooses; None for what is no attention."""
    block = pack.facts.get("block")
    if block is None or block["attention"] is None:
        return None
    return lambda given: attention_value(torch, block, given)


def compiled(torch: Any, pack: Pack) -> Function:
    """The same by ``torch.compile(dynamic=True)`` in max-autotune; its own CUDA graphs are left out, because
    all that is timed runs in one. Extents that are the same at all instances are told to it as such, as those
    of a module's parameters are.
    """
    function = torch.compile(eager(torch, pack), dynamic=True, mode="max-autotune-no-cudagraphs")
    shapes = [instance["shapes"] for instance in pack.facts["instances"]]
    fixed = {
        name: [axis for axis, extent in enumerate(first) if all(s[name][axis] == extent for s in shapes)]
        for name, first in shapes[0].items()
    }

    def call(given: Mapping[str, Any]) -> Any:
        for name, value in given.items():
            for axis in fixed[name]:
                torch._dynamo.mark_static(value, axis)
        return function(given)

    return call


def triton(torch: Any, pack: Pack) -> Function | None:
    """A plain matrix product tuned by Triton for each shape; None for workloads that it does not compute."""
    einsum, names = pack.facts["einsum"], pack.facts["operands"]
    if einsum is None or pack.facts["stages"] or kind_of(einsum) not in {_DENSE, _SCORES, _VALUES}:
        return None
    from triton_matmul import matmul

    kind = kind_of(einsum)

    def call(given: Mapping[str, Any]) -> Any:
        a, b = given[names[0]], given[names[1]]
        if kind == _DENSE:
            a, b = a[None], b[None]
        return matmul(torch, a, b if kind == _VALUES else b.transpose(1, 2))

    return call


class ShapesAlone:
    """TVM's MetaSchedule, each shape alone: the fastest of its trials at the shapes that have some.

    Attributes
    ----------
    indices : set of int
        Of the instances that it computes.
    """

    def __init__(self, torch: Any, pack: Pack) -> None:
        self._torch, driver = torch, Driver()
        self._kernels = {one["index"]: AloneKernel(driver, pack.files, one) for one in pack.facts["alone"]}
        self.indices = set(self._kernels)
        self._output, self._names = pack.facts["output"], sorted(pack.facts["alone"][0]["arguments"])
        shapes = {index: pack.facts["instances"][index]["shapes"] for index in self.indices}
        self._index_of = {self._key(own.__getitem__): index for index, own in shapes.items()}
        self._bound: dict[tuple[int, ...], tuple[Any, Any]] = {}  # by the tensors' addresses
        self._key_of_bound: Any = None

    def _key(self, shape_of: Callable[[str], Any]) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(shape_of(name)) for name in self._names)

    def __call__(self, given: Mapping[str, Any]) -> Any:
        """The output of one instance, in a tensor of its own for each set of operands."""
        key = self._key(lambda name: given[name].shape)
        address = tuple(given[name].data_ptr() for name in self._names)
        if key != self._key_of_bound:
            self._bound.clear()
            self._key_of_bound = key
        if address not in self._bound:
            own = self._torch.empty_like(given[self._output])
            tensors = {name: given[name] for name in self._names} | {self._output: own}
            self._bound[address] = self._kernels[self._index_of[key]].bind(tensors), own
        launch, own = self._bound[address]
        launch(self._torch.cuda.current_stream().cuda_stream)
        return own


def shapes_alone(torch: Any, pack: Pack) -> ShapesAlone | None:
    """`ShapesAlone`, where there are trials.

    Raises
    ------
    ValueError
        Trials were packed, and none of them could be timed.
    """
    if "alone_strategy" not in pack.facts:
        return None
    if not pack.facts["alone"]:
        raise ValueError("none of its trials was timed, or none was right")
    return ShapesAlone(torch, pack)
