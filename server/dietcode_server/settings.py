"""Everything that can be set about the server, in one table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import platformdirs
from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from dietcode.bench.confined import Compare
from dietcode.errors import RequestError
from dietcode.measure.engine_spec import EngineSpec, Kind
from dietcode.workload.text import one_line
from dietcode_server.logs import Format

ENV_PREFIX = "DIETCODE_SERVE_"
DATABASE_NAME = "dietcode.db"


def _default_data_dir() -> Path:
    return Path(platformdirs.user_data_dir("dietcode"))


class Settings(BaseSettings):
    """The server's settings; each is also read from the environment, as in ``DIETCODE_SERVE_PORT``."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_ignore_empty=True, frozen=True, extra="forbid"
    )

    host: str = Field(
        "127.0.0.1", description="Address to listen on; one that others can reach needs tokens."
    )
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    data_dir: Path = Field(
        default_factory=_default_data_dir,
        description="Folder of the database and of what running jobs need; made where it is missing.",
    )
    database_url: str = Field(
        "", description="SQLAlchemy URL of the database. [default: SQLite, dietcode.db in data_dir]"
    )
    database_password_file: Path | None = Field(
        None,
        description="File that holds the password of the user in database_url, which then needs none.",
    )
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="Names, besides the loopback ones and host, by which clients may call the server "
        "(Host header, without port); separated by commas in the environment.",
    )
    max_body_bytes: int = Field(1 << 20, ge=1, description="Largest body of a request, in bytes.")
    keep_jobs_days: float = Field(
        0.0,
        ge=0,
        description="Jobs that ended so many days ago and published nothing are deleted; 0: never.",
    )
    keep_jobs_at_most: int = Field(
        0,
        ge=0,
        description="Of jobs that ended and published nothing so many are kept, the last ones; 0: all.",
    )
    keep_records_days: float = Field(
        0.0,
        ge=0,
        description="Measurements that no job and no library refers to are deleted so many days after the "
        "last of them; 0: never.",
    )
    jobs: bool = Field(
        True, description="Whether this server runs jobs itself; false: API and dashboard only, for workers."
    )
    slot: str = Field(
        "",
        max_length=200,
        description="Where jobs of this process measure, one at a time among all that say the same; "
        "containers on one machine need one name. [default: the host name]",
    )
    unconfined_jobs: bool = Field(
        False,
        description="Run jobs for others also where this machine's kernel cannot confine all of what is "
        "built and measured: see docs/security.md.",
    )
    log_format: Format = Field("text", description="What is logged: text for people, or json.")
    max_rank: int = Field(6, ge=1, description="Most axes of a tensor.")
    max_extent: int = Field(1 << 24, ge=1, description="Largest extent of an axis.")
    max_flops: int = Field(10**13, ge=1, description="Most FLOPs of a workload's largest instance.")
    max_tensor_bytes: int = Field(
        4 << 30, ge=1, description="Most bytes of all tensors of the largest instance together."
    )
    max_trials: int = Field(10_000, ge=1, description="Largest budget of trials.")
    max_seconds: int = Field(86_400, ge=1, description="Largest budget of seconds.")
    max_jobs_per_owner: int = Field(
        100, ge=1, description="Most jobs of one owner that wait or run; an admin has no such limit."
    )
    max_submissions_per_minute: int = Field(
        600, ge=1, description="Most submissions of one owner within a minute; an admin has no such limit."
    )
    max_checks_per_minute: int = Field(
        600,
        ge=1,
        description="Most texts of one owner that the submit page checks within a minute; "
        "an admin has no such limit.",
    )
    max_bytes_per_owner: int = Field(
        4 << 30,
        ge=1,
        description="Most bytes of one owner's specs, graphs and libraries; an admin has no such limit.",
    )
    max_streams_per_owner: int = Field(
        100,
        ge=1,
        description="Most event streams that one owner has open; a server without tokens has no limit.",
    )
    max_wrong_tokens_per_minute: int = Field(
        60, ge=1, description="Most requests with a wrong token from one address within a minute."
    )
    slow_peer_secs: float = Field(
        30.0,
        gt=0,
        description="A connection is closed whose request has not arrived whole after so many seconds, or "
        "whose client takes nothing of an answer for so long.",
    )
    heartbeat_secs: float = Field(2.0, gt=0, description="How often a worker says that it lives, in seconds.")
    lost_after_secs: float = Field(
        15.0,
        gt=0,
        description="Length of a worker's lease, in seconds: silent for so long, it loses its job.",
    )
    max_attempts: int = Field(
        3, ge=1, description="After so many workers died at it, a job is interrupted, not queued again."
    )
    retry_secs: float = Field(
        5.0,
        ge=0,
        description="A job whose worker died waits for so long, in seconds; twice as long the next time.",
    )
    compare: Compare = Field(
        "auto",
        description="The vendor's kernels that each library is measured beside before it is published, for "
        "about ten seconds: auto (torch where it is installed, else numpy), numpy, torch or none.",
    )

    engine: Kind = Field(
        "local", description="Where jobs build and measure: local, ray or rpc; see docs/engines.md."
    )
    ray_address: str = Field("", description="HOST:PORT of the Ray cluster's head, for the engine ray.")
    rpc_tracker: str = Field("", description="HOST:PORT of TVM's RPC tracker, for the engine rpc.")
    rpc_key: str = Field("", description="The key under which the device registers at the tracker.")

    head_lasts_secs: float = Field(
        86_400.0,
        ge=60,
        description="For so long clients take what was signed about the latest version of a name; then an "
        "older answer that somebody kept is refused.",
    )
    signing_key: Path | None = Field(
        None,
        description="File of the private key that signs libraries: ed25519, PEM. "
        "[default: one that the server makes, in keys/ of data_dir]",
    )

    @field_validator("data_dir")
    @classmethod
    def _absolute(cls, given: Path) -> Path:
        if "?" in str(given):  # SQLAlchemy 2.0 would take the rest for options
            raise ValueError("its path has a question mark; choose another folder")
        return given.expanduser().absolute()

    @field_validator("allowed_hosts", mode="before")
    @classmethod
    def _split_hosts(cls, given: object) -> object:
        if isinstance(given, str):
            return tuple(name.strip() for name in given.split(",") if name.strip())
        return given

    @model_validator(mode="after")
    def _check_engine(self) -> Settings:
        try:
            _ = self.engine_spec
        except RequestError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def engine_spec(self) -> EngineSpec:
        """The engine of this server's jobs."""
        return EngineSpec(
            self.engine, self.ray_address or None, self.rpc_tracker or None, self.rpc_key or None
        )

    @property
    def database(self) -> str:
        """The URL of the database that is used, with its password.

        Raises
        ------
        RequestError
            The password's file cannot be read, or is not wanted.
        """
        from sqlalchemy import URL

        if self.database_password_file is not None:
            return _with_password(self.database_url, self.database_password_file)
        if self.database_url:
            return self.database_url
        url = URL.create("sqlite", database=str(self.data_dir / DATABASE_NAME))
        return url.render_as_string(hide_password=False)


