"""On the GPU: time MetaSchedule's kernels of single shapes, each checked against float64 before it is timed.

    python3 benchmarks/gpu/alone.py build/gpu/bert-dense/pack -o alone.jsonl

All are timed by one reading first, in turns of the shapes; the best three of each shape are read again, five
times. Each line is written as soon as it is known, and a run goes on where an earlier one ended. One that
takes the process with it, or does not come back, is written down as failed.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from device import Driver, GpuError, need_gpu, seconds_of
from lines import drop_torn, read_lines
from packed import KernelFiles, Pack, Tensors, ready
from watching import end_if_lost, run_until

NUM_FINALS, FINAL_READINGS = 3, 5
_FIRST_SHARE = 0.75  # of the time, after which what was timed once is all that finals choose from
FACTS, KERNELS = "alone.json", "alone.zip"


def facts_of(folder: Path) -> dict[str, Any] | None:
    """The trials of a pack; None where it has none."""
    path = folder / FACTS
    known: dict[str, Any] | None = json.loads(path.read_text()) if path.is_file() else None
    return known


def known_trials(lines: Iterable[Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    """The last line of each trial, by its number."""
    return {line["number"]: line for line in lines if line.get("kind") == "trial"}


def ranked(
    trials: Iterable[Mapping[str, Any]], known: Mapping[int, Mapping[str, Any]]
) -> dict[int, list[int]]:
    """Numbers of the trials that are right, by the index of their instance, the fastest first."""
    found: dict[int, list[int]] = {}
    for trial in trials:
        line = known.get(trial["number"])
        if line is not None and line["error"] is None:
            found.setdefault(trial["index"], []).append(trial["number"])
    for numbers in found.values():
        numbers.sort(key=lambda number: float(known[number]["secs"]))
    return found


def next_trial(
    facts: Mapping[str, Any], known: Mapping[int, Mapping[str, Any]], is_first: bool
) -> tuple[int, int] | None:
    """The number of the trial that comes next, and its readings; None where all is done."""
    unseen = next((one["number"] for one in facts["trials"] if one["number"] not in known), None)
    if unseen is not None and is_first:
        return unseen, 1
    for numbers in ranked(facts["trials"], known).values():
        for number in numbers[:NUM_FINALS]:
            if known[number]["readings"] < FINAL_READINGS:
                return number, FINAL_READINGS
    return None if unseen is None else (unseen, 1)


def best_of_shapes(facts: Mapping[str, Any], lines: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The fastest right trial of each shape, with how many trials were timed of it."""
    known, found = known_trials(lines), []
    for index, numbers in ranked(facts["trials"], known).items():
        finals = [number for number in numbers if known[number]["readings"] == FINAL_READINGS]
        best = (finals or numbers)[0]
        timed = sum(line["index"] == index for line in known.values())
        trial = facts["trials"][best] | {"num_trials": timed}
        found.append(trial | {"secs": known[best]["secs"]})
    return found


class AloneKernel:
    """A trial, loaded; its launch takes the addresses of the operands and the output."""

    def __init__(self, driver: Driver, files: KernelFiles, trial: Mapping[str, Any]) -> None:
        name = trial["file"]
        try:
            module = driver.load(files.file(f"{name}.cubin"))
        except GpuError:
            files.compile_here([name])
            module = driver.load(files.file(f"{name}.cubin"))
        self._function = module.function(trial["symbol"], trial["shared_bytes"])
        self._trial = trial

    def bind(self, tensors: Mapping[str, Any]) -> Any:
        """``launch(stream)`` of the operands and the output, by their names."""
        addresses = [tensors[name].data_ptr() for name in self._trial["arguments"]]
        return self._function.bind(self._trial["grid"], self._trial["threads"], addresses)


