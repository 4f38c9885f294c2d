"""Opening a bundle: its files checked by digest, its libraries loaded, its weights packed once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from dietcode.errors import LibraryError
from dietcode.graph.tensor_type import TensorType
from dietcode.runtime.cpu import available_cores
from dietcode.runtime.library import Library
from dietcode.runtime.loading import LoadOptions
from dietcode.runtime.loading import load as load_library
from dietcode.runtime.manifest import (
    BUNDLE_FORMAT,
    DISPATCH,
    LIBRARIES,
    MANIFEST,
    MODEL,
    REPORT,
    WEIGHTS,
    parse_json,
    read_document,
    read_json,
    read_manifest,
    read_verified,
    sha256_file,
    unlisted,
    verify_file,
)
from dietcode.runtime.models.copies import native_copy
from dietcode.runtime.models.executable import HostStep, KernelStep, read_executable
from dietcode.runtime.models.flow import values_of
from dietcode.runtime.models.kernels import Array, Kernels
from dietcode.runtime.models.model import Model
from dietcode.runtime.models.steps import computed, evaluated_attributes
from dietcode.runtime.models.weights import read_weights
from dietcode.runtime.signed import is_required, signed_manifest
from dietcode.runtime.threads import Threads

_FIELDS: dict[str, type] = {"name": str, "files": dict, "libraries": dict}


class Described(Protocol):
    """What a bundle describes: an `Executable`, or a recursion."""

    @property
    def weights(self) -> Mapping[str, TensorType]: ...

    @property
    def load(self) -> Sequence[HostStep]: ...

    @property
    def all_steps(self) -> Sequence[Any]: ...

    @property
    def outputs(self) -> Sequence[str]: ...

    @property
    def digests(self) -> Sequence[str]: ...


D = TypeVar("D", bound=Described)


def read_bundle(
    folder: Path,
    kind: tuple[str, str] = (BUNDLE_FORMAT, MODEL),
    content: bytes | None = None,
    is_loaded: bool = False,
) -> dict[str, Any]:
    """Read and verify a bundle's manifest, and the digest of every file that it lists.

    Parameters
    ----------
    folder : Path
    kind : (str, str)
        The format, and the file that describes what the bundle holds.
    content : bytes, optional
        Of the manifest, where it was read already, and its signature checked.
    is_loaded : bool
        Whether the caller goes on to `read_listed` and `load_libraries`, which check what they read: the
        description, and the manifests of the libraries that it calls.

    Raises
    ------
    LibraryError
        A file is missing, altered or of another format.
    """
    manifest = parse_json(folder / MANIFEST, content or read_document(folder / MANIFEST))
    form, description = kind
    if manifest.get("format") != form:
        raise LibraryError(f"{folder}: format {manifest.get('format')!r}; this version reads {form}")
    for name, wanted in _FIELDS.items():
        if not isinstance(manifest.get(name), wanted):
            raise LibraryError(
                f"{folder / MANIFEST}: {name} is missing or no {wanted.__name__}; compile again"
            )
    files = manifest["files"]
    allowed = {description, REPORT, WEIGHTS}
    if not {description, REPORT} <= set(files) <= allowed:
        raise LibraryError(
            f"{folder / MANIFEST}: files {sorted(files)}; allowed: {', '.join(sorted(allowed))}"
        )
    for name, facts in files.items():
        if not is_loaded or name != description:
            verify_file(folder / name, facts)
    for digest, facts in manifest["libraries"].items():
        path = library_folder(folder, digest) / MANIFEST
        listed = facts.get("manifest") if isinstance(facts, Mapping) else None
        is_listed = isinstance(listed, str) and path.is_file()
        if not is_listed or not (is_loaded or sha256_file(path) == listed):
            raise unlisted(path)
    return manifest


def read_listed(folder: Path, manifest: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a JSON object that a manifest lists, of the very bytes that it lists.

    Raises
    ------
    LibraryError
        It is missing, altered, or not a JSON object.
    """
    return parse_json(folder / name, read_verified(folder / name, manifest["files"][name]))


