"""The tables. SQLite and PostgreSQL both take them; ``migrations/`` makes them.

Each row is written for a person at a SQL prompt as much as for the service: see the view
``dispatch_explained`` for which kernel serves a shape, and why.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    String,
    Text,
    UniqueConstraint,
    text,
    true,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from dietcode_server.store.times import UtcDateTime

_HAS_DEADLINE = text("deadline_at IS NOT NULL")
_IS_QUEUED = text("state = 'queued'")
IS_CALIBRATION = text("kind = 'calibration'")
SPEC, MODEL = "spec", "model"  # kinds of jobs
LIBRARY, BUNDLE, PART = "library", "bundle", "part"  # kinds of what is published
LOCAL = "local"  # owner of all that a server without tokens makes
BigId = BigInteger().with_variant(Integer, "sqlite")


class Base(DeclarativeBase):
    """Parent of all tables."""

    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy's own form
        datetime: UtcDateTime(),
        dict[str, Any]: JSON(),
        list[dict[str, Any]]: JSON(),
    }


class Workload(Base):
    """What is measured, by digest; of a model `spec` is its graph, recursion or program."""

    __tablename__ = "workloads"

    digest: Mapped[str] = mapped_column(String(71), primary_key=True)
    spec: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class DeviceRow(Base):
    """What is measured on; of a GPU `target` has the architecture, and `num_sms`, its multiprocessors."""

    __tablename__ = "devices"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    target: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class JobRow(Base):
    """The truth about a job.

    `kind` is spec or model; of a model `spec` is a `dietcode.graph.model_request.ModelOrder`.
    `runner` names the process that works on it: ``host/pid/start time``. It holds the job until
    `leased_until`; of a queued job both say which supervisor has reserved it. `num_lost` counts the workers
    that died since the job was submitted or resumed; a job that waits for its next attempt waits until
    `not_before`.
    """

    __tablename__ = "jobs"
    __table_args__ = (
        Index("jobs_by_age", "created_at", "id", "name", "owner", "state"),
        Index("jobs_by_state", "state", "created_at", "id"),
        Index("jobs_by_name", "name", "state", "created_at", "id"),
        Index("jobs_by_owner", "owner", "state", "created_at", "id"),
        Index("jobs_by_end", "finished_at", "id", "name", "owner", "state"),
        Index(
            "jobs_by_deadline",
            "state",
            "deadline_at",
            sqlite_where=_HAS_DEADLINE,
            postgresql_where=_HAS_DEADLINE,
        ),
    )

    id: Mapped[str] = mapped_column(String(16), primary_key=True)
    digest: Mapped[str] = mapped_column(String(71), index=True)
    idempotency_key: Mapped[str | None] = mapped_column(String(255), unique=True)
    name: Mapped[str] = mapped_column(String(128))
    kind: Mapped[str] = mapped_column(String(16), default=SPEC, server_default=SPEC)
    owner: Mapped[str] = mapped_column(String(64), default=LOCAL, server_default=LOCAL)
    workload: Mapped[str] = mapped_column(ForeignKey("workloads.digest"), index=True)
    device_id: Mapped[str | None] = mapped_column(ForeignKey("devices.id"))
    spec: Mapped[dict[str, Any]]
    target: Mapped[dict[str, Any]]
    force: Mapped[bool] = mapped_column(Boolean, default=False)
    measure: Mapped[bool] = mapped_column(Boolean, default=True, server_default=true())
    state: Mapped[str] = mapped_column(String(24))
    attempt: Mapped[int] = mapped_column(Integer, default=0)
    measured: Mapped[int] = mapped_column(Integer, default=0)
    cancel_requested: Mapped[bool] = mapped_column(Boolean, default=False)
    runner: Mapped[str | None] = mapped_column(Text)
    heartbeat_at: Mapped[datetime | None]
    leased_until: Mapped[datetime | None]
    num_lost: Mapped[int] = mapped_column(Integer, default=0, server_default=text("0"))
    not_before: Mapped[datetime | None]
    priority: Mapped[int] = mapped_column(Integer, default=0, server_default=text("0"))
    deadline_at: Mapped[datetime | None]
    progress: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    error: Mapped[str | None] = mapped_column(Text)
    num_events: Mapped[int] = mapped_column(Integer, default=0)
    library_id: Mapped[int | None] = mapped_column(ForeignKey("libraries.id"))
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    updated_at: Mapped[datetime]


Index(
    "jobs_by_turn",
    JobRow.owner,
    JobRow.priority.desc(),
    JobRow.created_at,
    JobRow.id,
    sqlite_where=_IS_QUEUED,
    postgresql_where=_IS_QUEUED,
)


class EventRow(Base):
    """One thing that happened to a job; `seq` counts from 1 within the job."""

    __tablename__ = "events"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(Integer, primary_key=True)
    at: Mapped[datetime]
    kind: Mapped[str] = mapped_column(String(16))
    state: Mapped[str | None] = mapped_column(String(24))
    message: Mapped[str] = mapped_column(Text, default="")
    progress: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    data: Mapped[dict[str, Any]]


class TuningRecord(Base):
    """One line of the records of a (workload, device), in the order in which it became known.

    A later line about the same thing takes the place of the earlier. `line` is the line of the
    records format; the other columns repeat what a person asks for. Lines of no job were imported.
    """

    __tablename__ = "tuning_records"
    __table_args__ = (
        Index("tuning_records_by_workload", "workload", "device_id", "id"),
        Index(
            "calibrations_by_device",
            "device_id",
            "id",
            sqlite_where=IS_CALIBRATION,
            postgresql_where=IS_CALIBRATION,
        ),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True, autoincrement=True)
    workload: Mapped[str] = mapped_column(ForeignKey("workloads.digest"))
    device_id: Mapped[str] = mapped_column(ForeignKey("devices.id"))
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id"), index=True)
    attempt: Mapped[int | None] = mapped_column(Integer)
    kind: Mapped[str] = mapped_column(String(16))
    micro_kernel: Mapped[str | None] = mapped_column(String(64))
    num_readings: Mapped[int | None] = mapped_column(Integer)
    error: Mapped[str | None] = mapped_column(Text)
    line: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class Blob(Base):
    """Content by digest; its bytes are in `blob_chunks`."""

    __tablename__ = "blobs"

    digest: Mapped[str] = mapped_column(String(71), primary_key=True)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime]


class BlobChunk(Base):
    """A piece of a blob: all pieces but the last have CHUNK_BYTES, so that a range finds its place."""

    __tablename__ = "blob_chunks"

    digest: Mapped[str] = mapped_column(ForeignKey("blobs.digest"), primary_key=True)
    position: Mapped[int] = mapped_column(Integer, primary_key=True)
    data: Mapped[bytes] = mapped_column(LargeBinary)


class LibraryRow(Base):
    """One immutable version of a name; a yanked one is still there for those who name it exactly.

    `kind` is library, bundle (a whole model) or part (a library that bundles share, under a name of the
    server's own).
    """

    __tablename__ = "libraries"
    __table_args__ = (
        UniqueConstraint("name", "version"),
        Index("libraries_by_age", "created_at", "id"),
        Index("libraries_by_name", "name", "created_at", "id"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True, autoincrement=True)
    name: Mapped[str] = mapped_column(String(128))
    version: Mapped[int] = mapped_column(Integer)
    kind: Mapped[str] = mapped_column(String(16), default=LIBRARY, server_default=LIBRARY)
    job_id: Mapped[str | None] = mapped_column(String(16))  # no foreign key: jobs point here
    workload: Mapped[str] = mapped_column(ForeignKey("workloads.digest"), index=True)
    device: Mapped[str] = mapped_column(Text)
    target: Mapped[dict[str, Any]]
    manifest_digest: Mapped[str] = mapped_column(ForeignKey("blobs.digest"), index=True)
    dispatch_rule: Mapped[dict[str, Any]]
    num_micro_kernels: Mapped[int] = mapped_column(Integer)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime]
    yanked_at: Mapped[datetime | None]
    records_digest: Mapped[str | None] = mapped_column(String(71))  # see `provenance.note_records`
    num_records: Mapped[int] = mapped_column(Integer, default=0, server_default=text("0"))


class ModelPartRow(Base):
    """A part of a model, in the order in which a job tunes them, and the library that it has by now.

    `state` is waiting, tuning, tuned, reused or failed; `flops` are of a call with the largest shapes,
    of all calls together.
    """

    __tablename__ = "model_parts"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    position: Mapped[int] = mapped_column(Integer, primary_key=True)
    digest: Mapped[str] = mapped_column(String(64))
    name: Mapped[str] = mapped_column(String(64))
    kind: Mapped[str] = mapped_column(String(64))
    operator: Mapped[str] = mapped_column(Text)
    calls: Mapped[int] = mapped_column(Integer)
    flops: Mapped[float] = mapped_column(Float)
    state: Mapped[str] = mapped_column(String(16))
    library_id: Mapped[int | None] = mapped_column(ForeignKey("libraries.id"))


class LibraryFile(Base):
    """A file of a library, ``manifest.json`` and an older one's runtime among them."""

    __tablename__ = "library_files"

    library_id: Mapped[int] = mapped_column(ForeignKey("libraries.id"), primary_key=True)
    path: Mapped[str] = mapped_column(String(255), primary_key=True)
    digest: Mapped[str] = mapped_column(ForeignKey("blobs.digest"), index=True)
    size_bytes: Mapped[int] = mapped_column(BigInteger)


class SignatureRow(Base):
    """What a key signed of a library: a DSSE envelope, as it is given to clients; see ``docs/signing.md``."""

    __tablename__ = "signatures"

    library_id: Mapped[int] = mapped_column(ForeignKey("libraries.id"), primary_key=True)
    keyid: Mapped[str] = mapped_column(String(71), primary_key=True)
    envelope: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime]


