"""Vectors of passages, the models that made them, and how far each model is."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "vectors",
        sa.Column("model", sa.Text, primary_key=True),
        sa.Column("org", sa.Text, primary_key=True),
        sa.Column("hash", sa.Text, primary_key=True),
        sa.Column("dimension", sa.Integer, nullable=False),
        sa.Column("vector", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "embedding_models",
        sa.Column("model", sa.Text, primary_key=True),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("dimension", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("written", sa.BigInteger, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("activated_ms", sa.BigInteger),
    )
    op.create_index(
        "embedding_models_active",
        "embedding_models",
        ["state"],
        unique=True,
        sqlite_where=sa.text("state = 'active'"),
        postgresql_where=sa.text("state = 'active'"),
    )
    op.create_table(
        "embedding_progress",
        sa.Column("model", sa.Text, primary_key=True),
        sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("generation", sa.Text, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("n", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("embedding_progress")
    op.drop_index("embedding_models_active", "embedding_models")
    op.drop_table("embedding_models")
    op.drop_table("vectors")
