"""A command of dietcode without a compiler: ``stub_process.py MCPU CORES WORKER COMMAND…``.

MCPU and CORES are this machine's, WORKER is the script that works on its jobs, COMMAND is as ``serve`` or
``worker`` with options.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import dietcode_server.process
from dietcode.lifeline import die_with_parent
from dietcode_server.engine import targets
from dietcode_server.engine.processes import LocalEngine

die_with_parent()
mcpu, cores, worker, *command = sys.argv[1:]
HERE = {"name": f"A CPU {mcpu}", "mcpu": mcpu, "num_cores": int(cores), "features": []}


def ask(question: bytes) -> list[targets.Resolved | str]:
    """As the compiler would answer."""
    asked = json.loads(question)
    return [resolve(asked["target"], host or HERE) for host in asked["hosts"]]


def resolve(given: dict[str, Any] | None, host: dict[str, Any]) -> targets.Resolved:
    given = given or {}  # none: what the machine is
    target = {
        "kind": "llvm",
        "mcpu": given.get("mcpu", host["mcpu"]),
        "num_cores": given.get("num_cores", host["num_cores"]),
        "features": [],
    }
    runnable = target["mcpu"] == host["mcpu"] and target["num_cores"] <= host["num_cores"]
    device = (f"{target['mcpu']}-{target['num_cores']}", host["name"], target)
    return targets.Resolved(target, device if runnable else None, runnable, host)


targets._answers_of_child = ask
script = str(Path(__file__).with_name(worker))
dietcode_server.process.LocalEngine = partial(LocalEngine, command=(sys.executable, script))
sys.argv = ["dietcode", *command]
from dietcode.cli import main  # noqa: E402

main()
