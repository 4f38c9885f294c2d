"""What libraries reached beside the vendor's kernels, their generated code, and indexes of more lists.

Revision ID: 0008
Revises: 0007
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
UTC_TIME = sa.DateTime(timezone=True)
IS_CALIBRATION = sa.text("kind = 'calibration'")
# A page is read from the index alone until its rows are known, whatever it is filtered by.
FILTERED = ["name", "owner", "state"]
WIDENED = {"jobs_by_age": ["created_at", "id"], "jobs_by_end": ["finished_at", "id"]}


def upgrade() -> None:
    """Add ``comparisons`` and ``listings``, both empty: older libraries have neither."""
    op.create_table(
        "comparisons",
        sa.Column("library_id", BIG_ID, nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("measured_gflops", sa.Float(), nullable=False),
        sa.Column("vendor", sa.String(length=64), nullable=True),
        sa.Column("vendor_gflops", sa.Float(), nullable=True),
        sa.Column("vendors", sa.JSON(), nullable=False),
        sa.Column("max_rel_error", sa.Float(), nullable=False),
        sa.Column("measured_at", UTC_TIME, nullable=False),
        sa.ForeignKeyConstraint(["library_id"], ["libraries.id"]),
        sa.ForeignKeyConstraint(
            ["library_id", "position"], ["dispatch_table.library_id", "dispatch_table.position"]
        ),
        sa.PrimaryKeyConstraint("library_id", "position"),
    )
    op.create_table(
        "listings",
        sa.Column("library_id", BIG_ID, nullable=False),
        sa.Column("micro_kernel", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("text", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["library_id"], ["libraries.id"]),
        sa.ForeignKeyConstraint(
            ["library_id", "micro_kernel"], ["micro_kernels.library_id", "micro_kernels.micro_kernel"]
        ),
        sa.PrimaryKeyConstraint("library_id", "micro_kernel"),
    )
    for name, columns in WIDENED.items():
        op.drop_index(name, "jobs")
        op.create_index(name, "jobs", [*columns, *FILTERED])
    op.create_index(
        "calibrations_by_device",
        "tuning_records",
        ["device_id", "id"],
        sqlite_where=IS_CALIBRATION,
        postgresql_where=IS_CALIBRATION,
    )


def downgrade() -> None:
    """Forget them; a library measures and shows its code again once it is made again."""
    op.drop_index("calibrations_by_device", "tuning_records")
    for name, columns in WIDENED.items():
        op.drop_index(name, "jobs")
        op.create_index(name, "jobs", columns)
    op.drop_table("listings")
    op.drop_table("comparisons")
