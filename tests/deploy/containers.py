"""Containers without Docker: services of the compose file in Linux namespaces, from what the files say.

A container sees the programs of this machine, this checkout in place of the image's site-packages, its
volumes, secrets and tmpfs, and nothing else; it runs as the image's user, without capabilities, on a
read-only root. The containers of a `Machine` reach each other by their services' names, on a network that
leads nowhere else.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
from images import ROOT, image, own, read_compose

INSIDE = Path(__file__).parent / "inside.py"
PACKAGES = (ROOT, ROOT / "server", ROOT / "migrations")
HOME = "/var/lib/dietcode"
_POSTGRES_USER = 999
_SWITCH = "ip link add dietcode0 type bridge && ip link set dietcode0 up && echo up && exec sleep infinity"
_NETWORK = "10.77.0."


def why_not() -> str | None:
    """What keeps containers from being made here; None where nothing does."""
    if sys.platform != "linux":
        return "needs Linux namespaces"
    if os.geteuid() != 0:
        return "needs root, for mounts and namespaces"
    if any(shutil.which(name) is None for name in ("unshare", "nsenter", "setpriv", "mount", "ip")):
        return "needs util-linux and iproute2"
    tried = ["unshare", "--mount", "--net", "--pid", "--fork", "ip", "link", "add", "x", "type", "bridge"]
    done = subprocess.run(tried, capture_output=True, check=False)
    return None if done.returncode == 0 else "needs the right to make namespaces and a bridge"


class Container:
    """One service that runs, or one command that was run in its place."""

    def __init__(
        self, process: subprocess.Popen[bytes], environment: dict[str, str], log: Path, user: str, depth: int
    ) -> None:
        self.process, self.log = process, log
        self.environment, self._user = environment, user
        self._depth = depth

    @property
    def pid(self) -> int:
        """Its first process, as this machine numbers it."""
        found = psutil.Process(self.process.pid)
        for _ in range(self._depth):
            found = found.children()[0]
        return found.pid

    def run(
        self, argv: Sequence[str], timeout_secs: float = 60.0, **changes: str
    ) -> subprocess.CompletedProcess[str]:
        """A further command in it, as `docker exec`, or a health check."""
        uid, gid = self._user.split(":")
        enter = [
            "nsenter",
            "--target",
            str(self.pid),
            "--mount",
            "--pid",
            "--net",
            "--uts",
            "--root",
            "--wd",
            "--",
        ]
        drop = ["/usr/bin/setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--no-new-privs"]
        return subprocess.run(
            [*enter, *drop, "--inh-caps=-all", "--bounding-set=-all", *argv],
            env=self.environment | changes,
            capture_output=True,
            text=True,
            timeout=timeout_secs,
            check=False,
        )

    def is_up(self) -> bool:
        """Whether it runs what it is for: it has a user by then."""
        with contextlib.suppress(IndexError, psutil.NoSuchProcess):
            return psutil.Process(self.pid).uids().real == int(self._user.partition(":")[0])
        return False

    def said(self) -> str:
        """All that it wrote."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def wait(self, timeout_secs: float = 60.0) -> int:
        """Its exit status."""
        return self.process.wait(timeout_secs)

    def stop(self, number: int = signal.SIGTERM, timeout_secs: float = 30.0) -> int:
        """Send its first process a signal, as `docker stop`; its exit status."""
        os.kill(self.pid, number)
        return self.wait(timeout_secs)

    def kill(self) -> None:
        """End it at once with all that it started."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        self.process.kill()
        self.process.wait()


class Machine:
    """A host of the compose file's services, with named volumes below a folder.

    Parameters
    ----------
    folder : Path
        Volumes and what containers say.
    secrets : mapping of str to Path
        The files of the compose file's secrets.
    variables : mapping of str to str
        Of the compose file, as from `.env`.
    """

    def __init__(self, folder: Path, secrets: Mapping[str, Path], variables: Mapping[str, str]) -> None:
        self.folder, self._secrets = folder, secrets
        self.compose = read_compose(variables)
        self._begun: list[Container] = []
        self._numbers = {name: 10 + i for i, name in enumerate(self.compose["services"])}
        self._up: dict[str, Container] = {}
        self._switch = subprocess.Popen(["unshare", "--net", "sh", "-c", _SWITCH], stdout=subprocess.PIPE)
        assert self._switch.stdout is not None
        assert self._switch.stdout.readline() == b"up\n"

    def start(
        self,
        name: str,
        command: Sequence[str] | None = None,
        entrypoint: Sequence[str] | None = None,
        aside: bool = False,
        **changes: str,
    ) -> Container:
        """Begin a service; or another command in its place, as `docker compose run` does.

        Parameters
        ----------
        command, entrypoint : sequence of str, optional
            In place of the service's, and of its image's; images that are not this project's have none here.
        aside : bool
            Beside the service: nobody reaches it by the service's name.
        changes : str
            Further variables of the environment.
        """
        service = self.compose["services"][name]
        number = len(self._begun)
        plan = self._plan(service, command, entrypoint, changes)
        plan["hostname"] = f"{name}{number}"
        plan["root"] = str(self.made(f"root{number}", 0, 0o755))
        beside = self._beside(name)
        own_number = self._numbers[beside or name] if not aside else 100 + number
        plan["address"] = None if beside else f"{_NETWORK}{own_number}/24"
        plan["places"]["/etc"] = (str(self._etc(plan["hostname"], own_number)), False)
        path = self.folder / f"plan{number}.json"
        path.write_text(json.dumps(plan))
        log = self.folder / f"{number}-{name}.log"
        spaces = ["--mount", "--uts", "--fork", "--kill-child", *([] if beside else ["--net", "--pid"])]
        joined = []
        if beside:
            first = self._up[beside].pid
            joined = ["nsenter", f"--net=/proc/{first}/ns/net", f"--pid=/proc/{first}/ns/pid", "--"]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*joined, "unshare", *spaces, sys.executable, str(INSIDE), str(path)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        container = Container(process, plan["environment"], log, plan["user"], 2 if beside else 1)
        self._begun.append(container)
        if not aside:
            self._up[name] = container
        if not beside:
            self._plug_in(number, process)
        return container

    def is_healthy(self, name: str, container: Container) -> bool:
        """Run a service's health check in its container, once."""
        healthcheck = self.compose["services"][name]["healthcheck"]
        kind, *argv = healthcheck["test"]
        assert kind == "CMD"
        try:
            return container.run(argv, timeout_secs=_secs(healthcheck["timeout"])).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def wait_healthy(self, name: str, container: Container, timeout_secs: float = 180.0) -> None:
        """Run the health check until it passes."""
        deadline = time.monotonic() + timeout_secs
        while True:
            assert container.process.poll() is None, f"{name} ended\n{container.said()}"
            if container.is_up() and self.is_healthy(name, container):
                return
            assert time.monotonic() < deadline, f"{name} is not healthy\n{container.said()}"
            time.sleep(0.2)

    def stop(self) -> None:
        """End everything."""
        for container in self._begun:
            container.kill()
        self._switch.kill()
        self._switch.communicate()

    def _plug_in(self, number: int, process: subprocess.Popen[bytes]) -> None:
        """Give a container that just began a cable to the others."""
        switch = _net_of(self._switch.pid)
        while (
            process.poll() is None and _net_of(process.pid).readlink() == Path("/proc/self/ns/net").readlink()
        ):
            time.sleep(0.005)
        cable = f"ip link add v{number} type veth peer name eth0 netns {process.pid}"
        command = f"{cable} && ip link set v{number} master dietcode0 up"
        subprocess.run(["nsenter", f"--net={switch}", "--", "sh", "-c", command], check=True)

    def _plan(
        self,
        service: dict[str, Any],
        command: Sequence[str] | None,
        entrypoint: Sequence[str] | None,
        changes: dict[str, str],
    ) -> dict[str, Any]:
        environment = {**service.get("environment", {}), **changes}
        if own(service):
            made = image(service["build"]["target"])
            argv = [*(entrypoint or made.entrypoint), *(command or service.get("command", made.command))]
            packages = os.pathsep.join(map(str, PACKAGES))
            environment = {**made.environment, "PYTHONPATH": packages, **environment}
            folder, owner, mode = made.folder, int(service["user"].partition(":")[0]), 0o700
        else:
            argv = [*(entrypoint or ()), *(command or service.get("command", ()))]
            folder, owner, mode = "/", _POSTGRES_USER, 0o1777
        places = {
            target: (str(self.made(volume, owner, mode)), True)
            for volume, _, target in (each.partition(":") for each in service.get("volumes", []))
        }
        for secret in service.get("secrets", []):
            places[f"/run/secrets/{secret}"] = (str(self._secrets[secret]), False)
        places["/opt/dietcode"] = (sys.prefix, False)
        below = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/alternatives")
        system = [place for place in below if Path(place).is_dir()]
        return {
            "user": service["user"],
            "folder": folder,
            "argv": argv,
            "environment": {key: str(value) for key, value in environment.items()},
            "tmpfs": [*service["tmpfs"], f"/dev/shm:mode=1777,size={service.get('shm_size', '64m')}"],
            "links": {p: str(Path(p).readlink()) for p in system if Path(p).is_symlink()},
            "read_only": [p for p in system if not Path(p).is_symlink()] + _outside_of(system),
            "places": places,
        }

    def _beside(self, name: str) -> str:
        """The service whose network and processes a service shares; empty where it has its own."""
        mode: str = self.compose["services"][name].get("network_mode", "")
        return mode.removeprefix("service:")

    def made(self, name: str, owner: int, mode: int) -> Path:
        """A folder of this machine; an old one as it is."""
        path = self.folder / name
        if not path.exists():
            path.mkdir(parents=True)
            os.chown(path, owner, owner)
            path.chmod(mode)
        return path

    def _etc(self, hostname: str, own_number: int) -> Path:
        """The files of ``/etc`` that programs ask for names of users, hosts and libraries."""
        etc = self.folder / f"etc-{hostname}"
        (etc / "alternatives").mkdir(parents=True)
        hosts = {name: self._numbers[self._beside(name) or name] for name in self._numbers} | {hostname: own}
        hosts[hostname] = own_number
        lines = [f"{_NETWORK}{number} {name}\n" for name, number in hosts.items()]
        (etc / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
        (etc / "nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files\n")
        users = {"root": 0, "postgres": _POSTGRES_USER, "dietcode": 10001}
        (etc / "passwd").write_text("".join(f"{n}:x:{i}:{i}::{HOME}:/bin/sh\n" for n, i in users.items()))
        (etc / "group").write_text("".join(f"{n}:x:{i}:\n" for n, i in users.items()))
        if Path("/etc/ld.so.cache").is_file():
            shutil.copy("/etc/ld.so.cache", etc)
        return etc


def _outside_of(system: Sequence[str]) -> list[str]:
    """Where Python and this checkout lie, as far as these are not within `system`."""
    wanted = {Path(sys.prefix), Path(sys.base_prefix), ROOT}
    return [str(p) for p in sorted(wanted) if not any(p.is_relative_to(place) for place in system)]


def _net_of(pid: int) -> Path:
    return Path(f"/proc/{pid}/ns/net")


def _secs(text: str) -> float:
    return float(text.removesuffix("s"))
