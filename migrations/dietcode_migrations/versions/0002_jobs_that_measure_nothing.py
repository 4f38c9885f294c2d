"""Jobs that select and build from what was measured before.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add ``jobs.measure``; every older job measures."""
    op.add_column("jobs", sa.Column("measure", sa.Boolean(), nullable=False, server_default=sa.true()))


def downgrade() -> None:
    """Forget it."""
    op.drop_column("jobs", "measure")
