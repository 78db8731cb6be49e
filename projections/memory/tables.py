"""Tables of the read model ``memories``. Every row belongs to one scope: ``user/<u>``, ``agent/<a>`` or ``org``."""

from __future__ import annotations

from sqlalchemy import Double, Index, MetaData

from projections.draft import Blanks, count, json, maybe, text
from projections.projection import read_model_table

METADATA = MetaData()

SCOPES = read_model_table(
    METADATA,
    "memory_scopes",
    count("epoch"),  # position of the last change of a memory of the scope
    count("n"),
    text("based_on"),  # of the decision that made that change; empty: a person's, or anybody's without one
    count("stale"),  # decisions that came too late
)

MEMORIES = read_model_table(
    METADATA,
    "memories",
    text("memory", pk=True),
    text("full"),
    text("kind"),  # preference, fact, correction, learning, procedure, convention
    text("memory_type"),  # semantic, episodic, procedural
    text("content"),
    text("entity"),
    text("attribute"),
    maybe("confidence", Double),  # as it was proposed; NULL: nobody said
    maybe("score", Double),  # the curator's
    json("tags"),
    text("source"),  # agent, person, settlement, conversation, experience, pack
    text("trust"),  # stated, data
    text("agent"),
    text("session"),
    text("task"),
    text("run"),
    text("proposal"),
    maybe("ttl_s", Double),  # counted from last_verified; NULL: no end
    text("status"),  # active, superseded, invalidated, deleted; expired is computed at read
    text("superseded_by"),
    text("because"),  # why it is not active
    text("created"),
    text("updated"),
    text("last_verified"),  # UTC: when it was said last
    count("said"),  # how often
    count("version"),  # number of changes
    count("conflicts"),  # edits that expected another version, and changed nothing
    count("hits"),
    text("last_access"),  # UTC; empty: never recalled
    text("event_id"),
    count("epoch"),  # position of the last change
    count("n"),
)
Index("memories_by_name", MEMORIES.c.org, MEMORIES.c.memory)

SAYINGS = read_model_table(
    METADATA,
    "memory_sayings",
    text("saying", pk=True),  # digest of kind and normal form
    text("memory"),  # the active one that says it; empty: none
    text("deleted"),  # one that said it, and was deleted
)

CHANGES = read_model_table(
    METADATA,
    "memory_changes",
    text("memory", pk=True),
    count("version", pk=True),
    text("change"),  # admitted, verified, edited, superseded, invalidated, restored, consolidated, deleted
    text("content"),  # after the change, where that changed it
    text("because"),
    text("other"),  # the memory that took its place, or the proposal
    text("by"),
    text("event_id"),
    text("time"),
)

PROPOSALS = read_model_table(
    METADATA,
    "memory_proposals",
    text("proposal", pk=True),
    text("full"),
    text("status"),  # pending, admitted, rejected
    text("reason"),
    text("detail"),
    text("memory"),  # what it became, or the memory that says it already
    text("kind"),
    text("source"),
    count("stale"),  # decisions that came too late, and did not count
    text("session"),
    text("run"),
    text("time"),
    text("decided"),
    count("epoch"),  # where it stands, the order in which proposals are decided
    count("n"),
)
Index("memory_proposals_by_name", PROPOSALS.c.org, PROPOSALS.c.proposal)

TABLES = (SCOPES, MEMORIES, SAYINGS, CHANGES, PROPOSALS)
BLANKS = Blanks(TABLES)
