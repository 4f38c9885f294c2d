"""The target as a spec writes it; `dietcode.target` says whether it can be built for."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, ValidationInfo, field_validator

from dietcode.errors import SpecError
from dietcode.workload.text import clip, field_path, suggest

CPU_KIND = "llvm"  # TVM's name
FIELDS_BY_KIND = {CPU_KIND: ("kind", "mcpu", "mattr", "num_cores"), "cuda": ("kind", "arch")}

_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+/-]{0,127}")
# What each option must match, and what is allowed in words.
_FORMS = {
    "mcpu": (r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}", "the name of a CPU, like skylake-avx512"),
    "mattr": (r"[+-][A-Za-z0-9][A-Za-z0-9._-]{0,63}", "features with their sign, like +avx2"),
    "arch": (r"sm_[1-9][0-9]{1,2}[a-z]?", "an architecture, like sm_90"),
}
_ALLOWED = "allowed: {kind: llvm}, {kind: cuda, arch: sm_90}, or a TVM tag as text"


class TargetSpec(BaseModel):
    """A target: either a kind with its options, or a TVM tag.

    Parameters
    ----------
    kind : "llvm", "cuda" or None
        None where `tag` is given.
    mcpu : str, optional
        llvm: the CPU that code is for; left out, what this machine's flags say.
    mattr : tuple of str, optional
        llvm: features, each with its sign, like ``+avx2``.
    num_cores : int, optional
        llvm: cores of the pool.
    arch : str, optional
        cuda: like ``sm_90``; always there for cuda.
    tag : str, optional
        A name that TVM knows, like ``nvidia/nvidia-a100``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["llvm", "cuda"] | None = None
    mcpu: StrictStr | None = None
    mattr: tuple[StrictStr, ...] | None = Field(default=None, max_length=256)
    num_cores: Annotated[StrictInt, Field(ge=1, le=4096)] | None = None
    arch: StrictStr | None = None
    tag: StrictStr | None = None

    @classmethod
    def from_plain(cls, given: object) -> object:
        """Check the form of a spec's `target` and turn a tag into a mapping; a `TargetSpec` passes.

        Raises
        ------
        SpecError
            It is neither a tag nor a mapping of one kind's fields.
        """
        if isinstance(given, TargetSpec):
            return given
        if isinstance(given, str):
            if not _TAG.fullmatch(given):
                raise SpecError("target", f"given {clip(given)}; {_ALLOWED}")
            return cls(tag=given)
        if not isinstance(given, dict):
            raise SpecError("target", f"given {clip(given)}; {_ALLOWED}")
        kind = given.get("kind")
        if not isinstance(kind, str) or kind not in FIELDS_BY_KIND:
            what = f"given {clip(kind)}" if "kind" in given else "missing"
            raise SpecError("target.kind", f"{what}; {_ALLOWED}{suggest(kind, FIELDS_BY_KIND)}")
        allowed = FIELDS_BY_KIND[kind]
        for name in given:
            if name not in allowed:
                problem = (
                    f"unknown field of kind {kind}; allowed: {', '.join(allowed)}{suggest(name, allowed)}"
                )
                raise SpecError(field_path(["target", name]), problem)
        if kind == "cuda" and given.get("arch") is None:
            raise SpecError("target.arch", "missing; allowed: the architecture, like sm_90")
        return given

    @field_validator("mcpu", "mattr", "arch")
    @classmethod
    def _check_form(cls, given: str | tuple[str, ...] | None, info: ValidationInfo) -> object:
        pattern, allowed = _FORMS[str(info.field_name)]
        for option in (given,) if isinstance(given, str) else given or ():
            if not re.fullmatch(pattern, option):
                raise ValueError(f"given {clip(option)}; allowed: {allowed}")
        return given

    def to_json(self) -> str | dict[str, Any]:
        """Return plain data, as a spec writes it; options left out stay out."""
        if self.tag is not None:
            return self.tag
        return self.model_dump(mode="json", exclude_none=True)
