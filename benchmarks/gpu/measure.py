"""On the GPU: check every packed micro-kernel against float64, time it, and write tuning records.

    python3 benchmarks/gpu/measure.py build/gpu/bert-dense/pack -o records.jsonl

Each line is written as soon as it is known, and a run goes on where an earlier one of the same pack ended.
All micro-kernels are timed at two points first, then the best of them at all points. One that takes the
process or the GPU's context with it, or does not come back, is written down as failed, and the others go on
in another process.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from device import Driver, GpuError, need_gpu, seconds_of
from lines import drop_torn, known_of, read_lines
from machine import machine_facts
from packed import MicroKernel, Pack, Tensors, ready
from watching import end_if_lost, run_until

_MAX_SWEEP, _SWEPT_WAVES = 64, 4
_MIN_GOOD = 16  # of so many first micro-kernels one must work
NUM_BEST = 40
"""Micro-kernels that are timed at all points: those that are best at the first two."""
_FIRST_SHARE = 0.5  # of the time, in which none is timed at more than the first two


def device_facts(torch: Any, arch: str) -> dict[str, Any]:
    """The header's device: its name, multiprocessors and architecture, by a stable id."""
    properties = torch.cuda.get_device_properties(0)
    target = {"kind": "cuda", "arch": arch}
    facts = {"name": properties.name, "num_sms": properties.multi_processor_count, "target": target}
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    return facts | {"id": digest, "synthetic": False}


