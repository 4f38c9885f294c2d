"""A spec and what follows from it: derived once, and passed to every stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dietcode.search_space.forms import problem_of
from dietcode.search_space.problem import AnyProblem, IntArray, extents_of, instance_extents
from dietcode.workload.identity import workload_digest
from dietcode.workload.instances import Instances, largest_instance, make_instances
from dietcode.workload.spec import Spec


def _as_it_is(problem: AnyProblem) -> AnyProblem:
    return problem


@dataclass(frozen=True, eq=False)
class Task:
    """A spec, and what follows from it.

    Attributes
    ----------
    problem : AnyProblem
        As code for the device takes it.
    instances : Instances
        Those to tune for.
    extents : dict of str to int64 array [num_instances]
        Extent of every index of the problem, at each instance.
    largest : dict of str to int
        The same at the instance with the most FLOPs.
    digest : str
        Of the workload, which names its records.
    """

    spec: Spec
    problem: AnyProblem
    instances: Instances
    extents: dict[str, IntArray]
    largest: dict[str, int]
    digest: str

    @classmethod
    def of(cls, spec: Spec, on_device: Callable[[AnyProblem], AnyProblem] = _as_it_is) -> Task:
        """Derive everything from a spec.

        Parameters
        ----------
        on_device : callable
            Returns the problem as code for a kind of device takes it.
        """
        instances = make_instances(spec)
        return cls(
            spec,
            on_device(problem_of(spec)),
            instances,
            instance_extents(spec, instances.columns()),
            extents_of(spec, largest_instance(spec)),
            workload_digest(spec),
        )

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the shape variables, in the order of the code's arguments."""
        return self.spec.variables
