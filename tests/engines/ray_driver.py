"""A driver: holds a machine of a Ray cluster and times a library on it.

python ray_driver.py ADDRESS LIBRARY CALLS
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from made_libraries import timing_request

from dietcode.measure.ray_cluster import RayCluster
from dietcode.workload.spec import TargetSpec


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(address: str, library: str, calls: str) -> None:
    cluster = RayCluster(address)
    device = cluster.resolve(TargetSpec(kind="llvm"))
    with cluster.children(device, say) as children:
        say("holds " + children.slot)
        say(f"from {time.monotonic()}")
        for _ in range(int(calls)):
            say(str(children.time(timing_request(Path(library), device.target), 60.0)))
        say(f"to {time.monotonic()}")
    cluster.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
