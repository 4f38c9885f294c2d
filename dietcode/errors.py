"""The exception tree of DietCode.

    DietCodeError                 anything this package reports; ``exit_status`` 1
    ├── RequestError              the request was wrong; ``exit_status`` 2
    │   ├── SpecError             a field of a workload spec
    │   ├── ModelError            a model that cannot be compiled
    │   ├── ShapeError            a call's shapes, or shape variables out of range
    │   ├── TensorError           a call's tensor: dtype, layout, device
    │   ├── NotFoundError         no such job, library, version or blob
    │   └── ConflictError         a request that does not fit the state of what it is about
    ├── TargetError               a target that cannot be built for or run on here
    ├── LibraryError              a library folder that cannot be loaded or verified
    ├── ProgramError              an instance of a program that could not be run to its end
    ├── RecordsError              a records file that cannot be used
    ├── CandidateError            one micro-kernel is wrong; the only one that search swallows
    ├── TuningError               tuning as a whole cannot go on
    └── ServerError               the server cannot be reached, or failed

Every message is one line: what was given, what is allowed, what to do.
"""

from __future__ import annotations


class DietCodeError(Exception):
    """Base class; ``str(error)`` is one line fit for a terminal."""

    exit_status = 1


class RequestError(DietCodeError):
    """The request itself was wrong: nothing was started, nothing was lost."""

    exit_status = 2


class SpecError(RequestError):
    """A workload spec was refused.

    Parameters
    ----------
    field : str
        Dotted path of the field, as in ``shape_vars.T.min``.
    problem : str
        What was given and what is allowed.
    """

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        self.problem = problem
        super().__init__(f"{field}: {problem}" if field else problem)


class ModelError(RequestError):
    """A model, or a graph, that cannot be compiled; nothing was tuned."""


class ShapeError(RequestError, ValueError):
    """Shapes of a call that do not fit together, or lie outside the declared range."""


class TensorError(RequestError, TypeError):
    """A tensor of a call with the wrong dtype, layout or device."""


class TargetError(DietCodeError):
    """A target that is unknown, or lacks what a library needs."""


class LibraryError(DietCodeError):
    """A library folder that is incomplete, altered or not loadable."""


class ProgramError(DietCodeError):
    """An instance of a program's call that failed, as Python's own text would have; the others did not.

    Parameters
    ----------
    problem : str
        Where it happened, and what.
    instance : int, optional
        Its position among the instances of the call; None where it is none of them alone.

    Attributes
    ----------
    instance : int or None
    """

    def __init__(self, problem: str, instance: int | None = None) -> None:
        self.instance = instance
        super().__init__(problem if instance is None else f"instance {instance}: {problem}")


class RecordsError(DietCodeError):
    """A records file that cannot be read, or does not belong to this workload and device."""


class CandidateError(DietCodeError):
    """One micro-kernel candidate cannot be lowered, built, run, or gives wrong numbers."""


class TuningError(DietCodeError):
    """Tuning cannot go on, for instance because no candidate worked."""


class ServerError(DietCodeError):
    """The server cannot be reached, or failed."""


class NotFoundError(RequestError):
    """No such job, library, version or blob."""


class ConflictError(RequestError):
    """A request that does not fit the state of what it is about."""
