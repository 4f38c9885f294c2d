"""What all kinds of targets have in common."""

from __future__ import annotations

from typing import Any, Protocol

from dietcode.errors import TargetError
from dietcode.workload.target_spec import TargetSpec


class Target(Protocol):
    """A resolved target, which code is generated for and measurements belong to."""

    @property
    def kind(self) -> str:
        """Kind, as in a spec and in TVM."""

    @property
    def label(self) -> str:
        """Short text for people."""

    def tvm_target(self) -> Any:
        """Return the same target as TVM takes it."""

    def to_json(self) -> dict[str, Any]:
        """Return its identity as plain data."""


def target_of_tag(tag: str) -> Any:
    """Return TVM's target of a tag.

    Raises
    ------
    TargetError
        TVM does not know the tag.
    """
    import tvm

    try:
        return tvm.target.Target(tag)
    except Exception as error:
        raise TargetError(
            f"target: {tag!r} is no TVM target tag; allowed: a tag, {{kind: llvm}} or {{kind: cuda, arch: …}}"
        ) from error


def kind_of(spec: TargetSpec) -> str:
    """Return the kind of a spec's target, or of its TVM tag; llvm where TVM does not know the tag."""
    if spec.tag is None:
        return str(spec.kind)
    try:
        return str(target_of_tag(spec.tag).kind.name)
    except TargetError:
        return "llvm"  # resolving it for a CPU reports what is wrong with it
