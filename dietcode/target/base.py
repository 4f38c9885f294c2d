"""What all kinds of targets have in common."""

from __future__ import annotations

from typing import Any, Protocol

from dietcode.workload.target_spec import TargetSpec


class Target(Protocol):
    """A resolved target: what code is generated for, and for what measurements hold."""

    @property
    def kind(self) -> str:
        """TVM's name of the kind, as in a spec."""

    @property
    def label(self) -> str:
        """A few words for people."""

    def tvm_target(self) -> Any:
        """The same target as TVM takes it."""

    def to_json(self) -> dict[str, Any]:
        """Plain data: its identity."""


def kind_of(spec: TargetSpec) -> str:
    """The kind of a spec's target, or of the TVM tag that it is; llvm where the tag is unknown to TVM."""
    if spec.tag is None:
        return str(spec.kind)
    import tvm

    try:
        return str(tvm.target.Target(spec.tag).kind.name)
    except Exception:
        return "llvm"  # who resolves it for a CPU says what is wrong with it
