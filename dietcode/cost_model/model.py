"""The interface of every kind of device's cost model: the three factors, the array, and estimates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dietcode.errors import TuningError
from dietcode.search_space.candidate import AnyMicroKernel
from dietcode.search_space.problem import AnyProblem, IntArray

FloatArray = npt.NDArray[np.float64]
Table = npt.NDArray[np.float32]
Extents = dict[str, IntArray]


@dataclass(frozen=True)
class Factors:
    """Predictions for every instance with one micro-kernel; arrays are float64 [num_instances].

    Attributes
    ----------
    f_local : FLOP/s of the padded work in full waves, launch left out.
    f_spatial, f_pad : ratios, at most 1 (f_spatial is above 1 only if κ was fitted below 0).
    throughput : predicted FLOP/s of a call, launch included.
    imbalance : x of f_spatial, pad(n, P) / n.
    waves : n / P, tiles over those that are computed at a time.
    """

    f_local: FloatArray
    f_spatial: FloatArray
    f_pad: FloatArray
    throughput: FloatArray
    imbalance: FloatArray
    waves: FloatArray


class FittedLocal(Protocol):
    """The fitted f_local of one micro-kernel."""

    @property
    def micro_kernel(self) -> AnyMicroKernel:
        """The micro-kernel."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data for the report, ``median_fit_error`` included."""


@dataclass(frozen=True)
class Fitted:
    """The cost array and what it was made from.

    Attributes
    ----------
    models : tuple of FittedLocal
        Of the usable micro-kernels, in their order.
    throughput : float64 array [num_instances, num_micro_kernels]
        Predicted FLOP/s.
    sizes : int64 array [num_micro_kernels]
        Compiled bytes of each micro-kernel.
    predict_one : callable
        ``(model, extents) -> Factors``, at any instances.
    unused : dict of str to str
        Measured micro-kernels that cannot be used, by name, and why.
    """

    models: tuple[Any, ...]
    factors: tuple[Factors, ...]
    throughput: FloatArray
    flops: FloatArray
    sizes: IntArray
    predict_one: Callable[[Any, Extents], Factors]
    unused: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        problem: AnyProblem,
        models: Sequence[FittedLocal],
        predict_one: Callable[[Any, Extents], Factors],
        sizes: Callable[[AnyMicroKernel], int],
        extents: Extents,
        unused: Mapping[str, str] | None = None,
    ) -> Fitted:
        """Predict every instance by every model.

        Parameters
        ----------
        models : sequence of FittedLocal
            In any order.
        predict_one : callable
            ``(model, extents) -> Factors``.
        sizes : callable
            Compiled bytes of a micro-kernel.
        extents : dict of str to int64 array [num_instances]

        Raises
        ------
        TuningError
            There is no model.
        """
        if not models:
            raise TuningError("the records hold no usable measurement of this workload")
        ordered = sorted(models, key=lambda model: model.micro_kernel.order)
        factors = tuple(predict_one(model, extents) for model in ordered)
        flops = np.broadcast_to(np.asarray(problem.flops(extents)), factors[0].throughput.shape)
        bytes_ = np.asarray([max(1, sizes(model.micro_kernel)) for model in ordered], dtype=np.int64)
        array = cost_array(factors)
        return cls(tuple(ordered), factors, array, flops, bytes_, predict_one, unused or {})

    def predict(self, chosen: Sequence[int], extents: Extents) -> FloatArray:
        """Return predicted FLOP/s of some micro-kernels at further instances, [num_instances, num_chosen]."""
        return cost_array([self.predict_one(self.models[i], extents) for i in chosen])


def cost_array(factors: Sequence[Factors]) -> FloatArray:
    """Return predicted FLOP/s, [num_instances, num_micro_kernels]."""
    return np.stack([f.throughput for f in factors], axis=1)


@dataclass(frozen=True)
class Feature:
    """One column of the feature array.

    Attributes
    ----------
    name, unit : str
    rule : str
        How to count it.
    """

    name: str
    unit: str
    rule: str


class Estimator(Protocol):
    """Estimates of micro-kernels on one calibrated device, before they are measured.

    Attributes
    ----------
    version : int
        Of the set of features.
    """

    @property
    def version(self) -> int: ...

    def allows(self, problem: AnyProblem, micro_kernel: AnyMicroKernel) -> bool:
        """Whether the micro-kernel computes the problem on the device."""

    def estimate(self, problem: AnyProblem, micro_kernel: AnyMicroKernel, extents: Extents) -> FloatArray:
        """Return the seconds of a call by arithmetic alone, [num_points]."""

    def features(
        self, problem: AnyProblem, micro_kernel: AnyMicroKernel, extents: Extents
    ) -> tuple[Table, FloatArray]:
        """Return features, float32 [num_points, num_features], and `estimate`."""
