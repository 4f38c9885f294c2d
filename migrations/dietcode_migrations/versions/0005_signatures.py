"""Signatures of published libraries.

Revision ID: 0005
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add ``signatures``; older libraries are signed when they are first asked for."""
    op.create_table(
        "signatures",
        sa.Column("library_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("keyid", sa.String(length=71), nullable=False),
        sa.Column("envelope", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["library_id"], ["libraries.id"]),
        sa.PrimaryKeyConstraint("library_id", "keyid"),
    )


def downgrade() -> None:
    """Forget them; they can be made again."""
    op.drop_table("signatures")
