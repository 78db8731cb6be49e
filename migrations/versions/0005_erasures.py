"""What was erased, when and by whom: the audit, and what readers and the archiver must know of it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "erasures",
        sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("n", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("erasure", sa.Text, nullable=False),
        sa.Column("org", sa.Text, nullable=False),
        sa.Column("level", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("by", sa.Text, nullable=False),
        sa.Column("received_ms", sa.BigInteger, nullable=False),
        sa.Column("events", sa.BigInteger, nullable=False),
        sa.Column("finished_ms", sa.BigInteger),
    )
    op.create_table(
        "erased_keys",
        sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("n", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("org", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
    )
    op.create_table(
        "erased_runs",
        sa.Column("org", sa.Text, primary_key=True),
        sa.Column("task", sa.Text, primary_key=True),
        sa.Column("run", sa.Text, primary_key=True),
    )


def downgrade() -> None:
    op.drop_table("erased_runs")
    op.drop_table("erased_keys")
    op.drop_table("erasures")
