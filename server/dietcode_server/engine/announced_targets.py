"""What a submitted spec is for, where servers and workers on several machines share a queue.

A server that measures takes what its own machine can. What it cannot, and all of a server that runs no jobs,
goes to a device that a live runner announced.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy.orm import Session

from dietcode.errors import SpecError
from dietcode.workload.spec import TargetSpec
from dietcode_server.engine.targets import HasTarget, Resolved, Targets
from dietcode_server.store import architectures, runners
from dietcode_server.store.database import Database


class AnnouncedTargets(Targets):
    """Targets resolved against this machine, and against those of the runners that are there.

    Parameters
    ----------
    measures_here : bool
        Whether this server runs jobs itself.
    """

    def __init__(self, database: Database, measures_here: bool) -> None:
        super().__init__()
        self._database, self._measures_here = database, measures_here

    def resolve(self, asked: HasTarget) -> Resolved:
        """Return this machine first, then the one device that runners announce for it.

        A target that names an architecture has no device yet: `with_device` finds one, by the job's workload.
        """
        own = self.on(asked.target)
        if architectures.names_one(own.target):
            return replace(own, device=None, runnable=False)
        if self._measures_here and own.runnable:
            return own
        found = {one.device[0]: one for one in self._elsewhere(asked.target, own) if one.device is not None}
        if found:
            return _choose(asked.target, list(found.values()))
        # Until a runner takes it from a server that measures nothing, its target is what the spec says.
        return own if self._measures_here else Resolved(_plain(asked.target), None, False)

    def again(self, asked: HasTarget, target: dict[str, Any]) -> Resolved:
        """Return this machine, or any runner's device for which the job's target is the same."""
        own = self.on(asked.target)
        if architectures.names_one(own.target):
            return Resolved(target, None, False)
        if self._measures_here and own.runnable and own.target == target:
            return own
        for found in self._elsewhere(asked.target, own):
            if found.target == target:
                return found
        return Resolved(target, None, False)

    def _elsewhere(self, given: TargetSpec, own: Resolved) -> list[Resolved]:
        """Return what it stands for at the devices of live runners that can measure it.

        Parameters
        ----------
        own : Resolved
            The answer for this machine, where a runner may be as well.
        """
        with self._database.read() as session:
            hosts = [one.host for one in runners.devices(session) if not architectures.names_one(one.target)]
        others = [host for host in hosts if host != own.host]
        found = [own] if len(others) < len(hosts) else []
        answers = self.at(given, others) if others else []
        found += [one for one in answers if not isinstance(one, str)]
        return [one for one in found if one.runnable]


def with_device(session: Session, workload: str, found: Resolved, *, force: bool, measure: bool) -> Resolved:
    """Return what a job for an architecture is measured on now; any other target as it was found.

    Parameters
    ----------
    workload : str
        Digest of the workload.
    force, measure : bool
        As of the job.
    """
    if not architectures.names_one(found.target):
        return found
    device, runnable = architectures.find_device(
        session, workload, found.target, force=force, measure=measure
    )
    return replace(found, device=device, runnable=runnable)


def _choose(given: TargetSpec, found: list[Resolved]) -> Resolved:
    """The device that a target names; machines that it cannot tell apart are taken as they come.

    Raises
    ------
    SpecError
        It names several that it could tell apart.
    """
    exact = [one for one in found if one.host.get("features") == one.target.get("features")] or found
    choices = {(str(one.target["mcpu"]), int(one.target["num_cores"])): one for one in reversed(exact)}
    if len(choices) > 1:
        named = ", ".join(sorted(_named(one.target) for one in choices.values()))
        raise SpecError("target", f"given {_text(given)}; allowed: one that runners announce: {named}")
    return next(iter(choices.values()))


def _named(target: dict[str, Any]) -> str:
    """The target as a spec names it: features that a virtual machine hides are switched off there."""
    hidden = f", mattr: [{', '.join(target['mattr'])}]" if target.get("mattr") else ""
    return f"{{kind: llvm, mcpu: {target['mcpu']}, num_cores: {target['num_cores']}{hidden}}}"


def _text(given: TargetSpec) -> str:
    return "{" + ", ".join(f"{name}: {value}" for name, value in _plain(given).items()) + "}"


def _plain(given: TargetSpec) -> dict[str, Any]:
    plain = given.to_json()
    return {"tag": plain} if isinstance(plain, str) else plain
