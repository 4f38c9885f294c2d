"""A workload spec that is valid as a whole, and the models that it is made of."""

from __future__ import annotations

from pydantic import model_validator

from dietcode.workload.conv1d import Conv1d
from dietcode.workload.conv2d import Conv2d
from dietcode.workload.spec_checks import check_spec
from dietcode.workload.spec_fields import Budget, ObjectiveSpec, OpSpec, OutputSpec, SpecFields, TensorSpec
from dietcode.workload.target_spec import TargetSpec
from dietcode.workload.variables import JointInstance, RangeVariable, ValuesVariable

__all__ = [
    "Budget",
    "Conv1d",
    "Conv2d",
    "JointInstance",
    "ObjectiveSpec",
    "OpSpec",
    "OutputSpec",
    "RangeVariable",
    "Spec",
    "TargetSpec",
    "TensorSpec",
    "ValuesVariable",
]


class Spec(SpecFields):
    """A workload spec, valid as a whole; `dietcode.workload.parse` makes one from text or plain data.

    Parameters
    ----------
    name : str
        What its library is called: 1 to 64 of a-z, 0-9, ``.``, ``_``, ``-``, a letter or digit first.
    op : OpSpec
        What is computed.
    tensors : dict of str to TensorSpec
        The two operands by name, in the order of the einsum; of a convolution the data, then the kernel; of a
        block all tensors that it reads.
    output : OutputSpec
        Name and dtype of the output; left out, ``Y`` in float32, or what a block names.
    accumulate : str
        Dtype of the accumulators: ``float32``.
    shape_vars : dict of str to ShapeVariable
        The numbers that differ from call to call, at most 4, each with its values.
    instances : tuple of JointInstance
        Shapes to tune for, where the product of all values is not meant; or the name of a histogram file.
    dims : dict of str to int or str
        Extent of each index: a number, or sums and products of numbers and shape variables, as ``16*T``.
    target : TargetSpec
        What to build for and measure on; left out, the CPU of the machine that tunes.
    budget : Budget
        When to stop.
    objective : ObjectiveSpec
        What to trade for a smaller library.
    """

    @model_validator(mode="after")
    def _check(self) -> Spec:
        check_spec(self)
        return self
