"""On the GPU: the chosen micro-kernels against cuBLAS, torch.compile and Triton, each instance in turn.

Everything is timed in the same way: captured in a CUDA graph, warm, over copies of the tensors that are more
than the L2 cache holds, the median of five readings by CUDA events. What is known is written after each
instance, and a run goes on where an earlier one of the same choice on the same GPU ended. What costs the most
comes last: all instances beside the library first, then beside torch.compile too, then beside all.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import math
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import baselines
from device import need_gpu, seconds_of
from first_contact import state_of_gpu
from machine import machine_facts
from order import MOST_COMPARED, picked
from packed import MicroKernel, Pack, Tensors, ready

METASCHEDULE = "metaschedule-alone"
# By what they cost: a library is there, torch.compile tunes itself once, Triton for each shape.
_PASSES = (
    ("cublas", "sdpa", "cudnn", "cudnn-other-format", METASCHEDULE),
    ("torch.compile",),
    ("triton",),
)
TOO_LONG = "took too long"
BASELINE_SECS = 60.0  # of one baseline at one instance, compiling and tuning included
_MAX_BEGUN = 2  # runs that may end before a baseline's first figure; after them it is left out
_OTHERS: dict[str, Callable[[Any, Pack], Any]] = {
    "cublas": baselines.cublas,
    "sdpa": baselines.attention,
    "cudnn": baselines.cudnn,
    "cudnn-other-format": baselines.cudnn_other_format,
    "torch.compile": baselines.compiled,
    "triton": baselines.triton,
    METASCHEDULE: baselines.shapes_alone,
}


class WrongResultError(Exception):
    """A chosen micro-kernel is off by more than rounding; one line."""


def make_others(torch: Any, pack: Pack, without: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The baselines of a workload, and why others of them are not there."""
    others, missing = {}, {}
    for name, make in _OTHERS.items():
        try:
            other = None if name in without else make(torch, pack)
        except Exception as error:
            missing[name] = " ".join(str(error).split())[:200]
            continue
        if other is not None:
            others[name] = other
    return others, missing


class TooLongError(BaseException):
    """A baseline takes too long. No `Exception`: what compiles catches those and goes on."""


@contextlib.contextmanager
def within(secs: float) -> Iterator[None]:
    """End what is done here after some seconds, again each second until it ends.

    Raises
    ------
    TooLongError
        It took longer. What never comes back to Python is ended with this process.
    """

    def end(*_: Any) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, secs, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def compare_one(
    torch: Any,
    pack: Pack,
    kernels: list[MicroKernel],
    others: Mapping[str, Any],
    index: int,
    begin: Callable[[str], None] = lambda name: None,
) -> dict[str, Any]:
    """One instance; a baseline that fails is told with its reason, and has no seconds.

    Parameters
    ----------
    begin : callable
        Told the name of each baseline before it begins.

    Raises
    ------
    WrongResultError
        The chosen micro-kernel is wrong there.
    """
    facts, instance = pack.facts, pack.facts["instances"][index]
    tensors, category = Tensors(torch, pack, instance), facts["assignment"][index]
    call = kernels[category].bind(torch, tensors, "instances")
    tensors.sets[0][facts["output"]].fill_(float("nan"))
    call(0)
    off = tensors.error_of(torch, pack)
    if not off <= pack.max_error:  # nor is NaN
        name = kernels[category].candidate["name"]
        raise WrongResultError(f"{name}: off by {off} at {instance['shape_vars']}")
    row: dict[str, Any] = {
        "shape_vars": instance["shape_vars"],
        "category": category,
        "micro_kernel": kernels[category].candidate["name"],
        "padding_ratio": facts["padding_ratio"][index],
        "predicted_gflops": facts["predicted_gflops"][index],
        "max_rel_error": off,
        "others": {},
        "others_max_rel_error": {},
    }
    row["measured_gflops"] = facts["flops"][index] / seconds_of(torch, call, tensors.copies) / 1e9
    for name, other in others.items():
        begin(name)
        try:
            with within(BASELINE_SECS):
                row["others_max_rel_error"][name] = tensors.error_of(torch, pack, other(tensors.sets[0]))
                seconds = seconds_of(
                    torch, lambda turn, other=other: other(tensors.sets[turn]), tensors.copies
                )
            row["others"][name] = facts["flops"][index] / seconds / 1e9
        except (Exception, TooLongError) as error:
            torch.cuda.synchronize()
            row["others"][name] = None
            why = TOO_LONG if isinstance(error, TooLongError) else " ".join(str(error).split())[:200]
            row.setdefault("failed", {})[name] = why
    return row


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and worst ratio to the best of all others at each instance; the gap to predictions.

    Those tuned for each shape alone count too. `against` says at how many instances each was the best.
    """
    ratios, against = [], Counter[str]()
    for row in rows:
        rates = {name: rate for name, rate in row["others"].items() if rate}
        best = max(rates.values(), default=None)
        against.update(name for name, rate in rates.items() if rate == best)
        if best:
            ratios.append(row["measured_gflops"] / best)
    gaps = [abs(row["predicted_gflops"] / row["measured_gflops"] - 1.0) for row in rows]
    return {
        "geometric_mean": math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None,
        "worst": min(ratios, default=None),
        "mean_prediction_gap": sum(gaps) / len(gaps) if gaps else None,
        "max_rel_error": max((row["max_rel_error"] for row in rows), default=None),
        "num_instances": len(rows),
        "against": dict(against),
    }


def write(path: Path, result: dict[str, Any]) -> None:
    """Put a result in the place of what was known before, as a whole."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(result, indent=2) + "\n")
    part.replace(path)


