"""What builds, checks and times, seen from the process that tunes; and what runs in it, seen from there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from dietcode.measure.requests import (
    BuildRequest,
    BuildResult,
    CheckRequest,
    CheckResult,
    TimeRequest,
    TimeResult,
)
from dietcode.measure.seed_search import SeedSearch


class Children(Protocol):
    """Child processes that build side by side, and one that checks and times; here or on other machines.

    Whatever goes wrong with a candidate comes back as the ``error`` of its result, one line; the next call
    works. Whoever opened them closes them; one thread uses them at a time.
    `tests/measure/test_contract.py` runs over every implementation.

    Raises
    ------
    TuningError
        By every call: the device is gone for good, so that nothing more can be measured.
    """

    @property
    def slot(self) -> str:
        """Name of what one job at a time measures on; empty while that is not known."""

    @property
    def seeds(self) -> SeedSearch:
        """The search for a seed on the machine that measures."""

    def build(self, requests: Sequence[BuildRequest]) -> Iterator[BuildResult]:
        """Compile side by side, in confined processes; results in the order of `requests`.

        What has not begun when the iterator is closed or dropped is never built.
        """

    def time(self, request: TimeRequest, timeout_secs: float) -> TimeResult:
        """Time, with nothing else at work on the device."""

    def check(self, request: CheckRequest, timeout_secs: float) -> CheckResult:
        """Compare with float64."""

    def close(self) -> None:
        """End all processes."""


class Worker(Protocol):
    """What runs in children of one kind of device: a hashable value that travels to them.

    Its functions raise where something goes wrong, and the caller of the child makes an error of that.
    """

    @property
    def num_builders(self) -> int:
        """Processes that build side by side on the machine that measures."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables that the processes start with, beside those of the one that opens them."""

    @property
    def seeds(self) -> SeedSearch:
        """As `Children.seeds`."""

    def start(self, temporary: str, measures: bool) -> None:
        """Confine a process that has just started, and have it end with its parent.

        Parameters
        ----------
        temporary : str
            Folder for temporary files.
        measures : bool
            Whether it is the process that measures, or one that builds.
        """

    def get_ready(self) -> None:
        """Import what the first call would wait for."""

    def build(self, request: BuildRequest) -> BuildResult:
        """As `Children.build`, for one."""

    def time(self, request: TimeRequest) -> TimeResult:
        """As `Children.time`."""

    def check(self, request: CheckRequest) -> CheckResult:
        """As `Children.check`."""