class MicroKernelRow(Base):
    """A micro-kernel that was considered for a library; `category` is null where it was not chosen."""

    __tablename__ = "micro_kernels"

    library_id: Mapped[int] = mapped_column(ForeignKey("libraries.id"), primary_key=True)
    micro_kernel: Mapped[str] = mapped_column(String(64), primary_key=True)
    provenance: Mapped[str] = mapped_column(Text)
    category: Mapped[int | None] = mapped_column(Integer)
    object_bytes: Mapped[int] = mapped_column(Integer)
    instances_preferring: Mapped[int] = mapped_column(Integer)
    instances_served: Mapped[int] = mapped_column(Integer)
    f_local: Mapped[dict[str, Any]]


class CategoryRow(Base):
    """A category of a library: the number that the dispatch rule gives, and its micro-kernel."""

    __tablename__ = "categories"
    __table_args__ = (
        ForeignKeyConstraint(
            ["library_id", "micro_kernel"], ["micro_kernels.library_id", "micro_kernels.micro_kernel"]
        ),
    )

    library_id: Mapped[int] = mapped_column(ForeignKey("libraries.id"), primary_key=True)
    category: Mapped[int] = mapped_column(Integer, primary_key=True)
    micro_kernel: Mapped[str] = mapped_column(String(64))