class Comparison:
    """All rows of one choice on one GPU, in as many runs as it takes.

    Attributes
    ----------
    rows : dict of int to dict
        By instance; those of an earlier run among them.
    wrong : list of str
        A line for each instance where a chosen micro-kernel is wrong.
    """

    def __init__(
        self, torch: Any, pack: Pack, others: dict[str, Any], known: dict[str, Any], path: Path
    ) -> None:
        self._torch, self._pack, self._others, self._known, self._path = torch, pack, others, known, path
        self.rows: dict[int, dict[str, Any]] = {}
        self.wrong: list[str] = []
        self._wrong_at: set[int] = set()
        self.is_complete = False
        self._running: dict[str, Any] | None = None
        self._begun: dict[str, int] = {}  # runs that began a baseline
        if path.is_file():
            before = json.loads(path.read_text())
            same = all(before.get(name) == known[name] for name in ("choice", "device", "versions"))
            if same and not before["wrong"]:
                self.rows = {row["index"]: row for row in before["instances"]}
                self._begun = before["begun"]
        for name in list(others):
            has_figure = any(name in row["others"] for row in self.rows.values())
            if self._begun.get(name, 0) >= _MAX_BEGUN and not has_figure:
                del others[name]
                known["missing"][name] = f"no figure in {_MAX_BEGUN} runs, all of which ended before it"

    def run(self, kernels: list[MicroKernel], order: Sequence[int], deadline: float) -> None:
        """Compare instances in this order, until all is done or time is up."""
        for number in range(len(_PASSES)):
            names = [name for some in _PASSES[: number + 1] for name in some]
            left = [i for i in order if not self._is_done(i, self._of(names, i))]
            if number and left and order[0] not in {*left, *self._wrong_at}:
                left.insert(0, order[0])  # what compiles for ranges sees the largest first in each process
            for index in left:
                if time.time() > deadline:
                    self._write()
                    return
                for name in _PASSES[number] if index == left[0] else ():
                    self._begun[name] = self._begun.get(name, 0) + 1
                self._write()
                self._compare(kernels, self._of(names, index), index)
                self._write()
        self.is_complete = True
        self._write()

    def _compare(self, kernels: list[MicroKernel], others: Mapping[str, Any], index: int) -> None:
        try:
            row = compare_one(
                self._torch, self._pack, kernels, others, index, lambda name: self._begin(name, index)
            )
        except WrongResultError as error:
            self.wrong.append(str(error))
            self._wrong_at.add(index)
            self.rows.pop(index, None)
            print(error, flush=True)
            return
        self.rows[index] = row | {"index": index}
        for name, why in row.get("failed", {}).items():
            if why == TOO_LONG:  # and would at each of the others
                del self._others[name]
                place = f"{BASELINE_SECS:g} s at {row['shape_vars']}"
                self._known["missing"][name] = f"took longer than {place}"
        print(json.dumps(self.rows[index]), flush=True)

    def _of(self, names: Sequence[str], index: int) -> dict[str, Any]:
        """Those baselines of some names that are there and compute an instance."""
        found = {name: self._others[name] for name in names if name in self._others}
        return {n: other for n, other in found.items() if index in getattr(other, "indices", (index,))}

    def _begin(self, name: str, index: int) -> None:
        """Write what costs most before it begins: what ends this process then is known."""
        if name not in _PASSES[0]:
            self._running = {"baseline": name, "index": index}
            self._write()
            self._running = None

    def _is_done(self, index: int, names: Collection[str]) -> bool:
        row = self.rows.get(index)
        return index in self._wrong_at or (row is not None and set(names) <= set(row["others"]))

    def _write(self) -> None:
        rows = [self.rows[index] for index in sorted(self.rows)]
        facts = {"wrong": self.wrong, "begun": self._begun, "complete": self.is_complete}
        facts["running"] = self._running
        write(self._path, self._known | facts | {"instances": rows, "summary": summary(rows)})


