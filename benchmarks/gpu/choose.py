"""On the GPU: choose categories from records, and pack them for `compare.py`. Needs NumPy and no compiler.

    python3 benchmarks/gpu/choose.py build/gpu/bert-dense/pack records.jsonl build/gpu/bert-dense/chosen

Fits, predicts and selects as ``dietcode tune SPEC --records`` does, from what the pack counted ahead; unlike
it, it goes on where the sweep tells no κ, since micro-kernels tell their own shares.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))
from alone import KERNELS, best_of_shapes, facts_of
from lines import known_of, read_lines
from packed import KernelFiles, Pack

from dietcode.cost_model.cuda.waves import CudaCounts, Spread, WaveLaw, fit_sweep
from dietcode.dispatcher.orders import one_order
from dietcode.dispatcher.sample import FittingSample, best_rule
from dietcode.dispatcher.select import Objective, select_categories
from dietcode.errors import TuningError
from dietcode.target.multiprocessor import Multiprocessor

_COUNTED = ("padded_flops", "blocks", "num_steps", "elements", "vectors", "num_bytes")


class FromCounts:
    """Predictions of the measured micro-kernels of a pack, from what was counted when it was packed.

    Attributes
    ----------
    kappa : float or None
        Of the sweep; None where it tells none.
    numbers : list of int
        Of the candidates that can be used, in the order of their micro-kernels.
    throughput : float64 [num_instances, num_micro_kernels]
        Predicted FLOP/s.
    """

    def __init__(self, pack: Pack, lines: list[dict[str, Any]]) -> None:
        self._counts = dict(np.load(pack.folder / "counts.npz"))
        device, known = lines[0]["device"], known_of(lines)
        swept = [line for line in lines if line.get("kind") == "calibration"]
        if not swept:
            raise TuningError("the records hold no sweep of the device, and so no κ; measure on")
        self.kappa, spread = None, Spread(1.0, None, device["num_sms"])
        with contextlib.suppress(TuningError):  # it tells no κ; micro-kernels tell their own
            spread = fit_sweep(swept[-1], device["num_sms"]).spread
            self.kappa = spread.kappa
        sm = Multiprocessor(**pack.facts["multiprocessor"])
        candidates = pack.facts["candidates"]
        waves: dict[int, int] = {}
        for number, candidate in enumerate(candidates):
            line = known.get(candidate["name"])
            if line is None or line["error"] is not None or line.get("pruned"):
                continue
            facts, of_classes = line["facts"], [candidate["functions"][n] for n in candidate["blocks"]]
            threads, cluster = (max(own[name] for own in of_classes) for name in ("threads", "cluster"))
            resident = sm.resident_blocks(threads, facts["registers"], facts["shared_bytes"])
            if resident and not facts["stack_bytes"]:
                waves[number] = device["num_sms"] * resident // cluster * cluster
        if not waves:
            raise TuningError("the records hold no usable measurement of this workload")
        self.numbers = sorted(waves, key=lambda number: candidates[number]["order"])
        columns = []
        for number in self.numbers:
            secs = np.asarray(known[candidates[number]["name"]]["secs"], dtype=np.float64)
            law = WaveLaw.fit(self._of("point_", number, waves[number]), spread, secs)
            columns.append(law.predict(self._of("", number, waves[number]))[2])
        self.throughput = np.stack(columns, axis=1)

    def _of(self, prefix: str, number: int, wave: int) -> CudaCounts:
        counted = {name: self._counts[prefix + name][number] for name in _COUNTED}
        return CudaCounts.of(wave, self._counts[f"{prefix}flops"], **counted)

    def choose(self, pack: Pack) -> tuple[list[int], Any, str]:
        """The chosen candidates, the category of each instance, and whether a rule says it, or the best does.

        The library's rule is fitted on more shapes where not all are listed, and by scikit-learn where it has
        several variables: there each instance goes to its best chosen category.
        """
        facts, counts, candidates = pack.facts, self._counts, pack.facts["candidates"]
        own = [candidates[number] for number in self.numbers]
        asked = dict(facts["objective"])
        throughput = self.throughput
        if asked.pop("reproducible"):
            kept = one_order([tuple(one["sum_order"]) for one in own], throughput, counts["weights"])
            throughput = np.where(kept, throughput, 0.0)
        sizes = np.asarray([max(1, one["code_bytes"]) for one in own], dtype=np.int64)
        selection = select_categories(
            throughput, counts["flops"], counts["weights"], sizes, Objective(**asked)
        )
        chosen = throughput[:, list(selection.chosen)]
        numbers = [self.numbers[index] for index in selection.chosen]
        if not facts["exhaustive"] or len(facts["variables"]) > 1:
            return numbers, selection.assignment, "best"
        bindings = counts["bindings"]
        sample = FittingSample(bindings, chosen, selection.assignment, counts["weights"])
        divisors = sorted({multiple for one in own for multiple in one["multiples"]}, reverse=True)
        try:
            rule = best_rule(tuple(facts["variables"]), sample, divisors)
        except ImportError:  # scikit-learn, for more runs of a category than a rule has leaves
            return numbers, selection.assignment, "best"
        return numbers, rule.predict(bindings), "rule"


def write_chosen(pack: Pack, lines: list[dict[str, Any]], folder: Path, trials: Path | None = None) -> str:
    """Choose, and write the pack of what was chosen; returns a line that says what.

    Parameters
    ----------
    trials : Path, optional
        What `alone.py` wrote; the best of each shape is taken along.

    Raises
    ------
    TuningError
        The records are not enough, or the objective's hard caps cannot be met.
    """
    fitted = FromCounts(pack, lines)
    numbers, assignment, assigned_by = fitted.choose(pack)
    counts, device = fitted._counts, lines[0]["device"]
    rows, columns = counts["packed"], [fitted.numbers.index(number) for number in numbers]
    category = assignment[rows]
    given = [numbers[one] for one in category]
    predicted = fitted.throughput[rows, [columns[one] for one in category]]
    padded = counts["padded_flops"][given, rows]
    facts = pack.facts | {
        "candidates": [pack.facts["candidates"][number] for number in numbers],
        "assignment": category.tolist(),
        "assigned_by": assigned_by,
        "predicted_gflops": (predicted / 1e9).tolist(),
        "padding_ratio": (padded / counts["flops"][rows]).tolist(),
        "flops": counts["flops"][rows].tolist(),
        "standing": f"measured on {device['name']}",
        "kappa": fitted.kappa,
        "alone": [],
    }
    own = facts_of(pack.folder)
    if own is not None:
        best = best_of_shapes(own, read_lines(trials) if trials else [])
        facts |= {"alone": best, "alone_strategy": own["strategy"]}
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    with zipfile.ZipFile(part / "kernels.zip", "w", zipfile.ZIP_DEFLATED) as kernels:
        for candidate in facts["candidates"]:
            for ending in ("cubin", "cu"):
                kernels.writestr(f"{candidate['file']}.{ending}", pack.file(f"{candidate['file']}.{ending}"))
        if facts["alone"]:
            files = KernelFiles(pack.folder, KERNELS, facts["arch"])
            for name in (f"{one['file']}.{e}" for one in facts["alone"] for e in ("cubin", "cu")):
                kernels.writestr(name, files.file(name))
    (part / "pack.json").write_text(json.dumps(facts, separators=(",", ":")) + "\n")
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)  # as a whole
    names = ", ".join(candidate["name"] for candidate in facts["candidates"])
    return f"{folder}: {len(numbers)} of {len(fitted.numbers)} micro-kernels, by {assigned_by}: {names}"


def main() -> None:
    """Choose, and write the pack of what was chosen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("pack", type=Path)
    parser.add_argument("records", type=Path, help="what measure.py wrote")
    parser.add_argument("output", type=Path, help="a folder, which is replaced")
    parser.add_argument("--alone", type=Path, help="what alone.py wrote")
    given = parser.parse_args()
    pack, lines = Pack(given.pack), read_lines(given.records)
    if not lines or lines[0]["workload"] != pack.facts["workload"]:
        raise SystemExit(f"{given.records}: holds no records of the workload of {given.pack}")
    try:
        print(write_chosen(pack, lines, given.output, given.alone))
    except TuningError as error:
        raise SystemExit(f"{given.records}: {error}") from error


if __name__ == "__main__":
    main()
