"""CPU targets: ``{kind: llvm}`` resolved to a processor, its features and its limits.

What a CPU can do follows from the flags that it lists. LLVM's name of it, which a virtual machine may get
wrong, only says how instructions are scheduled.
"""

from __future__ import annotations

import functools
import hashlib
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import tvm

from dietcode.errors import TargetError
from dietcode.runtime.cpu import available_cores, cache_bytes, cpu_flags, cpu_model, missing_features
from dietcode.target.base import target_of_tag
from dietcode.workload.identity import canonical_bytes
from dietcode.workload.spec import TargetSpec

# LLVM emits instructions of these only where code asks for them by name, which takes the system's permission.
_ON_REQUEST = frozenset({"amx-tile", "amx-int8", "amx-bf16", "amx-fp16"})
# The others that listings of a device had none of, as long as it was known by its name; see `_former_id`.
_LATER = frozenset(
    "sse4a xop fma4 tbm avxifma avxneconvert avxvnniint8 avxvnniint16 i8mm bf16".split()  # noqa: SIM905
)
# Features that change which instructions LLVM may emit.
_CODE_FEATURES = frozenset(
    """
    sse3 ssse3 sse4.1 sse4.2 popcnt movbe lzcnt bmi bmi2 f16c fma avx avx2 avxvnni adx gfni vaes vpclmulqdq
    avx512f avx512cd avx512bw avx512dq avx512vl avx512ifma avx512vbmi avx512vbmi2 avx512vnni avx512bitalg
    avx512vpopcntdq avx512bf16 avx512fp16 neon sve sve2 fullfp16 dotprod
    """.split()  # noqa: SIM905 - a list of names reads better as words
).union(_LATER, _ON_REQUEST)
_ARM_FEATURES = frozenset({"neon", "sve", "sve2", "fullfp16", "dotprod", "i8mm", "bf16"})
# (feature, bytes of a vector register, number of vector registers), widest first.
_VECTOR_UNITS = (("avx512f", 64, 32), ("avx2", 32, 16), ("avx", 32, 16), ("neon", 16, 32), ("", 16, 16))
_DEFAULT_L1_BYTES, _DEFAULT_L2_BYTES = 32 << 10, 512 << 10


@dataclass(frozen=True)
class CpuTarget:
    """A resolved CPU target.

    Attributes
    ----------
    mcpu : str
        LLVM's name of the processor, by which it schedules instructions.
    mattr : tuple of str
        Features switched on or off in addition, as ``+name`` or ``-name``.
    features : tuple of str
        Instruction-set features that code may use.
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
    def needed_features(self) -> tuple[str, ...]:
        """Features that a machine must have to run code which does not ask for others by name."""
        return tuple(name for name in self.features if name not in _ON_REQUEST)

    @property
    def runs_here(self) -> bool:
        """Whether this machine can execute the code."""
        return not missing_features(self.needed_features)


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
        LLVM's name of the processor, which follows from the model that it reports.
    features : tuple of str
        Features of its processor, of those that code may use; empty where nothing is known of it.
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
        mcpu = str(tvm.get_global_func("target.llvm_get_system_cpu")())
        lacked, is_known = set(missing_features(sorted(_CODE_FEATURES))), bool(cpu_flags())
        return cls(
            name=cpu_model(),
            machine=platform.machine(),
            mcpu=mcpu,
            features=features_of(mcpu, {name: name not in lacked for name in _CODE_FEATURES if is_known}),
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
        lacked = self.lacks(target.features)
        if lacked:
            return f"does not run {target.mcpu} code: it lacks {', '.join(lacked)}"
        return None if target.num_cores <= self.num_cores else f"has no {target.num_cores} cores"


def resolve_target(spec: TargetSpec, host: Host | None = None) -> CpuTarget:
    """Resolve ``target`` of a spec against a machine, by default this one.

    Without ``mcpu`` the host's processor is taken (LLVM's default is plain SSE), with just the features that
    the host has: those beyond LLVM's processor are switched on, and those that it lacks off.

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
    mcpu, mattr = spec.mcpu or host.mcpu, list(spec.mattr or ())
    if not tvm.get_global_func("target.llvm_is_valid_cpu")(mcpu, _triple()):
        raise TargetError(
            f"target.mcpu: {mcpu!r} is unknown to LLVM; leave it out to take the machine's {host.mcpu!r}"
        )
    if not spec.mcpu:
        mcpu = _processor(mcpu, host.features)
        mattr = _switches(mcpu, host.features) + mattr
    features = _features(mcpu, mattr)
    is_host = spec.mcpu in {None, host.mcpu} or tuple(features) == host.features
    return _with_limits(mcpu, mattr, features, spec, host, is_host)