def time_one(
    torch: Any,
    kernel_of: Callable[[], AloneKernel],
    pack: Pack,
    trial: Mapping[str, Any],
    readings: int,
    tensors_of: dict[int, Tensors],
) -> dict[str, Any]:
    """One line: seconds of a trial that is right, or its error; the tensors of a shape are made once."""
    line = {"kind": "trial", "number": trial["number"], "index": trial["index"], "readings": readings}
    try:
        kernel, index = kernel_of(), trial["index"]
        if index not in tensors_of:
            tensors_of[index] = Tensors(torch, pack, pack.facts["instances"][index])
        tensors = tensors_of[index]
        launches = [kernel.bind(given) for given in tensors.sets]

        def call(turn: int) -> None:
            launches[turn](torch.cuda.current_stream().cuda_stream if tensors.device == "cuda" else 0)

        tensors.sets[0][pack.facts["output"]].fill_(float("nan"))
        call(0)
        off = tensors.error_of(torch, pack)
        if not off <= pack.max_error:  # nor is NaN
            return line | {"secs": None, "error": f"off by {off}"}
        seconds = seconds_of(torch, call, tensors.copies, readings)
        return line | {"secs": seconds, "max_error": off, "error": None}
    except (GpuError, RuntimeError) as error:
        return line | {"secs": None, "error": " ".join(str(error).split())[:300]}


def work(folder: Path, output: Path, halfway: float, deadline: float) -> None:
    """Time what `next_trial` says until all is done or time is up; says which before it begins."""
    torch, pack = need_gpu(), Pack(folder)
    driver, facts = Driver(), facts_of(folder)
    assert facts is not None
    files, known = KernelFiles(folder, KERNELS, pack.facts["arch"]), known_trials(read_lines(output))
    tensors_of: dict[int, Tensors] = {}
    with output.open("a") as stream:
        while time.time() < deadline:
            found = next_trial(facts, known, time.time() < halfway)
            if found is None:
                break
            number, readings = found
            print("at", number, flush=True)
            trial = facts["trials"][number]
            load = functools.partial(AloneKernel, driver, files, trial)
            line = time_one(torch, load, pack, trial, readings, tensors_of)
            known[number] = line
            stream.write(json.dumps(line, sort_keys=True) + "\n")
            stream.flush()
            if line["error"] is not None:
                end_if_lost(torch)
    print("the end", flush=True)


def check_header(output: Path, header: Mapping[str, Any]) -> None:
    """Begin a file of trials, or see that it is of these.

    Raises
    ------
    SystemExit
        It is of another pack or GPU.
    """
    lines = read_lines(output)
    if not lines:
        output.write_text(json.dumps(header) + "\n")
    elif lines[0] != header:
        raise SystemExit(f"{output}: of another pack or GPU; give another -o, or remove it")


def main() -> None:
    """Run the work in children until all is timed or time is up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("pack", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--secs", type=float, default=60.0, help="when to stop")
    parser.add_argument("--until", type=float, nargs=2, default=None, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.until is not None:
        work(given.pack, given.output, *given.until)
        return
    facts, pack = facts_of(given.pack), Pack(given.pack)
    if facts is None:
        print(f"{given.pack}: holds no kernels of one shape alone")
        return
    torch = need_gpu()
    ready(pack)
    given.output.parent.mkdir(parents=True, exist_ok=True)
    drop_torn(given.output)
    device = torch.cuda.get_device_properties(0).name
    header = {"format": "dietcode-alone/1", "device": device, "commit": pack.facts["commit"]}
    check_header(given.output, header | {"workload": pack.facts["workload"], "trials": len(facts["trials"])})
    started = time.time()
    halfway, deadline = started + _FIRST_SHARE * given.secs, started + given.secs
    command = [sys.executable, __file__, str(given.pack), "-o", str(given.output)]
    command += ["--until", str(halfway), str(deadline)]

    def failed(number: int) -> dict[str, Any]:
        line = {"kind": "trial", "number": number, "index": facts["trials"][number]["index"]}
        return line | {"readings": FINAL_READINGS, "secs": None}

    begun = "MetaSchedule's kernels fail before the first of them"
    run_until(deadline, command, given.output, failed, begun)
    known = known_trials(read_lines(given.output))
    right = sum(line["error"] is None for line in known.values())
    print(f"{given.output}: {right} of {len(known)} trials of {len(facts['trials'])} are right")


if __name__ == "__main__":
    main()
