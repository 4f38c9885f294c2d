"""Indexes in the order of the lists, for what is deleted, and how often what a name stands for has changed.

Revision ID: 0007
Revises: 0006
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

# Each has the columns of a filter first, then those that its page is ordered by.
MADE = {
    "jobs_by_state": ("jobs", ["state", "created_at", "id"]),
    "jobs_by_name": ("jobs", ["name", "state", "created_at", "id"]),
    "jobs_by_owner": ("jobs", ["owner", "state", "created_at", "id"]),
    "jobs_by_end": ("jobs", ["finished_at", "id"]),
    "libraries_by_name": ("libraries", ["name", "created_at", "id"]),
    # A row is deleted where nothing refers to it: without these, each deletion reads whole tables.
    "ix_jobs_workload": ("jobs", ["workload"]),
    "ix_libraries_workload": ("libraries", ["workload"]),
    "ix_libraries_manifest_digest": ("libraries", ["manifest_digest"]),
    "ix_tuning_records_job_id": ("tuning_records", ["job_id"]),
}
HAS_DEADLINE = sa.text("deadline_at IS NOT NULL")
REPLACED = {
    "jobs_by_state": ("jobs", ["state", "created_at"]),
    "jobs_by_owner": ("jobs", ["owner", "state"]),
    "ix_jobs_name": ("jobs", ["name"]),
}
# No less than the newest version, which clients have seen.
SEQUENCES = (
    "UPDATE names SET sequence = "
    "COALESCE((SELECT MAX(version) FROM libraries WHERE libraries.name = names.name), 0)"
)


def upgrade() -> None:
    """Replace indexes that lists outgrew, add others, and count what names stand for."""
    for name, (table, _) in REPLACED.items():
        op.drop_index(name, table)
    for name, (table, columns) in MADE.items():
        op.create_index(name, table, columns)
    op.create_index(
        "jobs_by_deadline",
        "jobs",
        ["state", "deadline_at"],
        sqlite_where=HAS_DEADLINE,
        postgresql_where=HAS_DEADLINE,
    )
    op.add_column("names", sa.Column("sequence", sa.Integer(), nullable=False, server_default=sa.text("0")))
    op.execute(SEQUENCES)


def downgrade() -> None:
    """Go back to the older indexes."""
    op.drop_column("names", "sequence")
    op.drop_index("jobs_by_deadline", "jobs")
    for name, (table, _) in MADE.items():
        op.drop_index(name, table)
    for name, (table, columns) in REPLACED.items():
        op.create_index(name, table, columns)