def _with_limits(
    mcpu: str, mattr: list[str], features: list[str], spec: TargetSpec, host: Host, is_host: bool
) -> CpuTarget:
    vector_bytes, num_registers = next((b, n) for f, b, n in _VECTOR_UNITS if not f or f in features)
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


def features_of(mcpu: str, answers: Mapping[str, bool]) -> tuple[str, ...]:
    """Return the features of a machine: what it answers, and of what it says nothing, its processor's."""
    named = set(_features(mcpu))
    names = _CODE_FEATURES - _ARM_FEATURES if _is_x86() else _ARM_FEATURES
    return tuple(sorted(name for name in names if answers.get(name, name in named)))


@functools.lru_cache(maxsize=64)
def _processor(mcpu: str, features: tuple[str, ...]) -> str:
    """Return the processor that LLVM is to schedule for: the named one, unless it lacks what the host has.

    A virtual machine may hide features of a processor, but adds none: then the name is wrong, and LLVM's
    processor with the nearest features is taken. ARM processors report their part, which is passed on.
    """
    if set(features) <= set(_features(mcpu)) or not _is_x86():
        return mcpu

    def distance(name: str) -> int:
        return len(set(features).symmetric_difference(_features(name)))

    known = tvm.get_global_func("target.llvm_get_cpu_archlist")(_llvm(mcpu))
    return min(map(str, known), key=lambda name: (distance(name), name != mcpu, name))


def _switches(mcpu: str, features: Sequence[str]) -> list[str]:
    """Return the attributes with which LLVM's processor has just these features."""
    added = [f"+{name}" for name in sorted(set(features).difference(_features(mcpu)))]
    # A feature switches on those that it builds on, and off those that build on it.
    return added + [f"-{name}" for name in sorted(set(_features(mcpu, added)).difference(features))]


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


def _llvm(mcpu: str, mattr: Sequence[str] = ()) -> tvm.target.Target:
    return tvm.target.Target({"kind": "llvm", "mcpu": mcpu} | ({"mattr": list(mattr)} if mattr else {}))


def _triple() -> str:
    return str(tvm.get_global_func("target.llvm_get_system_triple")())


def _is_x86() -> bool:
    return _triple().startswith("x86")


def _features(mcpu: str, mattr: Sequence[str] = ()) -> list[str]:
    names = {str(name) for name in tvm.get_global_func("target.llvm_get_cpu_features")(_llvm(mcpu, mattr))}
    return sorted(names & _CODE_FEATURES)


def device_record(
    target: CpuTarget, host: Host | None = None, spec: TargetSpec | None = None
) -> dict[str, Any]:
    """Return the device of a header of records: a machine as `target` uses it, with a stable ``id``.

    The id is of features, caches and cores: names are for people, and change with the hypervisor. Attributes
    that are no features count too, since code follows from them.

    Parameters
    ----------
    host : Host, optional
        By default this machine; one without features is what the target says.
    spec : TargetSpec, optional
        What `target` is resolved from; then ``formerly`` is the id in versions that knew it by its name.
    """
    host = host or Host.here()
    known = host if host.features else target
    machine = {
        "features": list(known.features),
        "l1_bytes": known.l1_bytes,
        "l2_bytes": known.l2_bytes,
    }
    plain = target.to_json()
    other = sorted(name for name in target.mattr if name[1:] not in _CODE_FEATURES)
    identity = {**plain, "mcpu": None, "mattr": other, "machine": machine}
    record = {"name": host.name, "target": plain, "machine": machine, "id": _digest(identity)}
    return record if spec is None else record | {"formerly": _former_id(spec, host)}


def _former_id(spec: TargetSpec, host: Host) -> str:
    spec = spec if spec.tag is None else _from_tag(spec.tag)
    mcpu, mattr = spec.mcpu or host.mcpu, list(spec.mattr or ())
    features = [name for name in _features(mcpu, mattr) if name not in _LATER | _ON_REQUEST]
    hidden = [] if spec.mcpu else host.lacks(features)
    mattr += [f"-{name}" for name in hidden]
    features = [name for name in features if name not in hidden]
    target = _with_limits(mcpu, mattr, features, spec, host, mcpu == host.mcpu)
    return _digest({"name": host.name, "target": target.to_json()})


def _digest(identity: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_bytes(dict(identity))).hexdigest()[:16]
