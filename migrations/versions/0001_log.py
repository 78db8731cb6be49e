"""The log store: archive, ids, epochs, refused events, generations, leases, reactors."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "event_log",
        sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("n", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("verdict", sa.Text, nullable=False),
        sa.Column("ref_epoch", sa.BigInteger),
        sa.Column("ref_n", sa.BigInteger),
        sa.Column("received_ms", sa.BigInteger, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("time", sa.Text, nullable=False),
        sa.Column("org", sa.Text, nullable=False),
        sa.Column("agent", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("session", sa.Text, nullable=False),
        sa.Column("task", sa.Text, nullable=False),
        sa.Column("run", sa.Text, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("schemaversion", sa.BigInteger, nullable=False),
        sa.Column("causation", sa.Text, nullable=False),
        sa.Column("correlation", sa.Text, nullable=False),
        sa.Column("traceparent", sa.Text, nullable=False),
        sa.Column("sanitized", sa.Boolean, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("data", sa.Text, nullable=False),
    )
    op.create_index(
        "event_log_attempts",
        "event_log",
        ["org", "task"],
        sqlite_where=sa.text("type = 'run.started'"),
        postgresql_where=sa.text("type = 'run.started'"),
    )
    op.create_index(
        "event_log_recent_runs",
        "event_log",
        ["org", "received_ms"],
        sqlite_where=sa.text("type = 'run.started'"),
        postgresql_where=sa.text("type = 'run.started'"),
    )
    op.create_index(
        "event_log_run",
        "event_log",
        ["org", "run", "partition", "epoch", "n"],
        sqlite_where=sa.text("run <> ''"),
        postgresql_where=sa.text("run <> ''"),
    )
    op.create_table(
        "event_ids",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("org", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("partition", sa.Integer, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("n", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "log_watermarks",
        sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("n", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "log_epochs",
        sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("ended_at_n", sa.BigInteger),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("opened_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "log_config",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_table(
        "refused_events",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("received_ms", sa.BigInteger, nullable=False),
        sa.Column("org", sa.Text, nullable=False),
        sa.Column("event_id", sa.Text, nullable=False),
        sa.Column("event_type", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("code", sa.Text, nullable=False),
        sa.Column("field", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("raw", sa.Text, nullable=False),
    )
    op.create_index("refused_events_org", "refused_events", ["org", "number"])
    op.create_table(
        "generations",
        sa.Column("projection", sa.Text, primary_key=True),
        sa.Column("generation", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("progress", sa.Text, nullable=False, server_default="{}"),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("activated_ms", sa.BigInteger),
    )
    op.create_index(
        "generations_active",
        "generations",
        ["projection"],
        unique=True,
        sqlite_where=sa.text("state = 'active'"),
        postgresql_where=sa.text("state = 'active'"),
    )
    op.create_table(
        "leases",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("owner_epoch", sa.BigInteger, nullable=False),
        sa.Column("expires_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "reactor_checkpoints",
        sa.Column("reactor", sa.Text, primary_key=True),
        sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("n", sa.BigInteger, nullable=False),
        sa.Column("owner_epoch", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    for table in (
        "reactor_checkpoints",
        "leases",
        "generations",
        "refused_events",
        "log_config",
        "log_epochs",
        "log_watermarks",
        "event_ids",
        "event_log",
    ):
        op.drop_table(table)