def described_bundle(
    folder: Path, kind: tuple[str, str] = (BUNDLE_FORMAT, MODEL)
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a bundle's manifest and its report, whose parts have the number of their categories.

    Parameters
    ----------
    folder : Path
    kind : (str, str)
        As `read_bundle` has it.

    Raises
    ------
    LibraryError
        A file is missing, altered or of another format.
    """
    manifest = read_bundle(folder, kind)
    report = read_json(folder / REPORT)
    dispatches = bundle_dispatches(folder, [str(part["digest"]) for part in report["parts"]])
    parts = [
        {**part, "categories": len(dispatches[str(part["digest"])]["categories"])} for part in report["parts"]
    ]
    return manifest, report | {"parts": parts}


def bundle_dispatches(folder: Path, digests: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the dispatch tables and rules of a bundle's libraries, by the digest of their parts.

    Raises
    ------
    LibraryError
        A file is missing, altered or of another format.
    """
    found = {}
    for digest in digests:
        own = library_folder(folder, digest)
        read_manifest(own)
        found[digest] = read_json(own / DISPATCH)
    return found


def library_folder(folder: Path, digest: str) -> Path:
    """Return where a bundle has a library.

    Raises
    ------
    LibraryError
        It is no digest.
    """
    if not digest or set(digest) - set("0123456789abcdef"):
        raise LibraryError(f"{folder / MANIFEST}: {digest[:40]!r} is no library of a bundle")
    return folder / LIBRARIES / digest


def open_bundle(
    folder: Path, kind: tuple[str, str], read: Callable[[Mapping[str, Any]], D], options: LoadOptions
) -> tuple[dict[str, Any], D, dict[str, Library]]:
    """Return a bundle's manifest, what it describes, and the libraries that it calls, by digest.

    Parameters
    ----------
    folder : Path
    kind : (str, str)
        As `read_bundle` has it.
    read : callable
        Returns what the file that describes it says.
    options : LoadOptions

    Raises
    ------
    LibraryError, TargetError
        As for a library.
    """
    content = signed_manifest(folder, is_required(options.require_signature))
    manifest = read_bundle(folder, kind, content, is_loaded=True)
    path = folder / kind[1]
    described = read(read_listed(folder, manifest, kind[1]))
    libraries = load_libraries(path, described, manifest, options.num_threads, options.threads)
    return manifest, described, libraries


def load_model(folder: Path, options: LoadOptions) -> Model:
    """Load the bundle of a model.

    Raises
    ------
    LibraryError, TargetError
        As for a library; or the weights are missing, or not those of the model.
    """
    manifest, executable, libraries = open_bundle(folder, (BUNDLE_FORMAT, MODEL), read_executable, options)
    kernels = load_kernels(executable, libraries, options.weights or folder / WEIGHTS)
    threads = Threads.of(options.num_threads, options.threads, available_cores())
    alone, beside = (
        replace(own, copy=native_copy(threads.bind_copy(beside_torch)))
        for beside_torch, own in zip((False, True), kernels, strict=True)
    )
    try:
        model = Model(folder, manifest, executable, alone, beside, options.weights)
    except ValueError as error:
        raise LibraryError(f"{folder / MODEL}: {error}") from error
    model.prepare()
    return model


def load_libraries(
    path: Path,
    executable: Described,
    manifest: Mapping[str, Any],
    num_threads: int | None,
    threads: str | None,
) -> dict[str, Library]:
    """Return the libraries that a bundle calls, by digest.

    Parameters
    ----------
    path : Path
        Of the file that describes the executable.
    executable : Described
    manifest : mapping
        Of the bundle.
    num_threads, threads
        As `dietcode.load` has them.

    Raises
    ------
    LibraryError, TargetError
        A library is not there or cannot be loaded, or is called otherwise than it is.
    """
    for digest in executable.digests:
        if digest not in manifest["libraries"]:
            raise LibraryError(f"{path}: calls {digest[:40]!r}, which the bundle does not list")
    libraries = {
        digest: load_library(
            library_folder(path.parent, digest),
            num_threads=num_threads,
            threads=threads,
            listed=manifest["libraries"][digest]["manifest"],
        )
        for digest in executable.digests
    }
    _check_calls(path, executable, libraries)
    return libraries


def load_kernels(
    executable: Described, libraries: Mapping[str, Library], weights: Path
) -> tuple[Kernels, Kernels]:
    """Return what is called alone and beside PyTorch, with the weights of a file packed.

    Raises
    ------
    LibraryError
        Weights are missing, or not those of the model.
    """
    return kernels_of(executable, libraries, read_weights(weights, executable.weights))


def kernels_of(
    executable: Described, libraries: Mapping[str, Library], weights: Mapping[str, Array]
) -> tuple[Kernels, Kernels]:
    """Return what is called alone and beside PyTorch, with some weights packed."""
    constants = loaded_constants(executable, weights)
    packed = pack_constants(executable, libraries, constants)
    kept = _unpacked(executable, constants, packed)
    orders = {digest: library.argument_names for digest, library in libraries.items()}
    alone, beside = (
        Kernels({d: one.native(beside_torch) for d, one in libraries.items()}, orders, packed, kept)
        for beside_torch in (False, True)
    )
    return alone, beside


def _check_calls(path: Path, executable: Described, libraries: Mapping[str, Library]) -> None:
    """Refuse a model that calls a library otherwise than it is called."""
    constants = {*executable.weights, *(name for step in executable.load for name in step.results)}
    for step in executable.all_steps:
        if not isinstance(step, KernelStep):
            continue
        library = libraries[step.digest]
        names, variables = library.argument_names
        if set(names) != set(step.arguments) or not set(variables) <= set(step.variables):
            raise LibraryError(f"{path}: calls {step.digest} with other tensors than it takes")
        for name in library.packed_names:
            if step.arguments[name].value not in constants:
                raise LibraryError(f"{path}: {name} of {step.digest} is no constant of the model")


def lookups(op: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Return each table that an operation of a spec looks up, and the positions in it, by their names."""
    for node in op.get("block", {}).get("graph", {}).values():
        if "gather" in node:
            table, index = node["gather"]
            yield table, index


def loaded_constants(executable: Described, weights: Mapping[str, Array]) -> dict[str, Array]:
    """Return the weights, and what follows from them alone."""
    known: dict[str, Array] = dict(weights)
    for step in executable.load:
        operands = [known[one] if isinstance(one, str) else one for one in step.operands]
        results = computed(step.operator, operands, evaluated_attributes(step, {}))
        for name, result in zip(step.results, results, strict=True):
            known[name] = np.array(result, order="C", copy=True)
    return known


def pack_constants(
    executable: Described, libraries: Mapping[str, Library], constants: Mapping[str, Array]
) -> dict[tuple[str, str, str], Any]:
    """Return the constants that libraries take in a layout of their own, each packed once."""
    packed: dict[tuple[str, str, str], Any] = {}
    for step in executable.all_steps:
        if not isinstance(step, KernelStep):
            continue
        library = libraries[step.digest]
        for name, read in step.arguments.items():
            key = (step.digest, name, read.value)
            if name in library.packed_names and key not in packed:
                array = constants[read.value]
                shape = tuple(extent.constant for extent in read.shape)
                packed[key] = library.pack(**{name: array.reshape(shape)}).native
    return packed


def _unpacked(
    executable: Described, constants: Mapping[str, Array], packed: Mapping[tuple[str, str, str], Any]
) -> dict[str, Array]:
    """Return the constants that are read as they are; the others are given back."""
    needed = set(executable.outputs)
    for step in executable.all_steps:
        if isinstance(step, KernelStep):
            needed.update(
                read.value
                for name, read in step.arguments.items()
                if (step.digest, name, read.value) not in packed
            )
        elif isinstance(step, HostStep):
            needed.update(one for one in step.operands if isinstance(one, str))
        else:
            needed.update(values_of(step))
    return {name: array for name, array in constants.items() if name in needed}
