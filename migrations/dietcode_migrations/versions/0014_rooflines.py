"""What the machine gave at most beside the comparison of each instance: its peak, and its roofline there.

Revision ID: 0014
Revises: 0013
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add both, empty: of earlier comparisons nobody knows them."""
    op.add_column("comparisons", sa.Column("peak_gflops", sa.Float(), nullable=True))
    op.add_column("comparisons", sa.Column("roof_gflops", sa.Float(), nullable=True))


def downgrade() -> None:
    """Drop them."""
    with op.batch_alter_table("comparisons") as table:
        for name in ("roof_gflops", "peak_gflops"):
            table.drop_column(name)
