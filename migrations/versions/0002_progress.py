"""What owners say of their work, and how often event types came that nobody knew."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

KNOWN = (
    "run.started", "run.heartbeat", "run.terminated",
    "plan.updated", "step.started", "step.completed", "step.failed", "step.skipped",
    "tool.called", "tool.returned", "tool.failed",
    "message.added", "decision.made", "note.written", "model.responded", "card.summarized",
    "artifact.created", "blocker.raised", "blocker.cleared", "approval.requested", "approval.resolved",
    "checkpoint.saved", "feedback.given",
    "settlement.attempted", "settlement.recorded", "settlement.degraded",
    "experience.recorded", "belief.proposed", "belief.verified", "belief.retracted",
    "memory.proposed", "memory.admitted", "memory.rejected", "memory.superseded", "memory.edited",
    "memory.invalidated", "memory.restored", "memory.deleted", "memory.consolidated", "memory.recalled",
    "context.assembled", "pack.imported", "deadletter.discarded", "scope.erased",
)  # fmt: skip
"""The event types of the code that wrote stores of revision 0001."""


def upgrade() -> None:
    op.create_table(
        "fold_reports",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("moved_ms", sa.BigInteger, nullable=False),
        sa.Column("events_per_s", sa.Double, nullable=False),
        sa.Column("waits_for", sa.Text, nullable=False),
    )
    op.create_table(
        "unknown_types",
        sa.Column("org", sa.Text, primary_key=True),
        sa.Column("type", sa.Text, primary_key=True),
        sa.Column("events", sa.BigInteger, nullable=False),
        sa.Column("first_ms", sa.BigInteger, nullable=False),
        sa.Column("last_ms", sa.BigInteger, nullable=False),
    )
    # one pass over what is archived already: later ones are counted as they come
    count = sa.text(
        "INSERT INTO unknown_types (org, type, events, first_ms, last_ms) "
        "SELECT org, type, count(*), min(received_ms), max(received_ms) FROM event_log "
        "WHERE verdict = 'effective' AND type NOT IN :known GROUP BY org, type"
    )
    op.execute(count.bindparams(sa.bindparam("known", KNOWN, expanding=True)))


def downgrade() -> None:
    op.drop_table("unknown_types")
    op.drop_table("fold_reports")
