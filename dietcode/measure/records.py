"""Tuning records: what was measured, as versioned JSON Lines, named by workload and device.

The first line is a header; each later line is one fact. Lines are appended as soon as they are known, so a
killed run keeps everything it measured, and a torn last line is dropped on reading.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from dietcode.errors import RecordsError
from dietcode.extras import MissingExtraError, what_to_install
from dietcode.measure import checks
from dietcode.measure.formats import FORMATS, RecordFormat, format_of
from dietcode.measure.formats.cpu import CPU
from dietcode.search_space.candidate import AnyMicroKernel
from dietcode.search_space.forms import problem_from_json
from dietcode.target.cubin import KernelFacts
from dietcode.workload.text import clip

FORMAT = "dietcode-records/1"


@dataclass(frozen=True)
class Measurement:
    """One micro-kernel, measured, pruned after its first wave, or failed.

    Attributes
    ----------
    points : tuple of dict
        Extent of every index at each timed wave.
    secs : tuple of float
        Seconds of one call at each point.
    num_readings : int
        Readings that each of `secs` is the median of; finalists are read again.
    object_bytes : int
        Size of the object file that holds this micro-kernel alone with its host code.
    pruned : bool
        Whether only its first wave was timed, since it could not win anywhere.
    facts : KernelFacts or None
        Facts from a GPU's compiler; None on a CPU, and where the micro-kernel was not compiled.
    code : str or None
        Digest of its generated source; None where it was not built, and in records of earlier versions.
    generator : str or None
        Digest of the generator that is known to write this source, or to fail as this one did.
    """

    micro_kernel: AnyMicroKernel
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
    facts: KernelFacts | None = None
    code: str | None = None
    generator: str | None = None

    @property
    def usable(self) -> bool:
        """Whether f_local can be fitted: all waves were measured, and no register was spilled."""
        spills = self.facts is not None and self.facts.stack_bytes > 0
        return self.error is None and not self.pruned and not spills

    def to_json(self) -> dict[str, Any]:
        """Return one line of a records file."""
        line = {
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
        }
        line |= {"pruned": True} if self.pruned else {}
        line |= self.origin()
        return line | ({} if self.facts is None else {"facts": self.facts.to_json()})

    def origin(self) -> dict[str, str]:
        """Return the digests of the measured code and its generator, where they are known."""
        known = {"code": self.code, "generator": self.generator}
        return {name: digest for name, digest in known.items() if digest is not None}

    @classmethod
    def from_json(
        cls, data: Mapping[str, Any], format: RecordFormat = CPU, indices: frozenset[str] | None = None
    ) -> Measurement:
        """The inverse of `to_json`.

        Parameters
        ----------
        format : RecordFormat
            That of the records.
        indices : frozenset of str, optional
            Indices of the problem.

        Raises
        ------
        KeyError, TypeError, ValueError
            It is not a measurement.
        """
        data = format.whole_measurement(data)
        checks.check_measurement(data, indices, format.micro_kernel)
        return cls(
            micro_kernel=format.micro_kernel(data),
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
            facts=data.get("facts"),
            code=data.get("code"),
            generator=data.get("generator"),
        )


@dataclass
class Records:
    """All that is known of one workload on one device.

    Attributes
    ----------
    problem : dict or None
        What was computed, as the problem's ``to_json`` has it; other workloads learn from it.
    rounds : list of dict
        Decisions of the search, in order.
    """

    workload: str
    device: dict[str, Any]
    measurements: dict[AnyMicroKernel, Measurement] = field(default_factory=dict)
    calibration: dict[str, Any] | None = None
    seed: dict[str, Any] | None = None
    fixed_bytes: int | None = None
    problem: dict[str, Any] | None = None
    rounds: list[dict[str, Any]] = field(default_factory=list)

    @property
    def format(self) -> RecordFormat:
        """The format of what is particular to this kind of device."""
        return format_of(self.device)

    @property
    def is_synthetic(self) -> bool:
        """Whether no device measured this."""
        return bool(self.device.get("synthetic"))

    def header(self) -> dict[str, Any]:
        """Return the first line of the file."""
        return {"format": FORMAT, "workload": self.workload, "device": self.device}

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield every line of the file, header first."""
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

    def apply(self, line: Mapping[str, Any]) -> None:
        """Take in one line after the header; a later line about the same thing replaces the earlier.

        Raises
        ------
        KeyError, TypeError, ValueError
            It is not a record; then nothing changes.
        """
        kind = line.get("kind")
        body = {key: value for key, value in line.items() if key != "kind"}
        if kind == "calibration":
            self.calibration = self.format.calibration(body)
        elif kind == "seed":
            checks.check_seed(body, self.format.micro_kernel)
            self.seed = body
        elif kind == "fixed_bytes":
            checks.check_fixed_bytes(body)
            self.fixed_bytes = body["bytes"]
        elif kind == "problem":
            problem = problem_from_json(body)
            for measurement in self.measurements.values():
                checks.check_indices(measurement.points, frozenset(problem.extents))
            self.problem = problem.to_json()
        elif kind == "round":
            checks.check_round(body, self.format.micro_kernel)
            self.rounds.append(body)
        elif kind == "generator":
            checks.check_generator(body)
            self._note_generator(body["digest"], set(body["stale"]))
        elif kind == "micro_kernel":
            indices = None if self.problem is None else frozenset(self.problem["extents"])
            measurement = Measurement.from_json(body, self.format, indices)
            self.measurements[measurement.micro_kernel] = measurement

    def new_in(self, given: Records) -> dict[AnyMicroKernel, Measurement]:
        """Return what others measured of micro-kernels that are unknown here, or are now other code."""

        def is_new(measured: Measurement) -> bool:
            known = self.measurements.get(measured.micro_kernel)
            return known is None or measured.code not in {None, known.code}

        return {kernel: m for kernel, m in given.measurements.items() if is_new(m)}

    def _note_generator(self, digest: str, stale: set[str]) -> None:
        """Forget what another generator measured of micro-kernels that this one writes differently."""
        known = [m for m in self.measurements.values() if m.micro_kernel.name not in stale]
        if len(known) < len(self.measurements):
            self.rounds = []  # there is something to measure again
        self.measurements = {m.micro_kernel: replace(m, generator=digest) for m in known}


