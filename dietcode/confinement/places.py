"""Files that building and measuring need: programs, libraries, headers, what the kernel says of a machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import sysconfig
from pathlib import Path

_SYSTEM = (
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/bin",
    "/sbin",
    "/nix/store",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/group",
    "/proc/cpuinfo",
    "/proc/devices",
    "/proc/filesystems",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/modules",
    "/proc/self",
    "/proc/stat",
    "/proc/sys/kernel",
    "/proc/sys/vm",
    "/proc/uptime",
    "/proc/version",
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/sys/kernel/mm",
    "/dev/random",
    "/dev/urandom",
    "/dev/zero",
)
_DEVICES = ("/dev/null", "/dev/full")  # written to as well
_OF_GPU = ("/proc/driver", "/sys", "/etc/nvidia", "/run/nvidia-persistenced")
_GPU_DEVICES = "nvidia*"
_LISTS = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "TVM_LIBRARY_PATH")
_FOLDERS = ("CUDA_HOME", "VIRTUAL_ENV")
_COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "clang++", "ld", "lld")


def readable(drives_gpu: bool) -> list[Path]:
    """Return what may be read and run: never a folder that holds the user's home."""
    given = [
        *_SYSTEM,
        *(_OF_GPU if drives_gpu else ()),
        sys.prefix,
        sys.base_prefix,
        *(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        str(Path(__file__).parent.parent),
        *_linked(Path(sysconfig.get_paths()["purelib"])),
        *sys.path[1:],  # the first is the folder of whoever started Python
        *(path for name in _LISTS for path in os.environ.get(name, "").split(os.pathsep)),
        *(os.environ.get(name, "") for name in _FOLDERS),
    ]
    found = [Path(path) for path in given if Path(path).is_absolute()]
    compilers = (shutil.which(os.environ.get("CXX", "")), *(shutil.which(name) for name in _COMPILERS))
    # Where a compiler is installed, beside what it starts and reads itself.
    found += [Path(path).resolve().parent.parent for path in compilers if path]
    home = Path("~").expanduser().resolve()
    return [path for path in found if not home.is_relative_to(path.resolve())]


def writable(drives_gpu: bool) -> list[Path]:
    """Return the devices that may be written to."""
    return [*map(Path, _DEVICES), *(Path("/dev").glob(_GPU_DEVICES) if drives_gpu else ())]


def _linked(packages: Path) -> set[str]:
    """Return the folders that hold what is installed as links: to packages, or to each of their files."""
    found = set()
    with contextlib.suppress(OSError):
        for entry in os.scandir(packages):
            paths = (Path(entry.path), Path(entry.path, "__init__.py"))
            found |= {str(path.resolve().parent) for path in paths if path.is_symlink()}
    return found