class DispatchRow(Base):
    """One instance of a library: what serves it, what is predicted of it, what would be best for it.

    `first_variable` is the value of the workload's first shape variable, for `WHERE` without JSON.
    """

    __tablename__ = "dispatch_table"
    __table_args__ = (
        ForeignKeyConstraint(["library_id", "category"], ["categories.library_id", "categories.category"]),
        Index("dispatch_by_first_variable", "library_id", "first_variable"),
    )

    library_id: Mapped[int] = mapped_column(ForeignKey("libraries.id"), primary_key=True)
    position: Mapped[int] = mapped_column(Integer, primary_key=True)
    shape_vars: Mapped[dict[str, Any]]
    first_variable: Mapped[int] = mapped_column(BigInteger)
    weight: Mapped[float] = mapped_column(Float)
    category: Mapped[int] = mapped_column(Integer)
    f_local: Mapped[float] = mapped_column(Float)
    f_spatial: Mapped[float] = mapped_column(Float)
    f_pad: Mapped[float] = mapped_column(Float)
    predicted_gflops: Mapped[float] = mapped_column(Float)
    best_micro_kernel: Mapped[str] = mapped_column(String(64))
    best_predicted_gflops: Mapped[float] = mapped_column(Float)


class ComparisonRow(Base):
    """What a library reached on one of its instances when it was built, beside the vendor's kernels.

    `position` is that of the instance in `dispatch_table`. Of `vendors`, GFLOP/s by path, `vendor` is the
    fastest; without one the library was measured alone. `company_gflops` and `vendor_company_gflops` are of
    calls that alternated with the other's. `max_rel_error` is the largest error against float64, a fraction
    of the output's largest value. `spread` is the largest median of repeats over their
    fastest. `disturbed` says why the rates must not become figures; they may without. `peak_gflops` is what
    the cores gave at most then, of multiply-adds, and `roof_gflops` the roofline at the instance.
    """

    __tablename__ = "comparisons"
    __table_args__ = (
        ForeignKeyConstraint(
            ["library_id", "position"], ["dispatch_table.library_id", "dispatch_table.position"]
        ),
    )

    library_id: Mapped[int] = mapped_column(ForeignKey("libraries.id"), primary_key=True)
    position: Mapped[int] = mapped_column(Integer, primary_key=True)
    measured_gflops: Mapped[float] = mapped_column(Float)
    vendor: Mapped[str | None] = mapped_column(String(64))
    vendor_gflops: Mapped[float | None] = mapped_column(Float)
    vendors: Mapped[dict[str, Any]]
    company_gflops: Mapped[float | None] = mapped_column(Float)
    vendor_company_gflops: Mapped[float | None] = mapped_column(Float)
    max_rel_error: Mapped[float] = mapped_column(Float)
    measured_at: Mapped[datetime]
    spread: Mapped[float | None] = mapped_column(Float)
    disturbed: Mapped[str | None] = mapped_column(Text)
    peak_gflops: Mapped[float | None] = mapped_column(Float)
    roof_gflops: Mapped[float | None] = mapped_column(Float)


