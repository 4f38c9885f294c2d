"""On the GPU: check every packed micro-kernel against float64, time it, and write tuning records.

Each line is written as soon as it is known. A micro-kernel that takes the process with it is written down as
failed, and the others go on in another process.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from device import Driver, GpuError, need_gpu, seconds_of
from machine import machine_facts
from packed import MicroKernel, Pack, Tensors, ready

_MAX_SWEEP = 64


def device_facts(torch: Any, arch: str) -> dict[str, Any]:
    """The header's device: its name, multiprocessors and architecture, by a stable id."""
    properties = torch.cuda.get_device_properties(0)
    target = {"kind": "cuda", "arch": arch}
    facts = {"name": properties.name, "num_sms": properties.multi_processor_count, "target": target}
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    return facts | {"id": digest, "synthetic": False}


def sweep(torch: Any, driver: Driver, pack: Pack) -> dict[str, Any]:
    """Seconds of the first candidate at 1 to 4 waves (paper, Figure 13), launches left out by graphs."""
    kernel = MicroKernel(driver, pack, pack.facts["candidates"][0])
    num_sms = torch.cuda.get_device_properties(0).multi_processor_count
    found: dict[str, Any] = {
        "micro_kernel": pack.facts["candidates"][0]["name"],
        "num_blocks": [],
        "secs": [],
    }
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
            worst = max(worst, tensors.error_of(torch, pack))
            if not worst <= pack.max_error:
                return line | failed | {"error": f"off by {worst} at {instance['shape_vars']}"}
            points.append(instance["extents"])
            secs.append(seconds_of(torch, call, tensors.copies))
        line |= {"points": points, "secs": secs, "facts": kernel.facts, "max_error": worst, "error": None}
        num_sms = torch.cuda.get_device_properties(0).multi_processor_count
        return line | {"wave_blocks": kernel.wave_blocks(num_sms)}  # as the driver has it, to be compared
    except (GpuError, RuntimeError) as error:
        return line | failed | {"error": " ".join(str(error).split())[:300]}


def work(folder: Path, output: Path, first: int, deadline: float) -> None:
    """Measure candidates from `first` on; their number is told before each, so that the parent knows."""
    torch, pack, driver = need_gpu(), Pack(folder), Driver()
    with output.open("a") as stream:

        def write(line: dict[str, Any]) -> None:
            stream.write(json.dumps(line, sort_keys=True) + "\n")
            stream.flush()

        if first < 0:
            device = device_facts(torch, pack.facts["arch"])
            made = machine_facts(torch) | {"commit": pack.facts["commit"]}
            header = {"format": "dietcode-records/1", "workload": pack.facts["workload"], "device": device}
            write(header | {"made": made})
            write({"kind": "calibration", **sweep(torch, driver, pack)})
        points_of: dict[int, Tensors] = {}
        for number, candidate in enumerate(pack.facts["candidates"]):
            if number < first:
                continue
            if time.time() > deadline:
                print("time is up", number, flush=True)
                return
            print("at", number, flush=True)
            started = time.time()
            line = measure_one(torch, driver, pack, candidate, points_of)
            write(line | {"wall_secs": round(time.time() - started, 3)})


def main() -> None:
    """Run the work in children until all is measured or time is up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pack", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True, help="records.jsonl, to be written anew")
    parser.add_argument("--secs", type=float, default=420.0, help="when to stop")
    parser.add_argument("--first", type=int, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--deadline", type=float, default=None, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.first is not None:
        work(given.pack, given.output, given.first, given.deadline)
        return
    pack = Pack(given.pack)
    need_gpu()
    ready(pack)
    facts = pack.facts
    given.output.write_text("")
    deadline, first = time.time() + given.secs, -1
    while first < len(facts["candidates"]):
        command = [sys.executable, __file__, str(given.pack), "-o", str(given.output)]
        done = subprocess.run(
            [*command, "--first", str(first), "--deadline", str(deadline)],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        places = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("at ")]
        if done.returncode == 0:
            break
        if not places:
            raise SystemExit("the benchmark fails before its first micro-kernel; see above")
        candidate = facts["candidates"][places[-1]]
        line = {"kind": "micro_kernel", **candidate["tile"], "provenance": candidate["provenance"]}
        line |= {
            "points": [],
            "secs": [],
            "facts": None,
            "error": f"the process ended with {done.returncode}",
        }
        with given.output.open("a") as stream:
            stream.write(json.dumps(line, sort_keys=True) + "\n")
        first = places[-1] + 1
    lines = sum(1 for _ in given.output.open())
    print(f"{given.output}: {lines} lines")


if __name__ == "__main__":
    main()
