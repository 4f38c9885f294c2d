"""Leases, attempts, priorities and deadlines of jobs.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

UTC_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Add them; the lease of a job that runs ends with its last heartbeat."""
    op.add_column("jobs", sa.Column("leased_until", UTC_TIME, nullable=True))
    op.add_column("jobs", sa.Column("num_lost", sa.Integer(), nullable=False, server_default=sa.text("0")))
    op.add_column("jobs", sa.Column("not_before", UTC_TIME, nullable=True))
    op.add_column("jobs", sa.Column("priority", sa.Integer(), nullable=False, server_default=sa.text("0")))
    op.add_column("jobs", sa.Column("deadline_at", UTC_TIME, nullable=True))
    op.execute("UPDATE jobs SET leased_until = heartbeat_at WHERE state = 'running'")


def downgrade() -> None:
    """Forget them."""
    for column in ("deadline_at", "priority", "not_before", "num_lost", "leased_until"):
        op.drop_column("jobs", column)
