"""On the GPU: check every packed micro-kernel against float64, time it, and write tuning records.

Each line is written as soon as it is known. A micro-kernel that takes the process or the GPU's context with
it, or does not come back, is written down as failed, and the others go on in another process.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import queue
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from device import Driver, GpuError, need_gpu, seconds_of
from machine import machine_facts
from packed import MicroKernel, Pack, Tensors, ready

_MAX_SWEEP = 64
_LOST = 75  # a child's status: the GPU's context is of no more use, and the last line says why
_HANG_SECS = 90.0  # without a word of a child; to begin, or for one micro-kernel
_MIN_GOOD = 16  # of so many first micro-kernels one must work


def device_facts(torch: Any, arch: str) -> dict[str, Any]:
    """The header's device: its name, multiprocessors and architecture, by a stable id."""
    properties = torch.cuda.get_device_properties(0)
    target = {"kind": "cuda", "arch": arch}
    facts = {"name": properties.name, "num_sms": properties.multi_processor_count, "target": target}
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    return facts | {"id": digest, "synthetic": False}


def sweep(torch: Any, driver: Driver, pack: Pack, candidate: dict[str, Any]) -> dict[str, Any]:
    """Seconds of a candidate at 1 to 4 waves and more (paper, Figure 13), launches left out by graphs."""
    kernel = MicroKernel(driver, pack, candidate)
    num_sms = torch.cuda.get_device_properties(0).multi_processor_count
    found: dict[str, Any] = {"micro_kernel": candidate["name"], "num_blocks": [], "secs": []}
    found["wave_blocks"] = kernel.wave_blocks(num_sms)
    instances = pack.facts["sweep"]
    block = kernel.candidate["block"]
    for instance in instances[:: max(1, len(instances) // _MAX_SWEEP)]:
        tensors = Tensors(torch, pack, instance)
        call = kernel.bind(torch, tensors, "sweep")
        found["num_blocks"].append(kernel.candidate["grids"]["sweep"][instance["index"]]["grids"][block][0])
        found["secs"].append(seconds_of(torch, call, tensors.copies))
    return found | {"facts": kernel.facts}


def measure_one(
    torch: Any, driver: Driver, pack: Pack, candidate: dict[str, Any], points_of: dict[int, Tensors]
) -> dict[str, Any]:
    """One line of records; the tensors of the points are made once."""
    line = {"kind": "micro_kernel", **candidate["tile"], "provenance": candidate["provenance"]}
    failed = {"points": [], "secs": [], "facts": None}
    try:
        kernel = MicroKernel(driver, pack, candidate)
        points, secs, worst = [], [], 0.0
        for index in pack.facts["points"]:
            instance = pack.facts["instances"][index]
            if index not in points_of:
                points_of[index] = Tensors(torch, pack, instance)
            tensors = points_of[index]
            call = kernel.bind(torch, tensors, "instances")
            tensors.sets[0][pack.facts["output"]].fill_(float("nan"))
            call(0)
            error = tensors.error_of(torch, pack)
            if not error <= pack.max_error:  # nor is NaN, which is what was not written
                return line | failed | {"error": f"off by {error} at {instance['shape_vars']}"}
            worst = max(worst, error)
            points.append(instance["extents"])
            secs.append(seconds_of(torch, call, tensors.copies))
        line |= {"points": points, "secs": secs, "facts": kernel.facts, "max_error": worst, "error": None}
        num_sms = torch.cuda.get_device_properties(0).multi_processor_count
        return line | {"wave_blocks": kernel.wave_blocks(num_sms)}  # as the driver has it, to be compared
    except (GpuError, RuntimeError) as error:
        return line | failed | {"error": " ".join(str(error).split())[:300]}


def check(torch: Any, driver: Driver, pack: Pack, count: int) -> list[str]:
    """A line for each of the first micro-kernels: right or wrong at the points, called once and not timed."""
    lines = []
    for candidate in pack.facts["candidates"][:count]:
        kernel, errors = MicroKernel(driver, pack, candidate), []
        for index in pack.facts["points"]:
            tensors = Tensors(torch, pack, pack.facts["instances"][index], copies=1)
            call = kernel.bind(torch, tensors, "instances")
            tensors.sets[0][pack.facts["output"]].fill_(float("nan"))
            call(0)
            errors.append(tensors.error_of(torch, pack))
        worst = max(errors, key=lambda error: math.inf if math.isnan(error) else error)
        verdict = "right" if worst <= pack.max_error else "wrong"
        lines.append(f"{candidate['name']}: {verdict}, off by {worst:.3g}")
    return lines


def work(folder: Path, output: Path, first: int, deadline: float) -> None:
    """Measure candidates from `first` on; their number is told before each, so that the parent knows.

    The sweep is of the first that is right and was packed for it.
    """
    torch, pack, driver = need_gpu(), Pack(folder), Driver()
    known = [json.loads(line) for line in output.read_text().splitlines()] if first else []
    is_swept = any(line.get("kind") == "calibration" for line in known)
    num_good = sum(line.get("error", "") is None for line in known)
    with output.open("a") as stream:

        def write(line: dict[str, Any]) -> None:
            stream.write(json.dumps(line, sort_keys=True) + "\n")
            stream.flush()

        if not known:
            device = device_facts(torch, pack.facts["arch"])
            made = machine_facts(torch) | {"commit": pack.facts["commit"]}
            header = {"format": "dietcode-records/1", "workload": pack.facts["workload"], "device": device}
            write(header | {"made": made})
        points_of: dict[int, Tensors] = {}
        for number, candidate in enumerate(pack.facts["candidates"]):
            if number < first:
                continue
            if time.time() > deadline or (number >= _MIN_GOOD and not num_good):
                print("the end", number, flush=True)
                return
            print("at", number, flush=True)
            started = time.time()
            line = measure_one(torch, driver, pack, candidate, points_of)
            write(line | {"wall_secs": round(time.time() - started, 3)})
            num_good += line["error"] is None
            if line["error"] is not None:
                end_if_lost(torch)
            elif not is_swept and "sweep" in candidate["grids"]:
                write({"kind": "calibration", **sweep(torch, driver, pack, candidate)})
                is_swept = True


def end_if_lost(torch: Any) -> None:
    """End this process where a kernel took the GPU's context with it: nothing runs in that any more."""
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        os._exit(_LOST)  # what Python and PyTorch tidy up at their end would fail


def watch(command: list[str], hang_secs: float = _HANG_SECS) -> tuple[int | None, int | None]:
    """Run a child; its status, None where it said nothing for too long, and the last number it was at."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    said: queue.Queue[str | None] = queue.Queue()

    def listen() -> None:
        assert child.stdout is not None
        with child.stdout as lines:
            for line in lines:
                said.put(line)
        said.put(None)

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    number = None
    try:
        while (line := said.get(timeout=hang_secs)) is not None:
            number = int(line.split()[1]) if line.startswith("at ") else number
        return child.wait(timeout=hang_secs), number
    except (queue.Empty, subprocess.TimeoutExpired):
        child.kill()
        child.wait()
        return None, number
    finally:
        listener.join(hang_secs)


def told(path: Path) -> tuple[int, str]:
    """How many micro-kernels were measured, and that in a line with why the others were not."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    errors = [line["error"] for line in lines if line.get("kind") == "micro_kernel"]
    reasons = Counter(error.split(" at ")[0] for error in errors if error is not None).most_common(3)
    more = "".join(f"; {count} failed: {reason}" for reason, count in reasons)
    sweeps = sum(line.get("kind") == "calibration" for line in lines)
    return errors.count(None), f"{errors.count(None)} micro-kernels measured, {sweeps} sweep{more}"


def main() -> None:
    """Run the work in children until all is measured or time is up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pack", type=Path)
    parser.add_argument("-o", "--output", type=Path, help="records.jsonl, to be written anew")
    parser.add_argument("--check", type=int, metavar="N", help="only say whether the first N are right")
    parser.add_argument("--secs", type=float, default=420.0, help="when to stop")
    parser.add_argument("--first", type=int, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--deadline", type=float, default=None, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.first is not None:
        work(given.pack, given.output, given.first, given.deadline)
        return
    pack = Pack(given.pack)
    torch, driver = need_gpu(), ready(pack)
    if given.check is not None:
        print("\n".join(check(torch, driver, pack, given.check)))
        return
    if given.output is None:
        parser.error("-o: where records go is missing")
    candidates = pack.facts["candidates"]
    given.output.write_text("")
    deadline, first = time.time() + given.secs, 0
    while first < len(candidates):
        command = [sys.executable, __file__, str(given.pack), "-o", str(given.output)]
        status, number = watch([*command, "--first", str(first), "--deadline", str(deadline)])
        if status == 0:
            break
        if number is None:
            raise SystemExit("the benchmark fails before its first micro-kernel; see above")
        if status != _LOST:
            why = f"ended with {status}" if status is not None else f"said nothing for {_HANG_SECS:g} s"
            candidate = candidates[number]
            line = {"kind": "micro_kernel", **candidate["tile"], "provenance": candidate["provenance"]}
            line |= {"points": [], "secs": [], "facts": None, "error": f"the process {why}"}
            with given.output.open("a") as stream:
                stream.write(json.dumps(line, sort_keys=True) + "\n")
        first = number + 1
    num_good, text = told(given.output)
    print(f"{given.output}: {text}")
    if not num_good:
        raise SystemExit(f"{given.pack}: nothing could be measured")


if __name__ == "__main__":
    main()
