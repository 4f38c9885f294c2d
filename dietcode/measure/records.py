"""Tuning records: what was measured, as versioned JSON Lines, named by workload and device.

The first line is a header; each later line is one fact. Lines are appended as soon as they are known, so a
killed run keeps everything it measured, and a torn last line is dropped on reading.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from dietcode.errors import RecordsError
from dietcode.extras import MissingExtraError, what_to_install
from dietcode.measure import checks
from dietcode.search_space.cpu.limits import MicroKernel
from dietcode.search_space.problem import Problem
from dietcode.workload.text import clip

FORMAT = "dietcode-records/1"


@dataclass(frozen=True)
class Measurement:
    """One micro-kernel, measured, pruned after its first wave, or failed.

    Attributes
    ----------
    points : tuple of dict
        Extents of every letter at each timed wave.
    secs : tuple of float
        Seconds of one call at each point.
    num_readings : int
        Readings that each of `secs` is the median of; finalists are read again.
    object_bytes : int
        Size of the object file that holds this micro-kernel alone with its host code.
    pruned : bool
        Only its first wave was timed: it could not win anywhere.
    """

    micro_kernel: MicroKernel
    provenance: str
    points: tuple[dict[str, int], ...] = ()
    secs: tuple[float, ...] = ()
    object_bytes: int = 0
    build_secs: float = 0.0
    drift: float = 1.0
    attempts: int = 1
    num_readings: int = 1
    error: str | None = None
    pruned: bool = False

    @property
    def usable(self) -> bool:
        """Whether f_local can be fitted: measured whole."""
        return self.error is None and not self.pruned

    def to_json(self) -> dict[str, Any]:
        """One line of a records file."""
        return {
            "kind": "micro_kernel",
            **self.micro_kernel.to_json(),
            "provenance": self.provenance,
            "points": list(self.points),
            "secs": list(self.secs),
            "object_bytes": self.object_bytes,
            "build_secs": self.build_secs,
            "drift": self.drift,
            "attempts": self.attempts,
            "num_readings": self.num_readings,
            "error": self.error,
        } | ({"pruned": True} if self.pruned else {})

    @classmethod
    def from_json(cls, data: dict[str, Any], letters: frozenset[str] | None = None) -> Measurement:
        """The inverse of `to_json`.

        Parameters
        ----------
        letters : frozenset of str, optional
            Those of the problem.

        Raises
        ------
        KeyError, TypeError, ValueError
            It is no measurement.
        """
        checks.check_measurement(data, letters)
        return cls(
            micro_kernel=MicroKernel.from_json(data),
            provenance=data["provenance"],
            points=tuple(dict(point) for point in data["points"]),
            secs=tuple(float(s) for s in data["secs"]),
            object_bytes=data["object_bytes"],
            build_secs=float(data["build_secs"]),
            drift=float(data["drift"]),
            attempts=data["attempts"],
            num_readings=data["num_readings"],
            error=data["error"],
            pruned=data.get("pruned", False),
        )


@dataclass
class Records:
    """All that is known of one workload on one device.

    Attributes
    ----------
    problem : dict or None
        What was computed, as `Problem.to_json` has it; other workloads learn from it.
    rounds : list of dict
        Decisions of the search, in order.
    """

    workload: str
    device: dict[str, Any]
    measurements: dict[MicroKernel, Measurement] = field(default_factory=dict)
    calibration: dict[str, Any] | None = None
    seed: dict[str, Any] | None = None
    fixed_bytes: int | None = None
    problem: dict[str, Any] | None = None
    rounds: list[dict[str, Any]] = field(default_factory=list)

    def header(self) -> dict[str, Any]:
        """First line of the file."""
        return {"format": FORMAT, "workload": self.workload, "device": self.device}

    def lines(self) -> Iterator[dict[str, Any]]:
        """Every line of the file, header first."""
        yield self.header()
        if self.problem is not None:
            yield {"kind": "problem", **self.problem}
        if self.calibration is not None:
            yield {"kind": "calibration", **self.calibration}
        if self.seed is not None:
            yield {"kind": "seed", **self.seed}
        if self.fixed_bytes is not None:
            yield {"kind": "fixed_bytes", "bytes": self.fixed_bytes}
        for measurement in self.measurements.values():
            yield measurement.to_json()
        for decision in self.rounds:
            yield {"kind": "round", **decision}

    def apply(self, line: dict[str, Any]) -> None:
        """Take in one line after the header; a later line about the same thing replaces the earlier.

        Raises
        ------
        KeyError, TypeError, ValueError
            It is no record; nothing is taken in then.
        """
        kind = line.get("kind")
        body = {key: value for key, value in line.items() if key != "kind"}
        if kind == "calibration":
            checks.check_calibration(body)
            self.calibration = body
        elif kind == "seed":
            checks.check_seed(body)
            self.seed = body
        elif kind == "fixed_bytes":
            checks.check_fixed_bytes(body)
            self.fixed_bytes = body["bytes"]
        elif kind == "problem":
            problem = Problem.from_json(body)
            for measurement in self.measurements.values():
                checks.check_letters(measurement.points, frozenset(problem.extents))
            self.problem = problem.to_json()
        elif kind == "round":
            checks.check_round(body)
            self.rounds.append(body)
        elif kind == "micro_kernel":
            letters = None if self.problem is None else frozenset(self.problem["extents"])
            measurement = Measurement.from_json(body, letters)
            self.measurements[measurement.micro_kernel] = measurement


class AnyRecords(Protocol):
    """What is known of one workload on one device, of a CPU or a GPU."""

    @property
    def workload(self) -> str: ...
    @property
    def device(self) -> dict[str, Any]: ...
    def lines(self) -> Iterator[dict[str, Any]]: ...
    def apply(self, line: dict[str, Any]) -> None: ...


R = TypeVar("R", bound=AnyRecords)


class RecordsStore(Protocol[R]):
    """Where the records of one workload on one device are kept while they grow.

    Attributes
    ----------
    records : Records or CudaRecords
        All that is known.
    """

    records: R

    def append(self, line: dict[str, Any]) -> None:
        """Keep one line, lastingly, and take it into `records`.

        Raises
        ------
        RecordsError
            It cannot be kept.
        """

    def clear(self) -> None:
        """Forget everything, to measure it again."""


def check_belongs(records: AnyRecords, workload: str, device_id: str | None, path: Path) -> None:
    """Refuse records of another workload, or of another device.

    Raises
    ------
    RecordsError
        They do not belong.
    """
    if records.workload != workload:
        raise RecordsError(
            f"{path}: records of another workload ({records.workload}); this one is {workload}"
        )
    if device_id is not None and records.device.get("id") != device_id:
        raise RecordsError(
            f"{path}: measured on {records.device.get('name')!r} ({records.device.get('id')}), not on this "
            f"device ({device_id}); pass them with --records to build from them"
        )


def read_records(path: Path) -> Records:
    """Read a ``.jsonl`` or ``.jsonl.zst`` file.

    Raises
    ------
    RecordsError
        It is no records file, or is damaged before its last line.
    """
    return read_lines(path, _begin, "tuning record")


def _begin(header: dict[str, Any]) -> Records:
    device = dict(header["device"])
    if dict(device.get("target", {})).get("kind") == "cuda":
        raise ValueError(f"it was measured on a GPU, {clip(device.get('name'))}; the target here is a CPU")
    return Records(str(header["workload"]), device)


def read_lines(path: Path, begin: Callable[[dict[str, Any]], R], what: str) -> R:
    """Read a file of records of some kind; a torn last line is dropped.

    Parameters
    ----------
    begin : callable
        Makes the records from their header; raises one of `checks.WRONG` where it is none.
    what : str
        What a line is, for the errors.

    Raises
    ------
    RecordsError
        As for `read_records`.
    """
    try:
        text = _read_text(path)
    except OSError as error:
        raise RecordsError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise RecordsError(f"{path}: not a records file: {error}") from error
    lines = text.split("\n")
    if lines and lines[-1]:
        lines.pop()  # torn while it was written
    records: R | None = None
    for number, raw in enumerate(lines, 1):
        if not raw.strip():
            continue
        try:
            line = json.loads(raw)
            if records is None:
                if line["format"] != FORMAT:
                    raise RecordsError(f"{path}: format {line['format']!r}; this version reads {FORMAT}")
                records = begin(line)
            else:
                records.apply(line)
        except checks.WRONG as error:
            raise RecordsError(f"{path}: line {number} is no {what}: {checks.reason(error)}") from error
    if records is None:
        raise RecordsError(f"{path}: empty; a records file begins with a header line")
    return records


def kind_of(path: Path) -> str:
    """Kind of the target in the header of a records file, as llvm or cuda; empty where it cannot be told."""
    try:
        with _opened(path) as stream:
            header = json.loads(stream.readline(_MAX_HEADER_BYTES))
        return str(header["device"]["target"]["kind"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def write_records(path: Path, records: AnyRecords) -> None:
    """Write all records at once; the file is complete or not there.

    Raises
    ------
    RecordsError
        It cannot be written.
    """
    text = "".join(json.dumps(line, sort_keys=True) + "\n" for line in records.lines())
    data = text.encode()
    try:
        if path.suffix == ".zst":
            data = _zstandard().ZstdCompressor(level=10).compress(data)
        partial = path.with_name(path.name + ".partial")
        partial.write_bytes(data)
        partial.replace(path)
    except OSError as error:
        raise RecordsError(f"{path}: cannot be written: {error.strerror or error}") from error


_MAX_TEXT_BYTES = 1 << 30
_MAX_HEADER_BYTES = 1 << 20


def _zstandard() -> Any:
    """The module that packs and unpacks, which the client half does without.

    Raises
    ------
    MissingExtraError
        It is not installed.
    """
    try:
        import zstandard
    except ImportError as error:
        raise MissingExtraError(what_to_install("a file *.zst", "tune", ("zstandard",))) from error
    return zstandard


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[io.BufferedIOBase]:
    """The bytes of a file, unpacked; a ValueError where they are damaged."""
    if path.suffix != ".zst":
        with path.open("rb") as stream:
            yield stream
        return
    zstandard = _zstandard()
    try:
        with path.open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw) as stream:
            yield io.BufferedReader(stream)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error


def _read_text(path: Path) -> str:
    with _opened(path) as stream:
        data = stream.read(_MAX_TEXT_BYTES + 1)
    if len(data) > _MAX_TEXT_BYTES:
        raise ValueError(f"it unpacks to more than {_MAX_TEXT_BYTES >> 20} MiB")
    return data.decode("utf-8")