def sweep(
    torch: Any, driver: Driver, pack: Pack, candidate: dict[str, Any], begin: Callable[[], None]
) -> dict[str, Any]:
    """Seconds of a candidate at 1 to 4 waves and more (paper, Figure 13), launches left out by graphs.

    Parameters
    ----------
    begin : callable
        Called before each grid.
    """
    kernel = MicroKernel(driver, pack, candidate)
    num_sms = torch.cuda.get_device_properties(0).multi_processor_count
    found: dict[str, Any] = {"micro_kernel": candidate["name"], "num_blocks": [], "secs": []}
    swept = kernel.candidate["grids"]["sweep"]
    block = kernel.block_of(swept[-1])
    found["wave_blocks"] = kernel.wave_blocks(num_sms, block)
    num_blocks = {  # of one function: another alignment class has other waves
        number: math.prod(call["grids"][call["functions"].index(block)])
        for number, call in enumerate(swept)
        if block in call["functions"]
    }
    within = [i for i, count in num_blocks.items() if count <= _SWEPT_WAVES * found["wave_blocks"]]
    for number in within[:: max(1, len(within) // _MAX_SWEEP)] or num_blocks:
        begin()
        tensors = Tensors(torch, pack, pack.facts["sweep"][number])
        call = kernel.bind(torch, tensors, "sweep")
        found["num_blocks"].append(num_blocks[number])
        found["secs"].append(seconds_of(torch, call, tensors.copies))
    return found | {"facts": kernel.facts}


_FAILED = {"points": [], "secs": [], "facts": None}


def line_of(candidate: dict[str, Any]) -> dict[str, Any]:
    """What every line of a micro-kernel says."""
    names = {name: candidate[name] for name in ("name", "provenance")}
    return {"kind": "micro_kernel", **candidate["tile"], **names}


def first_points(facts: dict[str, Any]) -> list[int]:
    """The two points that say most, by their number among a pack's points; all, where few are to be timed."""
    count = len(facts["points"])
    if count <= 2 or len(facts["candidates"]) <= NUM_BEST:
        return list(range(count))
    return [1, count - 1]


def is_right(line: dict[str, Any] | None) -> bool:
    """Whether a micro-kernel was timed."""
    return line is not None and line["error"] is None


def best_of(known: dict[str, dict[str, Any]], facts: dict[str, Any]) -> list[str]:
    """Names of the `NUM_BEST` that are fastest at the first points: of each point in turn its next best."""
    first, count = first_points(facts), len(facts["points"])
    secs = {
        name: [line["secs"][place] for place in (first if len(line["secs"]) == count else range(len(first)))]
        for name, line in known.items()
        if line["error"] is None
    }
    ranks = [sorted(secs, key=lambda name: secs[name][at]) for at in range(len(first))]
    turns = (name for names in zip(*ranks, strict=True) for name in names)
    return list(dict.fromkeys(turns))[:NUM_BEST]


def next_of(
    known: dict[str, dict[str, Any]], facts: dict[str, Any], is_first: bool
) -> tuple[int, list[int] | None] | None:
    """Number of the candidate that comes next and its points, None for all of them; None where all is done.

    Parameters
    ----------
    is_first : bool
        Whether those that nothing is known of come first; else the best of the others do.
    """
    candidates = facts["candidates"]
    numbers = {candidate["name"]: number for number, candidate in enumerate(candidates)}
    unseen = next((n for n, candidate in enumerate(candidates) if candidate["name"] not in known), None)
    best = next((numbers[name] for name in best_of(known, facts) if known[name].get("pruned")), None)
    first = first_points(facts)
    at_first = None if len(first) == len(facts["points"]) else first
    if unseen is not None and (is_first or best is None):
        return unseen, at_first
    return None if best is None else (best, None)


def measure_one(
    torch: Any,
    driver: Driver,
    pack: Pack,
    candidate: dict[str, Any],
    points_of: dict[int, Tensors],
    chosen: Sequence[int] | None = None,
) -> dict[str, Any]:
    """One line of records; the tensors of the points are made once.

    Parameters
    ----------
    chosen : sequence of int, optional
        Which of the pack's points; all by default. A line of some alone says that it was given up after them.
    """
    line = line_of(candidate)
    all_points = pack.facts["points"]
    try:
        kernel = MicroKernel(driver, pack, candidate)
        points, secs, worst = [], [], 0.0
        for index in all_points if chosen is None else [all_points[one] for one in chosen]:
            instance = pack.facts["instances"][index]
            if index not in points_of:
                points_of[index] = Tensors(torch, pack, instance)
            tensors = points_of[index]
            call = kernel.bind(torch, tensors, "instances")
            tensors.sets[0][pack.facts["output"]].fill_(float("nan"))
            call(0)
            error = tensors.error_of(torch, pack)
            if not error <= pack.max_error:  # nor is NaN, which is what was not written
                return line | _FAILED | {"error": f"off by {error} at {instance['shape_vars']}"}
            worst = max(worst, error)
            points.append(instance["extents"])
            secs.append(seconds_of(torch, call, tensors.copies))
        line |= {"points": points, "secs": secs, "facts": kernel.facts, "max_error": worst, "error": None}
        line |= {"pruned": True} if len(points) < len(all_points) else {}
        num_sms = torch.cuda.get_device_properties(0).multi_processor_count
        # As the driver has it, to be compared; of what serves all extents.
        return line | {"wave_blocks": kernel.wave_blocks(num_sms, kernel.candidate["blocks"][-1])}
    except (GpuError, RuntimeError) as error:
        return line | _FAILED | {"error": " ".join(str(error).split())[:300]}


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


def work(folder: Path, output: Path, halfway: float, deadline: float) -> None:
    """Measure what `next_of` says until all is done or time is up.

    The number of a candidate is told before it is measured, so that the parent knows. The sweep is of the
    first that is right and was packed for it.
    """
    torch, pack, driver = need_gpu(), Pack(folder), Driver()
    facts, lines = pack.facts, read_lines(output)
    device = device_facts(torch, facts["arch"])
    if lines:
        check_goes_on(lines[0], facts, device, output)
    known = known_of(lines)
    is_swept = any(line.get("kind") == "calibration" for line in lines)
    with output.open("a") as stream:

        def write(line: dict[str, Any]) -> None:
            stream.write(json.dumps(line, sort_keys=True) + "\n")
            stream.flush()

        if not lines:
            made = machine_facts(torch) | {"commit": facts["commit"]}
            header = {"format": "dietcode-records/1", "workload": facts["workload"], "device": device}
            write(header | {"made": made})
        points_of: dict[int, Tensors] = {}
        while time.time() < deadline:
            good = (n for n, c in enumerate(facts["candidates"]) if is_right(known.get(c["name"])))
            swept = next((n for n in good if "sweep" in facts["candidates"][n]["grids"]), None)
            if swept is not None and not is_swept:
                begin = functools.partial(print, "at", swept, flush=True)
                found = sweep(torch, driver, pack, facts["candidates"][swept], begin)
                write({"kind": "calibration", **found})
                is_swept = True
            following = next_of(known, facts, time.time() < halfway)
            if following is None:
                break
            if len(known) >= _MIN_GOOD and not any(map(is_right, known.values())):
                break
            number, points = following
            candidate = facts["candidates"][number]
            print("at", number, flush=True)
            started = time.time()
            line = measure_one(torch, driver, pack, candidate, points_of, points)
            known[line["name"]] = line
            write(line | {"wall_secs": round(time.time() - started, 3)})
            if line["error"] is not None:
                end_if_lost(torch)
    print("the end", flush=True)


def check_goes_on(
    header: dict[str, Any], facts: dict[str, Any], device: dict[str, Any], output: Path
) -> None:
    """Refuse to go on with the records of something else.

    Raises
    ------
    SystemExit
        They are of another workload, commit or GPU; the message says which.
    """
    pairs = {
        "workload": (header["workload"], facts["workload"]),
        "commit": (header["made"]["commit"], facts["commit"]),
        "GPU": (header["device"]["id"], device["id"]),
    }
    for what, (own, asked) in pairs.items():
        if own != asked:
            raise SystemExit(f"{output}: of {what} {own}, not {asked}; give another -o, or remove it")


def told(path: Path) -> tuple[int, str]:
    """How many micro-kernels were measured, and that in a line with why the others were not."""
    lines = read_lines(path)
    errors = [line["error"] for line in known_of(lines).values()]
    reasons = Counter(error.split(" at ")[0] for error in errors if error is not None).most_common(3)
    more = "".join(f"; {count} failed: {reason}" for reason, count in reasons)
    sweeps = sum(line.get("kind") == "calibration" for line in lines)
    return errors.count(None), f"{errors.count(None)} micro-kernels measured, {sweeps} sweep{more}"


def main() -> None:
    """Run the work in children until all is measured or time is up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pack", type=Path)
    parser.add_argument("-o", "--output", type=Path, help="records.jsonl, which is gone on with")
    parser.add_argument("--check", type=int, metavar="N", help="only say whether the first N are right")
    parser.add_argument("--secs", type=float, default=420.0, help="when to stop")
    parser.add_argument("--until", type=float, nargs=2, default=None, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.until is not None:
        work(given.pack, given.output, *given.until)
        return
    pack = Pack(given.pack)
    torch, driver = need_gpu(), ready(pack)
    if given.check is not None:
        print("\n".join(check(torch, driver, pack, given.check)))
        return
    if given.output is None:
        parser.error("-o: where records go is missing")
    given.output.parent.mkdir(parents=True, exist_ok=True)
    drop_torn(given.output)
    started = time.time()
    halfway, deadline = started + _FIRST_SHARE * given.secs, started + given.secs
    command = [sys.executable, __file__, str(given.pack), "-o", str(given.output)]
    command += ["--until", str(halfway), str(deadline)]

    def failed(number: int) -> dict[str, Any]:
        return line_of(pack.facts["candidates"][number]) | _FAILED

    begun = "the benchmark fails before its first micro-kernel"
    run_until(deadline, command, given.output, failed, begun)
    num_good, text = told(given.output)
    print(f"{given.output}: {text}")
    if not num_good:
        raise SystemExit(f"{given.pack}: nothing could be measured")


if __name__ == "__main__":
    main()