class ListingRow(Base):
    """The generated code of a micro-kernel, for people: text in UTF-8, compressed by zlib.

    `kind` is tir (TVMScript) or cuda.
    """

    __tablename__ = "listings"
    __table_args__ = (
        ForeignKeyConstraint(
            ["library_id", "micro_kernel"], ["micro_kernels.library_id", "micro_kernels.micro_kernel"]
        ),
    )

    library_id: Mapped[int] = mapped_column(ForeignKey("libraries.id"), primary_key=True)
    micro_kernel: Mapped[str] = mapped_column(String(64), primary_key=True)
    kind: Mapped[str] = mapped_column(String(16))
    text: Mapped[bytes] = mapped_column(LargeBinary)


class OwnerRow(Base):
    """Who submits: when a job of theirs last began, and the bytes of the specs of their jobs."""

    __tablename__ = "owners"

    owner: Mapped[str] = mapped_column(String(64), primary_key=True)
    served_at: Mapped[datetime | None]
    spec_bytes: Mapped[int] = mapped_column(BigInteger, default=0, server_default=text("0"))


class NameRow(Base):
    """Who publishes under a name: the owner of the first version.

    `sequence` grows with each version that is published, yanked or taken back, and never falls; it is no less
    than any version. What is signed of the latest version names it, so that clients tell newer from older.
    """

    __tablename__ = "names"

    name: Mapped[str] = mapped_column(String(128), primary_key=True)
    owner: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime]
    sequence: Mapped[int] = mapped_column(Integer, default=0, server_default=text("0"))


class TokenRow(Base):
    """What a client shows to be let in. Only its SHA-256 is kept; `id` names it to people.

    `owner` is the name that it was made for: jobs and names belong to it, so that a new token of the same
    name takes the place of an old one.
    """

    __tablename__ = "tokens"

    id: Mapped[str] = mapped_column(String(8), primary_key=True)
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    owner: Mapped[str] = mapped_column(String(64))
    scopes: Mapped[str] = mapped_column(String(64))  # separated by spaces
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]


class RunnerRow(Base):
    """A server or worker that runs jobs, for as long as it says so: see `dietcode_server.store.runners`.

    `name` is what people call it, `process` is ``host/pid/start time``. `devices` are what it can measure:
    objects with `id`, `name` (of the processor or GPU), `target`, `slot`, and whether the runner
    `builds_for_gpus`.
    """

    __tablename__ = "runners"

    name: Mapped[str] = mapped_column(String(255), primary_key=True)
    process: Mapped[str] = mapped_column(Text)
    engine: Mapped[str] = mapped_column(String(16))
    version: Mapped[str] = mapped_column(String(32))
    devices: Mapped[list[dict[str, Any]]]
    job_id: Mapped[str | None] = mapped_column(String(16))
    started_at: Mapped[datetime]
    seen_at: Mapped[datetime]
    leased_until: Mapped[datetime]


class SlotRow(Base):
    """A place to measure that is taken: one job measures there at a time; without a row it is free.

    `runner` is the process that holds it, as in `JobRow`.
    """

    __tablename__ = "slots"

    name: Mapped[str] = mapped_column(String(255), primary_key=True)
    runner: Mapped[str] = mapped_column(Text)
    job_id: Mapped[str] = mapped_column(String(16))  # no foreign key: jobs may be deleted first
    taken_at: Mapped[datetime]
    leased_until: Mapped[datetime]


DISPATCH_EXPLAINED = """
CREATE VIEW dispatch_explained AS
SELECT l.name AS library, l.version, d.shape_vars, d.first_variable, d.category, c.micro_kernel,
       d.f_local, d.f_spatial, d.f_pad, d.predicted_gflops,
       d.best_micro_kernel, d.best_predicted_gflops,
       1 - d.predicted_gflops / d.best_predicted_gflops AS predicted_loss,
       m.object_bytes, m.provenance
FROM dispatch_table d
JOIN libraries l ON l.id = d.library_id
JOIN categories c ON c.library_id = d.library_id AND c.category = d.category
JOIN micro_kernels m ON m.library_id = d.library_id AND m.micro_kernel = c.micro_kernel
"""
