"""Loading a library: its folder checked, this machine compared with what it was built for."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dietcode.errors import LibraryError, TargetError
from dietcode.runtime.cpu import missing_features
from dietcode.runtime.cuda_library import CudaLibrary
from dietcode.runtime.library import Library
from dietcode.runtime.manifest import (
    CODE,
    MANIFEST,
    file_facts,
    packing_function,
    read_manifest,
    read_verified,
    unlisted,
)
from dietcode.runtime.native import load_content
from dietcode.runtime.signed import is_required, signed_manifest
from dietcode.runtime.threads import Threads, attach
from dietcode.workload.text import clip, one_line

_MAX_LANES = 4096  # of a panel that a constant is packed into


class LoadOptions(NamedTuple):
    """How a bundle is loaded, as `dietcode.load` has it.

    Attributes
    ----------
    weights : Path, optional
        A file of weights; by default the bundle's own.
    num_threads, threads, require_signature
        As parameters of `dietcode.load`.
    """

    weights: Path | None = None
    num_threads: int | None = None
    threads: str | None = None
    require_signature: bool | None = None


def load(
    folder: str | os.PathLike[str],
    *,
    num_threads: int | None = None,
    threads: str | None = None,
    require_signature: bool | None = None,
    listed: str | None = None,
) -> Library:
    """Load a library folder; all of it is read once, so that what was verified is what runs.

    Parameters
    ----------
    folder : path
        What ``dietcode tune -o`` wrote, or ``dietcode pull``: that one is signed, and loads only if the
        signature is that of a trusted key.
    num_threads : int, optional
        Threads that a call of this library uses at most, of the own pool then; by default as many as cores it
        was tuned for, or as there are if those are fewer.
    threads : str, optional
        Whose they are: ``own`` for one pool of all libraries of the process, ``host`` for the host program's
        OpenMP team, ``auto`` for that of PyTorch where the tensors are PyTorch's and for the pool elsewhere.
        By default ``$DIETCODE_THREADS``, or ``auto``.
    require_signature : bool, optional
        Whether a folder without a signature is refused; by default as ``$DIETCODE_REQUIRE_SIGNATURE`` says.
    listed : str, optional
        Digest of the manifest, where a bundle lists it: that vouches for the library.

    Raises
    ------
    LibraryError
        The folder is incomplete or altered, its signature is wrong, missing or of a key that is not trusted,
        or its code cannot be loaded.
    TargetError
        This CPU lacks an instruction set that the code uses; or, for a library for CUDA, there is no GPU or
        driver, the driver is too old, or the library has no code for the GPU.
    """
    path = Path(folder)
    content = signed_manifest(path, listed is None and is_required(require_signature))
    if listed is not None and file_facts(content)["sha256"] != listed:
        raise unlisted(path / MANIFEST)
    manifest = read_manifest(path, content, later=(CODE,))
    try:
        _check_machine(path, manifest)
        chosen = Threads.of(num_threads, threads, manifest["num_threads"])
        if "cuda" in manifest["requires"]:
            on_gpus = CudaLibrary(path, manifest, _code(path, manifest)[0])
            on_gpus.prepare()
            return on_gpus
        return _library(path, manifest, chosen)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise LibraryError(f"{path / MANIFEST}: describes no library: {what[:120]}") from error


def _library(path: Path, manifest: dict[str, Any], threads: Threads) -> Library:
    for name, facts in manifest["packed"].items():
        if type(facts["lanes"]) is not int or not 1 <= facts["lanes"] <= _MAX_LANES:
            raise LibraryError(
                f"{path / MANIFEST}: packed {name}: {clip(facts['lanes'])} lanes; allowed: 1 to {_MAX_LANES}"
            )
    module, loaded_by = _code(path, manifest)
    attach(loaded_by)
    facts = facts_of_run(manifest)
    functions = {"run": threads.bind(module["run"], **facts), "select": module["select"]}
    for name in map(packing_function, manifest["packed"].values()):
        functions[name] = threads.bind(module[name])
    beside_torch = threads.bind(module["run"], beside_torch=True, **facts)
    return Library(path, manifest, functions, beside_torch, threads.num_threads)


def facts_of_run(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the launcher is told of the function that computes, as `Threads.bind` takes it.

    Manifests of versions that cut a loop into a part for each thread do not say how many parts there are.
    """
    num_parts = manifest.get("num_parts", manifest["num_threads"])
    return {"uncounted": table_sizes(manifest), "num_parts": num_parts}


def table_sizes(manifest: Mapping[str, Any]) -> int:
    """Return a bit for each shape variable that is only the rows of tables, which time hardly depends on.

    A recursion's table is as large as its structure: with its size, each structure would be timed anew.
    """
    graph = manifest["workload"]["op"].get("block", {}).get("graph", {})
    tables = {node["gather"][0] for node in graph.values() if "gather" in node}
    for word, names in (one for node in graph.values() for one in node.items() if isinstance(one[1], list)):
        tables.difference_update(names[word == "gather" :])
    counted = "".join(facts["dims"] for facts in manifest.get("outputs", [manifest["output"]]))
    for name, facts in manifest["inputs"].items():
        counted += facts["dims"][name in tables :]
    names = {name for index in counted for name in re.findall(r"\w+", manifest["dims"][index])}
    return sum((name not in names) << bit for bit, name in enumerate(manifest["variable_order"]))


def _code(folder: Path, manifest: Mapping[str, Any]) -> tuple[Any, str]:
    return load_content(read_verified(folder / CODE, manifest["files"][CODE]), str(folder / CODE))


def _check_machine(folder: Path, manifest: dict[str, Any]) -> None:
    requires = manifest["requires"]
    if platform.machine() != requires["machine"] or platform.system() != requires["system"]:
        raise TargetError(
            f"{folder}: built for {clip(requires['system'])} on {clip(requires['machine'])}; "
            f"this is {platform.system()} on {platform.machine()}"
        )
    missing = missing_features(requires["cpu_features"])
    if missing:
        raise TargetError(
            f"{folder}: needs a CPU with {one_line(', '.join(map(str, missing)))}, which this one lacks; "
            "tune with target: {kind: llvm} on a machine like this one"
        )
