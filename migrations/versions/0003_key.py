"""The events of a partition key without its partition: what a task's history is read by."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("event_log_key", "event_log", ["org", "key", "epoch", "n"])


def downgrade() -> None:
    op.drop_index("event_log_key", "event_log")
