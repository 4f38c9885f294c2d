"""What choosing costs as instances grow: seconds of each stage and peak memory.

python -m benchmarks.scale

Run it where nothing else runs. Each size has a process of its own, for its peak memory; seconds are the least
of a few rounds, and `growth` is the exponent between one size and the next.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import synthetic
from benchmarks.facts import write
from dietcode.dispatcher.rule import Rule, fit_rule
from dietcode.dispatcher.select import Objective, Selection, select_categories, smooth_assignment
from dietcode.workload.instances import make_instances

SIZES = (512, 1024, 2048, 4096, 8192, 16384)
KERNELS = (60, 150)
OBJECTIVES = {"2 %": Objective(binary_size=0.02), "best": Objective(binary_size=0.0)}
_ROUNDS = 3


class _Stages:
    """The stages of choosing for so many instances, each timed."""

    def __init__(self, num_instances: int, num_kernels: int, objective: Objective) -> None:
        self.num_instances, self.objective = num_instances, objective
        self.spec = synthetic.two_variables()
        self.models = synthetic.models(synthetic.AVX512, num_kernels)
        self.secs: dict[str, float] = {}

    def _timed(self, name: str, stage: Callable[..., Any], *arguments: Any) -> Any:
        started = time.perf_counter()
        result = stage(*arguments)
        self.secs[name] = min(self.secs.get(name, math.inf), time.perf_counter() - started)
        return result

    def run(self) -> tuple[Selection, Rule]:
        """Run all stages once; `secs` keeps the least of all runs."""
        instances = self._timed("sample", make_instances, self.spec, self.num_instances)
        cost = self._timed("predict", synthetic.predict, self.spec, instances, self.models, synthetic.AVX512)
        work, sizes = synthetic.flops(self.spec, instances), synthetic.sizes(self.models)
        chosen = self._timed(
            "select", select_categories, cost, work, instances.weights, sizes, self.objective
        )
        columns, points = cost[:, list(chosen.chosen)], instances.bindings
        smooth = self._timed("smooth", smooth_assignment, columns, points, chosen.assignment)
        rule = self._timed("rule", fit_rule, self.spec.variables, points, smooth, columns, instances.weights)
        return chosen, rule


def measure(num_instances: int, num_kernels: int, objective: Objective) -> dict[str, Any]:
    """Seconds of each stage, the least of some rounds, and this process's peak memory."""
    stages = _Stages(num_instances, num_kernels, objective)
    for _ in range(_ROUNDS):
        chosen, rule = stages.run()
    return {
        "num_instances": num_instances,
        "num_micro_kernels": num_kernels,
        "categories": len(chosen.chosen),
        "leaves": rule.num_leaves,
        "secs": stages.secs,
        "peak_rss_mib": synthetic.peak_mib(),
    }


def growth(rows: list[dict[str, Any]], stage: str) -> list[float]:
    """Exponents of n·log n between neighbours: 1 where seconds grow like n·log n."""
    work = [row["num_instances"] * math.log(row["num_instances"]) for row in rows]
    secs = [row["secs"][stage] for row in rows]
    return [
        round(math.log(secs[i + 1] / secs[i]) / math.log(work[i + 1] / work[i]), 2)
        for i in range(len(rows) - 1)
    ]


def main() -> None:
    """Measure every size in a process of its own and write JSON."""
    results = []
    for name in OBJECTIVES:
        for num_kernels in KERNELS:
            rows = []
            for size in SIZES:
                command = [sys.executable, "-m", "benchmarks.scale", str(size), str(num_kernels), name]
                rows.append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
                print(rows[-1], flush=True)
            exponents = {stage: growth(rows, stage) for stage in rows[0]["secs"]}
            results.append({"objective": name, "rows": rows, "growth_over_n_log_n": exponents})
    write(Path("benchmarks/results/scale.json"), {"what": "two variables, 1 to 4096", "results": results})


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]), OBJECTIVES[sys.argv[3]])))
    else:
        main()
