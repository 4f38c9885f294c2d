"""How far repeats differ, and what disturbed the comparison of an instance with the vendor's kernels.

Revision ID: 0012
Revises: 0011
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add both, empty: of earlier comparisons nobody knows them."""
    op.add_column("comparisons", sa.Column("spread", sa.Float(), nullable=True))
    op.add_column("comparisons", sa.Column("disturbed", sa.Text(), nullable=True))


def downgrade() -> None:
    """Drop them."""
    with op.batch_alter_table("comparisons") as table:
        for name in ("disturbed", "spread"):
            table.drop_column(name)
