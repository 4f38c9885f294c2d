"""On the GPU: what a call of a built library costs the host, and that it keeps out of the caller's way.

    python benchmarks/gpu/overhead.py build/gpu/bert-dense/library -o overhead.json

Unlike the rest here it needs this project beside it, and its runtime's packages (apache-tvm-ffi, numpy,
platformdirs): wheels that are unpacked into one folder, named by PYTHONPATH, will do.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))
from device import need_gpu
from machine import machine_facts

TARGET_MICROSECONDS = 5.0
_CALLS, _GROUPS = 200, 50  # a GPU takes about a thousand launches ahead of time, then they wait
_BUSY_CYCLES = 1 << 30  # of a GPU's clock: about half a second
_AT_ONCE_SECS = 0.05
_TURNS = 20

Check = Callable[[Any, Any, dict[str, int]], str | None]


class Arguments:
    """Tensors of one call on the current GPU, and what it must give."""

    def __init__(self, torch: Any, library: Any, values: dict[str, int], seed: int = 0) -> None:
        from dietcode.workload.quotient import parse_dim

        manifest = library.manifest
        extents = {k: int(parse_dim(v, k).evaluate(values)) for k, v in manifest["dims"].items()}
        generator = torch.Generator(device="cuda").manual_seed(seed)

        def shape(facts: Any) -> list[int]:
            return [extents[letter] for letter in facts["dims"]]

        self.given: dict[str, Any] = {
            name: torch.randn(
                shape(facts), dtype=getattr(torch, facts["dtype"]), device="cuda", generator=generator
            )
            for name, facts in manifest["inputs"].items()
        }
        self.given |= {name: library.pack(**{name: self.given[name]}) for name in manifest["packed"]}
        self.given |= {name: values[name] for name in manifest["binding"]["keywords"]}
        self.expected = library(**self.given)
        torch.cuda.synchronize()
        self.out = self.expected.clone()

    def is_right(self, torch: Any) -> bool:
        """Whether `out` is what the first call gave, to the bit; it is filled with NaN then."""
        torch.cuda.synchronize()
        same = bool(torch.equal(self.out, self.expected))
        self.out.fill_(float("nan"))
        return same


def host_secs(torch: Any, call: Callable[[], Any]) -> float:
    """Median seconds that a call takes its caller, the GPU's work left out."""
    readings = []
    for _ in range(_GROUPS):
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(_CALLS):
            call()
        readings.append((time.perf_counter() - started) / _CALLS)
    torch.cuda.synchronize()
    return statistics.median(readings)


def waits_for_nothing(torch: Any, library: Any, values: dict[str, int]) -> str | None:
    """A call returns while the GPU is busy with what came before it."""
    arguments, event = Arguments(torch, library, values), torch.cuda.Event()
    torch.cuda._sleep(_BUSY_CYCLES)
    event.record()
    started = time.perf_counter()
    library(**arguments.given, out=arguments.out)
    secs = time.perf_counter() - started
    was_busy = not event.query()
    if not was_busy or secs > _AT_ONCE_SECS:
        return f"the call returned after {secs} s; the GPU was {'' if was_busy else 'not '}busy then"
    return None if arguments.is_right(torch) else "another result"


def runs_on_the_current_stream(torch: Any, library: Any, values: dict[str, int]) -> str | None:
    """A call waits for what its own stream does before it, and another stream does not wait for it."""
    arguments, side = Arguments(torch, library, values), torch.cuda.Stream()
    seen = torch.empty_like(arguments.out)
    arguments.out.fill_(float("nan"))
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(_BUSY_CYCLES)
        library(**arguments.given, out=arguments.out)
    seen.copy_(arguments.out)
    torch.cuda.current_stream().synchronize()
    if side.query() or not bool(seen.isnan().all()):
        return "it ran before its stream came to it"
    return None if arguments.is_right(torch) else "another result"


def can_be_captured(torch: Any, library: Any, values: dict[str, int]) -> str | None:
    """A CUDA graph of a call computes anew when it is replayed, from what its tensors hold then."""
    arguments, other = Arguments(torch, library, values), Arguments(torch, library, values, 1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        library(**arguments.given, out=arguments.out)
    arguments.out.fill_(float("nan"))
    graph.replay()
    if not arguments.is_right(torch):
        return "another result at the first replay"
    for name, value in other.given.items():
        if name in library.manifest["inputs"]:
            arguments.given[name].data.copy_(value.data)  # of a constant, what was packed
    arguments.expected = other.expected
    graph.replay()
    return None if arguments.is_right(torch) else "another result with other inputs"


def streams_are_apart(torch: Any, library: Any, values: dict[str, int]) -> str | None:
    """Calls on two streams in turn give the same as alone."""
    sets = [Arguments(torch, library, values, seed) for seed in range(2)]
    streams = [torch.cuda.Stream() for _ in sets]
    for _ in range(_TURNS):
        for arguments, stream in zip(sets, streams, strict=True):
            with torch.cuda.stream(stream):
                library(**arguments.given, out=arguments.out)
        right = [arguments.is_right(torch) for arguments in sets]
        if not all(right):
            return "another result on a stream of its own"
    return None


def threads_are_apart(torch: Any, library: Any, values: dict[str, int]) -> str | None:
    """Four threads call at once, each on a stream of its own."""
    sets, wrong = [Arguments(torch, library, values, seed) for seed in range(4)], []

    def work(arguments: Arguments) -> None:
        stream = torch.cuda.Stream()
        try:
            for _ in range(_TURNS):
                with torch.cuda.stream(stream):
                    library(**arguments.given, out=arguments.out)
                stream.synchronize()
                if not torch.equal(arguments.out, arguments.expected):
                    wrong.append("another result in a thread")
        except Exception as error:
            wrong.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=work, args=(arguments,)) for arguments in sets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong[0] if wrong else None


CHECKS: tuple[Check, ...] = (
    waits_for_nothing,
    runs_on_the_current_stream,
    can_be_captured,
    streams_are_apart,
    threads_are_apart,
)


def look(torch: Any, library: Any, values: dict[str, int]) -> dict[str, Any]:
    """Everything of one shape; a check that holds is None, one that does not says what it saw."""
    arguments = Arguments(torch, library, values)
    secs = {
        "into_out": host_secs(torch, lambda: library(**arguments.given, out=arguments.out)),
        "new_output": host_secs(torch, lambda: library(**arguments.given)),
        # What PyTorch takes here: for an operator of one kernel, and for the output's memory.
        "torch_operator": host_secs(torch, lambda: torch.neg(arguments.expected, out=arguments.out)),
        "torch_empty": host_secs(torch, lambda: torch.empty_like(arguments.out)),
    }
    return {
        "shape_vars": values,
        "category": library.select(**values),
        "host_microseconds": {name: 1e6 * value for name, value in secs.items()},
        "failed_checks": {
            check.__name__: found for check in CHECKS if (found := check(torch, library, values)) is not None
        },
    }


def main() -> None:
    """Look at the smallest shape and at the largest, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("library", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    torch = need_gpu()
    import dietcode

    library = dietcode.load(given.library)
    ranges = library.manifest["variables"]
    shapes = [{name: facts[end] for name, facts in ranges.items()} for end in ("min", "max")]
    result = machine_facts(torch) | {
        "library": library.manifest["name"],
        "target_microseconds": TARGET_MICROSECONDS,
        "shapes": [look(torch, library, values) for values in shapes],
    }
    given.output.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result["shapes"], indent=2))
    if any(shape["failed_checks"] for shape in result["shapes"]):
        raise SystemExit("a check failed; see above")


if __name__ == "__main__":
    main()
