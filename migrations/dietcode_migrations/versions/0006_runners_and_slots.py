"""Who runs jobs, and who measures where.

Revision ID: 0006
Revises: 0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

UTC_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Add ``runners`` and ``slots``, both empty: who is there announces itself."""
    op.create_table(
        "runners",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("process", sa.Text(), nullable=False),
        sa.Column("engine", sa.String(length=16), nullable=False),
        sa.Column("version", sa.String(length=32), nullable=False),
        sa.Column("devices", sa.JSON(), nullable=False),
        sa.Column("job_id", sa.String(length=16), nullable=True),
        sa.Column("started_at", UTC_TIME, nullable=False),
        sa.Column("seen_at", UTC_TIME, nullable=False),
        sa.Column("leased_until", UTC_TIME, nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "slots",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("runner", sa.Text(), nullable=False),
        sa.Column("job_id", sa.String(length=16), nullable=False),
        sa.Column("taken_at", UTC_TIME, nullable=False),
        sa.Column("leased_until", UTC_TIME, nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )


def downgrade() -> None:
    """Forget them; nothing that was measured is in them."""
    op.drop_table("slots")
    op.drop_table("runners")
