"""Whole models: jobs and libraries have a kind, and the parts of a model are rows.

Revision ID: 0010
Revises: 0009
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

KINDS = {"jobs": "spec", "libraries": "library"}


def upgrade() -> None:
    """All that was there is about specs."""
    for table, kind in KINDS.items():
        op.add_column(table, sa.Column("kind", sa.String(16), nullable=False, server_default=kind))
    op.create_table(
        "model_parts",
        sa.Column("job_id", sa.String(16), sa.ForeignKey("jobs.id"), primary_key=True),
        sa.Column("position", sa.Integer(), primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("operator", sa.Text(), nullable=False),
        sa.Column("calls", sa.Integer(), nullable=False),
        sa.Column("flops", sa.Float(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column(
            "library_id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            sa.ForeignKey("libraries.id"),
            nullable=True,
        ),
    )


def downgrade() -> None:
    """Models go; what is about specs stays."""
    op.drop_table("model_parts")
    for table in KINDS:
        op.drop_column(table, "kind")
