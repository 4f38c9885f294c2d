"""Jobs, tuning records and libraries.

Revision ID: 0001
Revises:
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
UTC_TIME = sa.DateTime(timezone=True)
TABLES = (  # a table comes after those that it refers to
    "workloads",
    "devices",
    "blobs",
    "blob_chunks",
    "libraries",
    "library_files",
    "jobs",
    "events",
    "tuning_records",
    "micro_kernels",
    "categories",
    "dispatch_table",
)
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


def upgrade() -> None:
    """Make everything."""
    _create_subjects()
    _create_libraries()
    _create_jobs()
    _create_dispatch()
    op.execute(DISPATCH_EXPLAINED)


def downgrade() -> None:
    """Drop everything."""
    op.execute("DROP VIEW dispatch_explained")
    for table in reversed(TABLES):
        op.drop_table(table)


def _create_subjects() -> None:
    """What jobs are about, and content by digest."""
    op.create_table(
        "workloads",
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("created_at", UTC_TIME, nullable=False),
        sa.PrimaryKeyConstraint("digest"),
    )
    op.create_table(
        "devices",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("target", sa.JSON(), nullable=False),
        sa.Column("created_at", UTC_TIME, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "blobs",
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", UTC_TIME, nullable=False),
        sa.PrimaryKeyConstraint("digest"),
    )
    op.create_table(
        "blob_chunks",
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["digest"], ["blobs.digest"]),
        sa.PrimaryKeyConstraint("digest", "position"),
    )


def _create_libraries() -> None:
    """Published versions and their files."""
    op.create_table(
        "libraries",
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.String(length=16), nullable=True),
        sa.Column("workload", sa.String(length=71), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("target", sa.JSON(), nullable=False),
        sa.Column("manifest_digest", sa.String(length=71), nullable=False),
        sa.Column("dispatch_rule", sa.JSON(), nullable=False),
        sa.Column("num_micro_kernels", sa.Integer(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", UTC_TIME, nullable=False),
        sa.ForeignKeyConstraint(["manifest_digest"], ["blobs.digest"]),
        sa.ForeignKeyConstraint(["workload"], ["workloads.digest"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name", "version"),
    )
    op.create_index("libraries_by_age", "libraries", ["created_at", "id"])
    op.create_table(
        "library_files",
        sa.Column("library_id", BIG_ID, nullable=False),
        sa.Column("path", sa.String(length=255), nullable=False),
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["digest"], ["blobs.digest"]),
        sa.ForeignKeyConstraint(["library_id"], ["libraries.id"]),
        sa.PrimaryKeyConstraint("library_id", "path"),
    )
    op.create_index("ix_library_files_digest", "library_files", ["digest"])


def _create_jobs() -> None:
    """Jobs, what happened to them, what they measured."""
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.Column("idempotency_key", sa.String(length=255), nullable=True),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("workload", sa.String(length=71), nullable=False),
        sa.Column("device_id", sa.String(length=64), nullable=True),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("target", sa.JSON(), nullable=False),
        sa.Column("force", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(length=24), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("measured", sa.Integer(), nullable=False),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("runner", sa.Text(), nullable=True),
        sa.Column("heartbeat_at", UTC_TIME, nullable=True),
        sa.Column("progress", sa.JSON(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("num_events", sa.Integer(), nullable=False),
        sa.Column("library_id", BIG_ID, nullable=True),
        sa.Column("created_at", UTC_TIME, nullable=False),
        sa.Column("started_at", UTC_TIME, nullable=True),
        sa.Column("finished_at", UTC_TIME, nullable=True),
        sa.Column("updated_at", UTC_TIME, nullable=False),
        sa.ForeignKeyConstraint(["device_id"], ["devices.id"]),
        sa.ForeignKeyConstraint(["library_id"], ["libraries.id"]),
        sa.ForeignKeyConstraint(["workload"], ["workloads.digest"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("idempotency_key"),
    )
    op.create_index("ix_jobs_digest", "jobs", ["digest"])
    op.create_index("ix_jobs_name", "jobs", ["name"])
    op.create_index("jobs_by_age", "jobs", ["created_at", "id"])
    op.create_index("jobs_by_state", "jobs", ["state", "created_at"])
    op.create_table(
        "events",
        sa.Column("job_id", sa.String(length=16), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("at", UTC_TIME, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("state", sa.String(length=24), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("progress", sa.JSON(), nullable=True),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        sa.PrimaryKeyConstraint("job_id", "seq"),
    )
    op.create_table(
        "tuning_records",
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("workload", sa.String(length=71), nullable=False),
        sa.Column("device_id", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=16), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=True),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("micro_kernel", sa.String(length=64), nullable=True),
        sa.Column("num_readings", sa.Integer(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("line", sa.JSON(), nullable=False),
        sa.Column("created_at", UTC_TIME, nullable=False),
        sa.ForeignKeyConstraint(["device_id"], ["devices.id"]),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        sa.ForeignKeyConstraint(["workload"], ["workloads.digest"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("tuning_records_by_workload", "tuning_records", ["workload", "device_id", "id"])


def _create_dispatch() -> None:
    """Which micro-kernel serves which instance of a library, and why."""
    op.create_table(
        "micro_kernels",
        sa.Column("library_id", BIG_ID, nullable=False),
        sa.Column("micro_kernel", sa.String(length=64), nullable=False),
        sa.Column("provenance", sa.Text(), nullable=False),
        sa.Column("category", sa.Integer(), nullable=True),
        sa.Column("object_bytes", sa.Integer(), nullable=False),
        sa.Column("instances_preferring", sa.Integer(), nullable=False),
        sa.Column("instances_served", sa.Integer(), nullable=False),
        sa.Column("f_local", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["library_id"], ["libraries.id"]),
        sa.PrimaryKeyConstraint("library_id", "micro_kernel"),
    )
    op.create_table(
        "categories",
        sa.Column("library_id", BIG_ID, nullable=False),
        sa.Column("category", sa.Integer(), nullable=False),
        sa.Column("micro_kernel", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["library_id", "micro_kernel"], ["micro_kernels.library_id", "micro_kernels.micro_kernel"]
        ),
        sa.ForeignKeyConstraint(["library_id"], ["libraries.id"]),
        sa.PrimaryKeyConstraint("library_id", "category"),
    )
    op.create_table(
        "dispatch_table",
        sa.Column("library_id", BIG_ID, nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("shape_vars", sa.JSON(), nullable=False),
        sa.Column("first_variable", sa.BigInteger(), nullable=False),
        sa.Column("weight", sa.Float(), nullable=False),
        sa.Column("category", sa.Integer(), nullable=False),
        sa.Column("f_local", sa.Float(), nullable=False),
        sa.Column("f_spatial", sa.Float(), nullable=False),
        sa.Column("f_pad", sa.Float(), nullable=False),
        sa.Column("predicted_gflops", sa.Float(), nullable=False),
        sa.Column("best_micro_kernel", sa.String(length=64), nullable=False),
        sa.Column("best_predicted_gflops", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["library_id", "category"], ["categories.library_id", "categories.category"]),
        sa.ForeignKeyConstraint(["library_id"], ["libraries.id"]),
        sa.PrimaryKeyConstraint("library_id", "position"),
    )
    op.create_index("dispatch_by_first_variable", "dispatch_table", ["library_id", "first_variable"])
