"""Tuning records of a GPU: measured where there is one, read where the library is built.

The format is that of `dietcode.measure.records`, and a file is told from one of a CPU by its header:

    {"format": "dietcode-records/1", "workload": "sha256:…", "device": {"id": "…", "name": "NVIDIA H200",
     "num_sms": 132, "target": {"kind": "cuda", "arch": "sm_90a"}, "synthetic": false}}
    {"kind": "calibration", "micro_kernel": "128x128-…", "wave_blocks": 264, "num_blocks": […], "secs": […]}
    {"kind": "micro_kernel", "rows": 128, …, "provenance": "hardware", "points": [{"m": 16, …}, …],
     "secs": […], "facts": {"registers": 128, "shared_bytes": 33792, "stack_bytes": 0, "code_bytes": 22016},
     "max_error": 1e-6, "resident_blocks": 2, "error": null}
    {"kind": "round", "number": 1, "measured": ["128x128-…", …], "gain": null, "stop": null, …}

``max_error`` is of the check against float64, ``resident_blocks`` what the driver says: both are for people.
Records that no device measured say ``synthetic: true``, and nothing is published from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dietcode.measure import checks
from dietcode.measure.records import FORMAT, read_lines
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.target.cubin import KernelFacts
from dietcode.target.cuda import CudaTarget
from dietcode.workload.text import clip

_MAX_SMS = 4096
_MIN_SECS, _MAX_SECS = 1e-12, 1e6  # of one call
_MAX_TIMES = 1024  # of one line
_CALIBRATION = ("micro_kernel", "wave_blocks", "num_blocks", "secs")
_FACTS = ("registers", "shared_bytes", "stack_bytes", "code_bytes")


@dataclass(frozen=True)
class CudaMeasurement:
    """One micro-kernel, measured or failed.

    Attributes
    ----------
    points : tuple of dict
        Extents of every letter at each timed call.
    secs : tuple of float
        Seconds of one call at each point, the median of several.
    facts : KernelFacts or None
        Of the block function, as it was compiled for the device; None where it was not.
    error : str or None
        Why it was not measured.
    """

    micro_kernel: CudaMicroKernel
    provenance: str
    points: tuple[dict[str, int], ...] = ()
    secs: tuple[float, ...] = ()
    facts: KernelFacts | None = None
    error: str | None = None

    @property
    def usable(self) -> bool:
        """Measured, and nothing of it spilled."""
        return self.error is None and self.facts is not None and self.facts.stack_bytes == 0

    def to_json(self) -> dict[str, Any]:
        """One line of a records file."""
        return {
            "kind": "micro_kernel",
            **self.micro_kernel.to_json(),
            "provenance": self.provenance,
            "points": list(self.points),
            "secs": list(self.secs),
            "facts": None if self.facts is None else self.facts.to_json(),
            "error": self.error,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CudaMeasurement:
        """The inverse of `to_json`.

        Raises
        ------
        KeyError, TypeError, ValueError
            It is no measurement.
        """
        tile = CudaMicroKernel.from_json(data)
        checks.line(data["provenance"], "provenance", checks.MAX_PROVENANCE)
        points, secs = checks.array(data["points"], "points"), checks.array(data["secs"], "secs")
        if len(points) != len(secs) or (data["error"] is None) != bool(points):
            raise ValueError(f"{len(secs)} times for {len(points)} points, error {clip(data['error'])}")
        for point in points:
            checks.check_letters([point], frozenset(points[0]))
            for letter, extent in point.items():
                checks.whole(extent, f"extent of {clip(letter)}", most=checks.MAX_EXTENT)
        _check_secs(secs)
        facts = data["facts"]
        if facts is not None:
            for name in _FACTS:
                checks.whole(facts[name], name, least=0, most=checks.MAX_EXTENT)
            facts = KernelFacts(*(facts[name] for name in _FACTS))
        if data["error"] is not None:
            checks.line(data["error"], "error")
        return cls(tile, data["provenance"], tuple(map(dict, points)), tuple(secs), facts, data["error"])


@dataclass
class CudaRecords:
    """All that is known of one workload on one GPU.

    Attributes
    ----------
    rounds : list of dict
        Decisions of the search, in order; a machine without the compiler makes none.
    """

    workload: str
    device: dict[str, Any]
    measurements: dict[CudaMicroKernel, CudaMeasurement] = field(default_factory=dict)
    calibration: dict[str, Any] | None = None
    rounds: list[dict[str, Any]] = field(default_factory=list)

    @property
    def target(self) -> CudaTarget:
        """What was measured."""
        return CudaTarget.from_json(self.device["target"])

    @property
    def is_synthetic(self) -> bool:
        """Whether no device measured this."""
        return bool(self.device["synthetic"])

    def lines(self) -> Iterator[dict[str, Any]]:
        """Every line of the file, header first."""
        yield {"format": FORMAT, "workload": self.workload, "device": self.device}
        if self.calibration is not None:
            yield {"kind": "calibration", **self.calibration}
        for measurement in self.measurements.values():
            yield measurement.to_json()
        for decision in self.rounds:
            yield {"kind": "round", **decision}

    def apply(self, line: Mapping[str, Any]) -> None:
        """Take in one line after the header.

        Raises
        ------
        KeyError, TypeError, ValueError
            It is no record.
        """
        if line.get("kind") == "calibration":
            _check_calibration(line)
            self.calibration = {key: line[key] for key in _CALIBRATION if key in line}
        elif line.get("kind") == "micro_kernel":
            measurement = CudaMeasurement.from_json(line)
            self.measurements[measurement.micro_kernel] = measurement
        elif line.get("kind") == "round":
            body = {key: value for key, value in line.items() if key != "kind"}
            checks.check_round(body)
            self.rounds.append(body)


def _check_calibration(line: Mapping[str, Any]) -> None:
    """The sweep of grids that κ is fitted on: blocks and seconds of each call, and the blocks of a wave."""
    checks.line(line.get("micro_kernel", ""), "micro_kernel")
    checks.whole(line["wave_blocks"], "wave_blocks", most=checks.MAX_EXTENT)
    blocks, secs = checks.array(line["num_blocks"], "num_blocks"), checks.array(line["secs"], "secs")
    for count in blocks:
        checks.whole(count, "num_blocks", most=checks.MAX_EXTENT)
    _check_secs(secs)
    if len(blocks) != len(secs):
        raise ValueError(f"{len(secs)} times for {len(blocks)} grids")


def _check_secs(secs: Sequence[Any]) -> None:
    if len(secs) > _MAX_TIMES:
        raise ValueError(f"{len(secs)} times; allowed: {_MAX_TIMES}")
    for value in secs:
        checks.real(value, "secs", least=_MIN_SECS, most=_MAX_SECS)


def check_device(device: Mapping[str, Any]) -> None:
    """Refuse a header that names no GPU.

    Raises
    ------
    KeyError, TypeError, ValueError
        It names none.
    """
    checks.line(device["name"], "device.name", 256)
    if not device["name"].isprintable():
        raise ValueError(f"device.name {clip(device['name'])}; allowed: printable characters")
    checks.line(device["id"], "device.id", 64)
    if not (device["id"].isascii() and device["id"].isalnum()):
        raise ValueError(f"device.id {clip(device['id'])}; allowed: letters and digits")
    checks.whole(device["num_sms"], "device.num_sms", most=_MAX_SMS)
    CudaTarget.from_json(dict(device["target"]))
    if not isinstance(device["synthetic"], bool):
        raise TypeError(f"device.synthetic {clip(device['synthetic'])}; allowed: true or false")


def read_cuda_records(path: Path) -> CudaRecords:
    """Read a ``.jsonl`` or ``.jsonl.zst`` file.

    Raises
    ------
    RecordsError
        It is no records file of a GPU, or is damaged before its last line.
    """
    return read_lines(path, _begin, "record of a GPU")


def _begin(header: Mapping[str, Any]) -> CudaRecords:
    device = header["device"]
    if device["target"].get("kind") != "cuda":
        raise ValueError(f"it was measured on {clip(device.get('name'))}, which is no GPU")
    check_device(device)
    return CudaRecords(str(header["workload"]), dict(header["device"]))
