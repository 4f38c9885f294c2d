"""What the control groups of Linux leave to this process: cores and memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def quota_cores(root: Path = Path("/")) -> float | None:
    """The least quota of the cgroups that this process is in, in cores; None without any.

    Parameters
    ----------
    root : path
        Of the file system.
    """
    found = (
        _read_old_quota(group) if is_old else _read_quota(group) for group, is_old in _groups(root, "cpu")
    )
    return min((quota for quota in found if quota is not None), default=None)


def memory_bytes(root: Path = Path("/")) -> int:
    """The bytes of memory that this process may use: the machine's, within the limits of its cgroups.

    Parameters
    ----------
    root : path
        Of the file system.
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    names = ("memory.max", "memory.limit_in_bytes")
    found = (_read_bytes(group / names[is_old]) for group, is_old in _groups(root, "memory"))
    return min([machine, *(limit for limit in found if limit is not None)])


def _groups(root: Path, controller: str) -> Iterator[tuple[Path, bool]]:
    """Folders of the cgroups of this process and of those around them, and whether they are of version 1."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        mount, is_old = root / "sys/fs/cgroup", bool(controllers)
        if is_old and controller not in controllers.split(","):
            continue
        if is_old:
            mount = mount / (controllers if (mount / controllers).is_dir() else controller)
        group = PurePosixPath(path.lstrip("/"))  # in a container some of it may not be there
        yield from ((mount / each, is_old) for each in (group, *group.parents))


def _read_quota(group: Path) -> float | None:
    """Read what stands as "$MAX $PERIOD", or as "max $PERIOD"."""
    try:
        most, period = (group / "cpu.max").read_text(encoding="utf-8").split()
        return None if most == "max" else int(most) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _read_old_quota(group: Path) -> float | None:
    try:
        most, period = (
            int((group / f"cpu.cfs_{name}_us").read_text(encoding="utf-8")) for name in ("quota", "period")
        )
        return most / period if most > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _read_bytes(limit: Path) -> int | None:
    """Read a number of bytes, or "max"."""
    try:
        return int(limit.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
