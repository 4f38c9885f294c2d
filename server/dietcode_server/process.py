"""What `dietcode serve` and `dietcode worker` have in common: who runs jobs, and what confines them."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from dietcode.confinement import possible, readable_folders
from dietcode.errors import RequestError
from dietcode_server.engine.announcer import Announcer, announced
from dietcode_server.engine.housekeeping import Housekeeper
from dietcode_server.engine.placement import Placement
from dietcode_server.engine.processes import LocalEngine
from dietcode_server.engine.rpc_targets import targets_of
from dietcode_server.engine.supervisor import Supervisor
from dietcode_server.engine.targets import Targets
from dietcode_server.limits import SizeLimits
from dietcode_server.settings import Settings
from dietcode_server.starting import LOGS, WORK
from dietcode_server.store import tokens
from dietcode_server.store.database import Database
from dietcode_server.store.retention import Policy


@dataclass(frozen=True)
class Crew:
    """The threads of one process that run jobs, look after them, and keep house.

    Attributes
    ----------
    announcer : Announcer or None
        None where no jobs are run.
    """

    supervisor: Supervisor
    announcer: Announcer | None
    housekeeper: Housekeeper

    def start(self) -> None:
        """Begin."""
        self.supervisor.start()
        if self.announcer is not None:
            self.announcer.start()
        self.housekeeper.start()

    def stop(self) -> None:
        """Hand the running job back, and take leave."""
        self.housekeeper.stop()
        self.supervisor.stop()
        if self.announcer is not None:
            self.announcer.stop()


def unconfined(settings: Settings, *, with_paths: bool = True) -> tuple[str, ...]:
    """Return what jobs that run here are not confined from, a line each.

    Parameters
    ----------
    with_paths : bool
        False for strangers, whom the server's folders do not concern.
    """
    return (*possible().missing(), *_readable(settings, with_paths)) if settings.jobs else ()


def _readable(settings: Settings, with_paths: bool = True) -> list[str]:
    """Return a line for each secret of the settings that lies where all that builds may read."""
    secrets = {
        "the data folder": settings.data_dir,
        "DIETCODE_SERVE_SIGNING_KEY": settings.signing_key,
        "DIETCODE_SERVE_DATABASE_PASSWORD_FILE": settings.database_password_file,
    }
    found = []
    for name, path in secrets.items():
        if path is not None:
            holding = [folder for folder in readable_folders() if path.resolve().is_relative_to(folder)]
            if holding:
                where = (
                    f"{name}, {path}, lies below {holding[0]}" if with_paths else f"{name} lies in a folder"
                )
                found.append(f"{where}, which what builds and measures may read: it belongs elsewhere")
    return found


def check_confined(settings: Settings, database: Database) -> None:
    """Refuse to run the jobs of those who come with a token where not all of them is confined.

    Raises
    ------
    RequestError
        The kernel cannot confine them, there are tokens, and no setting allows it.
    """
    is_enough = not settings.jobs or (possible().is_enough and not _readable(settings))
    if is_enough or settings.unconfined_jobs:
        return
    missing = unconfined(settings)
    with database.read() as session:
        if not tokens.any_live(session):
            return
    raise RequestError(
        f"jobs cannot be confined on this machine: {'; '.join(missing)}; run them elsewhere "
        "(`dietcode serve --no-jobs`, `dietcode worker`), or set DIETCODE_SERVE_UNCONFINED_JOBS=1"
    )


def make_crew(
    database: Database,
    settings: Settings,
    targets: Targets,
    *,
    runs_jobs: bool = True,
    name: str | None = None,
    only_one: bool = False,
) -> Crew:
    """Put the parts together; nothing begins yet.

    Parameters
    ----------
    targets : Targets
        Of this machine; another engine has its own.
    runs_jobs : bool
        False: jobs are looked after, and run elsewhere.
    name : str or None
        What the runner is announced as; by default its process.
    only_one : bool
        Take one job at most.
    """
    spec = settings.engine_spec
    slot = settings.slot or socket.gethostname()
    if spec.kind != "local":
        targets = targets_of(spec)
    engine = LocalEngine(
        settings.database,
        settings.data_dir / WORK,
        settings.data_dir / LOGS,
        settings.heartbeat_secs,
        settings.log_format,
        lease_secs=settings.lost_after_secs,
        slot=slot if spec.kind == "local" else None,  # other engines know it when they have a device
        spec=lambda: targets.engine,
        compare=settings.compare,
        limits=SizeLimits.of(settings),
    )
    supervisor = Supervisor(
        database,
        engine if runs_jobs else None,
        settings.max_attempts,
        settings.retry_secs,
        Placement(targets),
        patience_secs=settings.lost_after_secs,
        only_one=only_one,
    )
    announcer = None
    if runs_jobs:
        announcer = Announcer(
            database,
            lambda: announced(targets, slot),
            supervisor,
            name=name,
            engine=spec.kind,
            interval_secs=settings.heartbeat_secs,
            lease_secs=settings.lost_after_secs,
        )
    policy = Policy(
        jobs_days=settings.keep_jobs_days,
        jobs_at_most=settings.keep_jobs_at_most,
        records_days=settings.keep_records_days,
    )
    housekeeper = Housekeeper(database, policy, settings.data_dir / WORK, settings.data_dir / LOGS)
    return Crew(supervisor, announcer, housekeeper)