class RecordsStore(Protocol):
    """Where the records of one workload on one device are kept while they grow.

    Attributes
    ----------
    records : Records
        Everything that is known.
    """

    records: Records

    def append(self, line: dict[str, Any]) -> None:
        """Keep one line, lastingly, and take it into `records`.

        Raises
        ------
        RecordsError
            It cannot be kept.
        """

    def clear(self) -> None:
        """Forget everything, to measure it again."""


def check_belongs(records: Records, workload: str, device_id: str | None, path: Path | str) -> None:
    """Refuse records of another workload, or of another device.

    Parameters
    ----------
    workload : str
        Its digest.
    device_id : str or None
        None for any device.
    path : Path or str
        Where the records come from, for the message.

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


def check_kind(records: Records, kind: str, path: Path) -> None:
    """Refuse records of another kind of device than a target asks for.

    Raises
    ------
    RecordsError
        They are.
    """
    if records.format.kind != kind:
        name, asked = clip(records.device.get("name")), FORMATS[kind].word
        raise RecordsError(f"{path}: measured on {records.format.word}, {name}; the target here is {asked}")


def read_records(path: Path) -> Records:
    """Read a ``.jsonl`` or ``.jsonl.zst`` file; a torn last line is dropped.

    Raises
    ------
    RecordsError
        It is not a records file, or is damaged before its last line.
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
    records: Records | None = None
    for number, raw in enumerate(lines, 1):
        if not raw.strip():
            continue
        try:
            line = json.loads(raw)
            if records is None:
                if line["format"] != FORMAT:
                    raise RecordsError(f"{path}: format {line['format']!r}; this version reads {FORMAT}")
                format_of(line["device"]).check_device(line["device"])
                records = Records(str(line["workload"]), dict(line["device"]))
            else:
                records.apply(line)
        except checks.WRONG as error:
            raise RecordsError(
                f"{path}: line {number} is no tuning record: {checks.reason(error)}"
            ) from error
    if records is None:
        raise RecordsError(f"{path}: empty; a records file begins with a header line")
    return records


def write_records(path: Path, records: Records) -> None:
    """Write all records at once; a file that cannot be completed is not left behind.

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


def _zstandard() -> Any:
    """Return the module that packs and unpacks, which the client does without.

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
    """Open the bytes of a file, unpacked; raises ValueError where they are damaged."""
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
