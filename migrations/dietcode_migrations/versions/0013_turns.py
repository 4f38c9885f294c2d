"""The first job of each owner is found without a look at the others.

Revision ID: 0013
Revises: 0012
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

IS_QUEUED = sa.text("state = 'queued'")


def upgrade() -> None:
    """Make the index of what waits."""
    op.create_index(
        "jobs_by_turn",
        "jobs",
        ["owner", sa.text("priority DESC"), "created_at", "id"],
        sqlite_where=IS_QUEUED,
        postgresql_where=IS_QUEUED,
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_index("jobs_by_turn", "jobs")
