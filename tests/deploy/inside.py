"""Becomes what a container would run: ``python inside.py PLAN``, as root in namespaces of its own.

The plan is JSON: `root` (an empty folder), `read_only` (folders of this machine that are seen at the same
place), `places` (folders and files by the place where they are seen: source, writable), `tmpfs` (as a compose
file writes it), `links`, `hostname`, `address`, `user`, `folder`, `argv`, `environment`. Nothing else of this
machine is there, and nothing but volumes and tmpfs can be written.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DOCKERS_OWN = "noexec,nosuid,nodev"  # what a tmpfs is mounted with where its options do not say otherwise


def mount(*arguments: object) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)


def bind(source: Path, target: Path, writable: bool) -> None:
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    mount("--bind", *([] if writable else ["-o", "ro"]), source, target)


def build(plan: dict, root: Path) -> None:
    mount("--make-rprivate", "/")
    mount("-t", "tmpfs", "-o", "mode=0755", "none", root)
    for name in ("proc", "dev", "sys"):
        (root / name).mkdir()
    mount("-t", "proc", "none", root / "proc")
    mount("--rbind", "-o", "ro", "/sys", root / "sys")
    for name in _DEVICES:
        bind(Path("/dev", name), root / "dev" / name, writable=True)
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        (root / "dev" / name).symlink_to(f"/proc/self/fd/{number}")
    (root / "dev" / "fd").symlink_to("/proc/self/fd")
    for each in plan["tmpfs"]:
        place, _, options = each.partition(":")
        (root / place[1:]).mkdir(parents=True, exist_ok=True)
        mount("-t", "tmpfs", "-o", f"{_DOCKERS_OWN},{options}", "none", root / place[1:])
    for place, target in plan["links"].items():
        (root / place[1:]).parent.mkdir(parents=True, exist_ok=True)
        (root / place[1:]).symlink_to(target)
    for place, (source, writable) in plan["places"].items():
        bind(Path(source), root / place[1:], writable)
    for place in plan["read_only"]:
        bind(Path(place), root / place[1:], writable=False)
    (root / plan["folder"][1:]).mkdir(parents=True, exist_ok=True)
    mount("-o", "remount,ro", root)


def plug_in(address: str | None) -> None:
    """Wait for the cable that the other side brings, and take the address."""
    if address is None:
        return
    while subprocess.run(["ip", "link", "show", "eth0"], capture_output=True, check=False).returncode != 0:
        time.sleep(0.01)
    for words in ("link set lo up", f"addr add {address} dev eth0", "link set eth0 up"):
        subprocess.run(["ip", *words.split()], check=True)


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    uid, gid = plan["user"].split(":")
    setpriv = shutil.which("setpriv")
    assert setpriv is not None
    plug_in(plan["address"])
    build(plan, Path(plan["root"]))
    socket.sethostname(plan["hostname"])
    os.chroot(plan["root"])
    os.chdir(plan["folder"])
    command = [setpriv, f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--no-new-privs"]
    os.execve(
        setpriv, [*command, "--inh-caps=-all", "--bounding-set=-all", *plan["argv"]], plan["environment"]
    )


main()
