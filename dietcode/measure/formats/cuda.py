"""Records of GPUs: measured where there is one, read where the library is built.

    {"format": "dietcode-records/1", "workload": "sha256:…", "device": {"id": "…", "name": "NVIDIA H200",
     "num_sms": 132, "target": {"kind": "cuda", "arch": "sm_90a"}, "synthetic": false}}
    {"kind": "calibration", "micro_kernel": "128x128-…", "wave_blocks": 264, "num_blocks": […], "secs": […]}
    {"kind": "micro_kernel", "rows": 128, …, "provenance": "hardware", "points": [{"m": 16, …}, …],
     "secs": […], "facts": {"registers": 128, "shared_bytes": 33792, "stack_bytes": 0, "code_bytes": 22016},
     "error": null, …}
    {"kind": "round", "number": 1, "measured": ["128x128-…", …], "gain": null, "stop": null, …}

Records that no device measured have ``synthetic: true``, and nothing is published from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dietcode.measure import checks
from dietcode.measure.formats.base import RecordFormat
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.target.cubin import KernelFacts
from dietcode.target.cuda import CudaTarget
from dietcode.workload.text import clip

_MAX_SMS = 4096
_MIN_SECS, _MAX_SECS = 1e-12, 1e6  # of one call
_MAX_TIMES = 1024  # of one line
_MAX_CLASSES = 8  # alignment classes of one micro-kernel
_CALIBRATION = ("micro_kernel", "unit", "block_flops", "wave_blocks", "num_blocks", "secs", "from_workload")
_FACTS = ("registers", "shared_bytes", "stack_bytes", "code_bytes")
# What lines lack that were written before all records had one format.
_DEFAULTS = {"object_bytes": 0, "build_secs": 0.0, "drift": 1.0, "attempts": 1, "num_readings": 1}


def _calibration(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sweep that κ is fitted on: blocks and seconds of each call, and the blocks of a wave."""
    for name in ("micro_kernel", "unit", "from_workload"):
        checks.line(body.get(name, ""), name)
    checks.whole(body.get("block_flops", 1), "block_flops", most=checks.MAX_EXTENT)
    checks.whole(body["wave_blocks"], "wave_blocks", most=checks.MAX_EXTENT)
    blocks, secs = checks.array(body["num_blocks"], "num_blocks"), checks.array(body["secs"], "secs")
    for count in blocks:
        checks.whole(count, "num_blocks", most=checks.MAX_EXTENT)
    _check_secs(secs)
    if len(blocks) != len(secs):
        raise ValueError(f"{len(secs)} times for {len(blocks)} grids")
    return {key: body[key] for key in _CALIBRATION if key in body}


def _whole_measurement(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line with the compiler's facts; seconds are bounded, since strangers may send such lines."""
    whole = _DEFAULTS | dict(body)
    _check_secs(checks.array(whole["secs"], "secs"))
    facts = whole.get("facts")
    if facts is not None:
        for name in _FACTS:
            checks.whole(facts[name], name, least=0, most=checks.MAX_EXTENT)
        classes = facts.get("classes", 1)  # lines from before there were alignment classes have one
        checks.whole(classes, "classes", most=_MAX_CLASSES)
        facts = KernelFacts(**{name: facts[name] for name in _FACTS}, classes=classes)
    if whole["error"] is not None:
        checks.line(whole["error"], "error")
    return whole | {"facts": facts}


def _check_secs(secs: Sequence[Any]) -> None:
    if len(secs) > _MAX_TIMES:
        raise ValueError(f"{len(secs)} times; allowed: {_MAX_TIMES}")
    for value in secs:
        checks.real(value, "secs", least=_MIN_SECS, most=_MAX_SECS)


def _check_device(device: Mapping[str, Any]) -> None:
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


CUDA = RecordFormat(
    "cuda",
    "a GPU",
    CudaMicroKernel.from_json,
    _calibration,
    _check_device,
    _whole_measurement,
    header_facts=("num_sms", "synthetic"),
    is_imported=True,
)
