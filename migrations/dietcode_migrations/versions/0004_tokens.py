"""Tokens, owners of jobs and names, yanked versions.

Revision ID: 0004
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

LOCAL = "local"
UTC_TIME = sa.DateTime(timezone=True)
# What is published already belongs to whoever used the server without tokens.
NAMES_THAT_ARE_THERE = (
    "INSERT INTO names (name, owner, created_at) "
    f"SELECT name, '{LOCAL}', MIN(created_at) FROM libraries GROUP BY name"
)


def upgrade() -> None:
    """Add tables and columns; every older job and name is that of ``local``."""
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(length=8), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("scopes", sa.String(length=64), nullable=False),
        sa.Column("created_at", UTC_TIME, nullable=False),
        sa.Column("expires_at", UTC_TIME, nullable=True),
        sa.Column("revoked_at", UTC_TIME, nullable=True),
        sa.Column("last_used_at", UTC_TIME, nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("digest"),
    )
    op.create_table(
        "names",
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("created_at", UTC_TIME, nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.execute(NAMES_THAT_ARE_THERE)
    op.add_column("jobs", sa.Column("owner", sa.String(length=64), nullable=False, server_default=LOCAL))
    op.create_index("jobs_by_owner", "jobs", ["owner", "state"])
    op.add_column("libraries", sa.Column("yanked_at", UTC_TIME, nullable=True))


def downgrade() -> None:
    """Forget who owns what, and who may come in."""
    op.drop_column("libraries", "yanked_at")
    op.drop_index("jobs_by_owner", "jobs")
    op.drop_column("jobs", "owner")
    op.drop_table("names")
    op.drop_table("tokens")