def _with_password(url: str, file: Path) -> str:
    """A database URL with the password that a file holds, in one line."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    name = f"{ENV_PREFIX}DATABASE_PASSWORD_FILE"
    try:
        parsed = make_url(url)
    except ArgumentError:
        url_name = f"{ENV_PREFIX}DATABASE_URL"
        raise RequestError(f"{name}: needs {url_name}, as postgresql+psycopg://USER@HOST/NAME") from None
    if parsed.password is not None or parsed.username is None:
        raise RequestError(f"{name}: the database URL is to have a user, and no password beside this file's")
    try:
        password = file.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RequestError(f"{name}: {file}: cannot be read: {reason}") from None
    if not password or "\n" in password:
        raise RequestError(f"{name}: {file}: holds no password; it is to be one line")
    return parsed.set(password=password).render_as_string(hide_password=False)


def load_settings(**options: Any) -> Settings:
    """Settings from options, then the environment, then defaults; an option that is None is not given.

    Raises
    ------
    RequestError
        A setting is refused; names it and says what is allowed.
    """
    try:
        return Settings(**{name: value for name, value in options.items() if value is not None})
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        name = str(detail["loc"][0]) if detail["loc"] else "settings"
        option = f"--{name.replace('_', '-')}" if options.get(name) is not None else ENV_PREFIX + name.upper()
        raise RequestError(f"{option}: {one_line(str(detail['msg']))}") from None
