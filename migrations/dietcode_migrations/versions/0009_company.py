"""What a library and the vendor's fastest path reached where their calls alternated.

Revision ID: 0009
Revises: 0008
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

COLUMNS = ("company_gflops", "vendor_company_gflops")


def upgrade() -> None:
    """Add both rates, empty: earlier comparisons have neither."""
    for name in COLUMNS:
        op.add_column("comparisons", sa.Column(name, sa.Float(), nullable=True))


def downgrade() -> None:
    """Drop them."""
    with op.batch_alter_table("comparisons") as table:
        for name in COLUMNS:
            table.drop_column(name)
