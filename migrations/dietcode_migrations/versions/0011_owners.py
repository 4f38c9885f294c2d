"""Owners: who was served when, and what their specs take; libraries: which records they were made from.

Revision ID: 0011
Revises: 0010
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

COUNTED = (
    "INSERT INTO owners (owner, served_at, spec_bytes) "
    "SELECT owner, MAX(started_at), SUM(LENGTH(CAST(spec AS TEXT))) FROM jobs GROUP BY owner"
)


def upgrade() -> None:
    """Count what is there."""
    op.create_table(
        "owners",
        sa.Column("owner", sa.String(64), primary_key=True),
        sa.Column("served_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("spec_bytes", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
    )
    op.execute(COUNTED)
    op.add_column("libraries", sa.Column("records_digest", sa.String(71), nullable=True))
    op.add_column(
        "libraries", sa.Column("num_records", sa.Integer(), nullable=False, server_default=sa.text("0"))
    )


def downgrade() -> None:
    """Forget all of it."""
    op.drop_column("libraries", "num_records")
    op.drop_column("libraries", "records_digest")
    op.drop_table("owners")