def main() -> None:
    """Compare until all instances are done or time is up, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pack", type=Path, help="the folder chosen/ that choose.py wrote")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--secs", type=float, default=420.0)
    parser.add_argument("--most", type=int, default=MOST_COMPARED, help="instances, evenly spread")
    parser.add_argument("--without", action="append", default=[], choices=sorted(_OTHERS))
    given = parser.parse_args()
    torch, pack = need_gpu(), Pack(given.pack)
    if "assignment" not in pack.facts:
        raise SystemExit(f"{given.pack}: holds no choice; run choose.py first")
    driver = ready(pack)
    others, missing = make_others(torch, pack, given.without)
    deadline = time.time() + given.secs
    matmul = torch.backends.cuda.matmul
    known = machine_facts(torch) | {
        "workload": pack.facts["name"],
        "dtypes": pack.facts["dtypes"],
        "commit": pack.facts["commit"],
        "standing": pack.facts["standing"],
        "assigned_by": pack.facts["assigned_by"],
        "choice": hashlib.sha256((given.pack / "pack.json").read_bytes()).hexdigest()[:16],
        "kappa": pack.facts["kappa"],
        "tf32": matmul.allow_tf32,
        "fp16_reduced_precision": matmul.allow_fp16_reduced_precision_reduction,
        "missing": missing,
        "gpu_state": state_of_gpu(),
        METASCHEDULE: {
            "strategy": pack.facts.get("alone_strategy"),
            "trials": {str(one["index"]): one["num_trials"] for one in pack.facts.get("alone", [])},
        },
    }
    comparison = Comparison(torch, pack, others, known, given.output)
    kernels = [MicroKernel(driver, pack, candidate) for candidate in pack.facts["candidates"]]
    comparison.run(kernels, picked(len(pack.facts["instances"]), given.most), deadline)
    print("all is compared" if comparison.is_complete else "time is up; the rest is left out")
    rows, wrong = list(comparison.rows.values()), comparison.wrong
    print(json.dumps({"missing": missing, "wrong": wrong} | summary(rows), indent=2))
    if wrong:
        raise SystemExit(f"{given.pack}: {len(wrong)} instances are wrong")


if __name__ == "__main__":
    main()
