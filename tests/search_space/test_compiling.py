"""Passes that are left out change nothing of what is generated, whatever its form."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import compiled
import compiled_block
import depthwise_kinds
import pytest
import tvm
from attention_blocks import ATTENTIONS, built_attention
from kinds import KINDS, built
from product_blocks import BLOCKS as PRODUCTS
from product_blocks import built_block as built_product
from row_blocks import BLOCKS, built_block
from turns import TARGETS

from dietcode.search_space.cpu.compiling import compile_module

# One of each form; all where there is time, each for one vector unit in turn: no pass is chosen by it.
FORMS: tuple[tuple[Callable[..., Any], Any, str], ...] = (
    (built, KINDS, "NCHW uneven"),
    (built_block, BLOCKS, "reductions"),
    (built_product, PRODUCTS, "qkv"),
    (built_attention, ATTENTIONS, "one-head"),
    (depthwise_kinds.built_depthwise, depthwise_kinds.DEPTHWISE, "few channels"),
)


def _cases() -> Iterator[Any]:
    for make, names, first in FORMS:
        for number, name in enumerate(names):
            mcpu = TARGETS[0] if name == first else TARGETS[number % len(TARGETS)]
            yield pytest.param(make, name, mcpu, marks=() if name == first else pytest.mark.long)


@pytest.mark.sampled(keep=3)
@pytest.mark.parametrize(("make", "name", "mcpu"), list(_cases()))
def test_the_same_code_comes_of_all_passes(
    make: Any, name: str, mcpu: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def compare(module: Any, target: Any) -> Any:
        executable = compile_module(module, target)
        with_all = tvm.compile(module, target=target.tvm_target())
        one, other = (_llvm(found) for found in (executable, with_all))
        assert one == other
        seen.append(one)
        return None

    for module in (compiled, compiled_block, depthwise_kinds):
        monkeypatch.setattr(module, "load_compiled", compare)
    make.__wrapped__(name, mcpu)  # not the one that others have loaded
    (text,) = seen
    assert "micro_kernel_0" in text


def _llvm(executable: Any) -> str:
    """Its LLVM IR without the addresses that aliases are named by."""
    return re.sub(r"0x[0-9a-f]+", "address", executable.mod.inspect_source("ll"))
