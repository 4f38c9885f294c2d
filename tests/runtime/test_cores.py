"""What a process may use: cores of its affinity and quotas, and memory, with cgroups of both versions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dietcode.runtime import cpu
from dietcode.runtime.cgroups import memory_bytes, quota_cores
from dietcode.runtime.cpu import available_cores

NEW, OLD = "0::/{0}\n", "5:memory:/{0}\n4:cpu,cpuacct:/{0}\n"


def made(root: Path, groups: str, files: dict[str, str]) -> Path:
    """A file system with the groups of a process and some files of theirs."""
    for name, text in {"proc/self/cgroup": groups, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        (NEW.format(""), {"sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        (NEW.format(""), {"sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        (NEW.format("a/b"), {"sys/fs/cgroup/a/b/cpu.max": "400000 100000"}, 4.0),
        (
            NEW.format("a/b"),
            {"sys/fs/cgroup/a/b/cpu.max": "max 100000", "sys/fs/cgroup/a/cpu.max": "1 2"},
            0.5,
        ),
        (NEW.format("host/path"), {"sys/fs/cgroup/cpu.max": "200000 100000"}, 2.0),
        (NEW.format("a"), {"sys/fs/cgroup/a/cpu.max": "nonsense"}, None),
        (NEW.format("a"), {"sys/fs/cgroup/a/cpu.max": "1 0"}, None),
        (
            OLD.format("docker/x"),
            {
                "sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us": "250000\n",
                "sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us": "100000\n",
            },
            2.5,
        ),
        (
            OLD.format("docker/x"),
            {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "100000", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "50000"},
            2.0,
        ),
        (
            OLD.format(""),
            {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "50000"},
            None,
        ),
        ("5:memory:/\n", {"sys/fs/cgroup/memory/cpu.cfs_quota_us": "1"}, None),
        ("", {}, None),
    ],
)
def test_the_least_quota_counts(
    tmp_path: Path, groups: str, files: dict[str, str], cores: float | None
) -> None:
    assert quota_cores(made(tmp_path, groups, files)) == cores


def test_a_system_without_cgroups(tmp_path: Path) -> None:
    assert quota_cores(tmp_path) is None


@pytest.mark.parametrize(("quota", "cores"), [(None, 4), (1.5, 2), (0.1, 1), (4.0, 4), (64.0, 4)])
def test_cores_are_those_of_the_affinity_within_the_quota(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, cores: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr(cpu, "quota_cores", lambda: quota)
    assert available_cores() == cores


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        (
            NEW.format("a/b"),
            {"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "4096\n"},
            4096,
        ),
        (OLD.format("x"), {"sys/fs/cgroup/memory/x/memory.limit_in_bytes": "8192\n"}, 8192),
        (OLD.format("x"), {"sys/fs/cgroup/memory/x/memory.limit_in_bytes": "9223372036854771712\n"}, None),
        (NEW.format("a"), {"sys/fs/cgroup/a/memory.max": "nonsense"}, None),
        ("", {}, None),
    ],
)
def test_the_least_limit_of_memory_counts(
    tmp_path: Path, groups: str, files: dict[str, str], limit: int | None
) -> None:
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert memory_bytes(made(tmp_path, groups, files)) == (machine if limit is None else limit)
