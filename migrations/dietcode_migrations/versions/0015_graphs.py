"""The graphs of models count among the bytes that are kept for an owner.

Revision ID: 0015
Revises: 0014
"""

from __future__ import annotations

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

OF_GRAPHS = (
    "COALESCE((SELECT SUM(LENGTH(CAST(workloads.spec AS TEXT))) FROM jobs JOIN workloads "
    "ON workloads.digest = jobs.workload WHERE jobs.kind = 'model' AND jobs.owner = owners.owner), 0)"
)


def upgrade() -> None:
    """Count those that are there."""
    op.execute(f"UPDATE owners SET spec_bytes = spec_bytes + {OF_GRAPHS}")


def downgrade() -> None:
    """Count them no longer."""
    op.execute(f"UPDATE owners SET spec_bytes = spec_bytes - {OF_GRAPHS}")
