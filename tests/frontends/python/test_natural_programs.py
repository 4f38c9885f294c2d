"""Programs as people write them, recorded and computed by PyTorch block by block: what eager gives."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from needs import of_extra

torch: Any = pytest.importorskip("torch", reason=of_extra("bench"))
pytest.importorskip("tvm", reason=of_extra("models"))

import oracle  # noqa: E402  (it needs PyTorch)
import tested_programs  # noqa: E402

from dietcode.frontends.python.local import load  # noqa: E402

# Each kind of trouble that these programs have shown: weights of two modules, state that instances share,
# shapes, in-place changes, errors of PyTorch's in a fiber, outer variables, named tuples as instances.
TRIED = [
    "act.run.0",
    "adaptive_depth.forward.0",
    "mcts.search.0",
    "message_passing.forward.0",
    "moe_router.switch.0",
    "shared_modules.depth_first.0",
    "speculative.generate.0",
    "spinn.forward.0",
    "tensor_bookkeeping.numpy_shared.6",
]
_NATURAL = {case.name: case for case in oracle.natural_cases()}


@pytest.mark.parametrize("name", TRIED)
def test_it_gives_what_eager_gives(name: str) -> None:
    oracle.check_case(load, _NATURAL[name])


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(_NATURAL.keys() - set(TRIED)))
def test_all_give_what_eager_gives(name: str) -> None:
    oracle.check_case(load, _NATURAL[name])


@pytest.mark.long
@pytest.mark.parametrize("part", range(16))
def test_programs_of_other_tests_give_what_eager_gives(part: int) -> None:
    failed = {}
    for case in itertools.islice(tested_programs.tested_cases(), part, None, 16):
        try:
            oracle.check_case(load, case)
        except Exception as error:
            failed[case.name] = str(error)[:200]
    assert failed == {}
