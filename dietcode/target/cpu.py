"""CPU targets: ``{kind: llvm}`` resolved to a processor, its features and its limits."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import tvm

from dietcode.errors import TargetError
from dietcode.runtime.cpu import available_cores, cache_bytes, cpu_model, missing_features
from dietcode.target.base import target_of_tag
from dietcode.workload.identity import canonical_bytes
from dietcode.workload.spec import TargetSpec

# Features that change which instructions LLVM may emit; a library lists those it was built with.
_CODE_FEATURES = frozenset(
    """
    sse3 ssse3 sse4.1 sse4.2 popcnt movbe lzcnt bmi bmi2 f16c fma avx avx2 avxvnni adx gfni vaes vpclmulqdq
    avx512f avx512cd avx512bw avx512dq avx512vl avx512ifma avx512vbmi avx512vbmi2 avx512vnni avx512bitalg
    avx512vpopcntdq avx512bf16 avx512fp16 neon sve sve2 fullfp16 dotprod
    """.split()  # noqa: SIM905 - a list of names reads better as words
)
# (feature, bytes of a vector register, number of vector registers), widest first.
_VECTOR_UNITS = (("avx512f", 64, 32), ("avx2", 32, 16), ("avx", 32, 16), ("neon", 16, 32), ("", 16, 16))
_DEFAULT_L1_BYTES, _DEFAULT_L2_BYTES = 32 << 10, 512 << 10


@dataclass(frozen=True)
class CpuTarget:
    """A resolved CPU target.

    Attributes
    ----------
    mcpu : str
        LLVM's name of the processor.
    mattr : tuple of str
        Features switched on or off in addition, as ``+name`` or ``-name``.
    features : tuple of str
        Instruction-set features a machine must have to run the code.
    num_cores : int
        P, the execution slots of the cost model.
    vector_bytes, num_vector_registers : int
        The vector unit.
    l1_bytes, l2_bytes : int
        Data caches of one core, in bytes.
    """

    mcpu: str
    mattr: tuple[str, ...]
    features: tuple[str, ...]
    num_cores: int
    vector_bytes: int
    num_vector_registers: int
    l1_bytes: int
    l2_bytes: int
    kind: str = "llvm"

    @property
    def label(self) -> str:
        """Processor and cores."""
        return f"{self.mcpu} ({self.num_cores} cores)"

    def tvm_target(self) -> tvm.target.Target:
        """Return the same target as TVM takes it."""
        config: dict[str, Any] = {"kind": "llvm", "mcpu": self.mcpu, "num-cores": self.num_cores}
        if self.mattr:
            config["mattr"] = list(self.mattr)
        return tvm.target.Target(config)

    def lanes(self, dtype_bytes: int = 4) -> int:
        """Return the elements of `dtype_bytes` in one vector register."""
        return self.vector_bytes // dtype_bytes

    def to_json(self) -> dict[str, Any]:
        """Return the target and the limits that the search used as plain data."""
        data = asdict(self)
        return {key: list(value) if isinstance(value, tuple) else value for key, value in data.items()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CpuTarget:
        """The inverse of `to_json`.

        Raises
        ------
        ValueError
            A field is missing, unknown or out of bounds, as in a header from elsewhere.
        """
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        try:
            target = cls(**values)
        except TypeError as error:
            raise ValueError(str(error)) from error
        bounds = (
            (target.num_cores, 4096),
            (target.vector_bytes, 1024),
            (target.num_vector_registers, 1024),
            (target.l2_bytes, 1 << 40),
        )
        if target.kind != "llvm" or not all(isinstance(n, int) and 1 <= n <= high for n, high in bounds):
            raise ValueError(f"no CPU target: {str(data)[:120]}")
        return target

    @property
    def runs_here(self) -> bool:
        """Whether this machine can execute the code."""
        return not missing_features(self.features)


@dataclass(frozen=True)
class Host:
    """A machine as far as targets depend on it; plain data, so that another machine can resolve for it.

    Attributes
    ----------
    name : str
        Name of the CPU for people.
    machine : str
        Instruction set, as in ``x86_64``.
    mcpu : str
        LLVM's name of the processor.
    features : tuple of str
        Features of its processor, of those that a library may need.
    num_cores : int
    l1_bytes, l2_bytes : int
        Data caches of one core, in bytes.
    """

    name: str
    machine: str
    mcpu: str
    features: tuple[str, ...]
    num_cores: int
    l1_bytes: int
    l2_bytes: int

    @classmethod
    def here(cls) -> Host:
        """Return this machine."""
        lacked = set(missing_features(sorted(_CODE_FEATURES)))
        return cls(
            name=cpu_model(),
            machine=platform.machine(),
            mcpu=str(tvm.get_global_func("target.llvm_get_system_cpu")()),
            features=tuple(sorted(_CODE_FEATURES - lacked)),
            num_cores=available_cores(),
            l1_bytes=cache_bytes(1, _DEFAULT_L1_BYTES),
            l2_bytes=cache_bytes(2, _DEFAULT_L2_BYTES),
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self) | {"features": list(self.features)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Host:
        """The inverse of `to_json`.

        Raises
        ------
        ValueError
            A field is missing or unknown.
        """
        try:
            return cls(**data | {"features": tuple(data["features"])})
        except (KeyError, TypeError) as error:
            raise ValueError(f"no description of a machine: {str(data)[:120]}") from error

    def lacks(self, features: Sequence[str]) -> list[str]:
        """Return those of `features` that it lacks."""
        return [name for name in features if name not in self.features]

    def refusal(self, target: CpuTarget) -> str | None:
        """Return why timings on it do not hold for the target; None where they do."""
        if self.lacks(target.features):
            return f"does not run {target.mcpu} code"
        return None if target.num_cores <= self.num_cores else f"has no {target.num_cores} cores"


def resolve_target(spec: TargetSpec, host: Host | None = None) -> CpuTarget:
    """Resolve ``target`` of a spec against a machine, by default this one.

    Without ``mcpu`` the host's processor is taken (LLVM's default is plain SSE), and features that the
    host's virtual machine hides are switched off.

    Parameters
    ----------
    host : Host, optional
        Another machine, of this one's instruction set.

    Raises
    ------
    TargetError
        The kind, processor or tag is unknown, or no code is generated for it.
    """
    if spec.tag is not None:
        spec = _from_tag(spec.tag)
    if spec.kind != "llvm":
        raise TargetError(
            f"target.kind: {spec.kind!r} cannot be built from measurements made here (experimental: no "
            "record from a device yet); allowed: llvm, or a GPU's records with dietcode tune --records"
        )
    host = host or Host.here()
    mcpu = spec.mcpu or host.mcpu
    triple = str(tvm.get_global_func("target.llvm_get_system_triple")())
    if not tvm.get_global_func("target.llvm_is_valid_cpu")(mcpu, triple):
        raise TargetError(
            f"target.mcpu: {mcpu!r} is unknown to LLVM; leave it out to take the machine's {host.mcpu!r}"
        )
    mattr = list(spec.mattr or ())
    features = _features(mcpu, mattr)
    if not spec.mcpu:
        hidden = host.lacks(features)
        mattr += [f"-{name}" for name in hidden]
        features = [name for name in features if name not in hidden]
    vector_bytes, num_registers = next((b, n) for f, b, n in _VECTOR_UNITS if not f or f in features)
    is_host = mcpu == host.mcpu
    return CpuTarget(
        mcpu=mcpu,
        mattr=tuple(mattr),
        features=tuple(features),
        num_cores=spec.num_cores or host.num_cores,
        vector_bytes=vector_bytes,
        num_vector_registers=num_registers,
        l1_bytes=host.l1_bytes if is_host else _DEFAULT_L1_BYTES,
        l2_bytes=host.l2_bytes if is_host else _DEFAULT_L2_BYTES,
    )


def _from_tag(tag: str) -> TargetSpec:
    target = target_of_tag(tag)
    attrs = dict(target.attrs)
    cores = attrs.get("num-cores")
    kind = str(target.kind.name)
    if kind != "llvm":
        raise TargetError(
            f"target: {tag!r} is of kind {kind}, which this version cannot build; allowed: llvm"
        )
    return TargetSpec(
        kind="llvm",
        mcpu=str(attrs["mcpu"]) if "mcpu" in attrs else None,
        num_cores=int(cores) if cores is not None else None,
    )


def _features(mcpu: str, mattr: list[str]) -> list[str]:
    target = tvm.target.Target(
        {"kind": "llvm", "mcpu": mcpu, "mattr": mattr} if mattr else {"kind": "llvm", "mcpu": mcpu}
    )
    names = {str(name) for name in tvm.get_global_func("target.llvm_get_cpu_features")(target)}
    return sorted(names & _CODE_FEATURES)


def device_record(target: CpuTarget, name: str | None = None) -> dict[str, Any]:
    """Return the device of a header of records: a CPU as `target` uses it, with a stable ``id``.

    Parameters
    ----------
    name : str, optional
        Name of the CPU; by default that of this machine.
    """
    data: dict[str, Any] = {"name": cpu_model() if name is None else name, "target": target.to_json()}
    data["id"] = hashlib.sha256(canonical_bytes(data)).hexdigest()[:16]
    return data
