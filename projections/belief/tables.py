"""Tables of the beliefs. Each is a function of the *set* of a scope's events: no row tells in which order they came."""

from __future__ import annotations

from sqlalchemy import Double, Index, MetaData

from projections.draft import Blanks, count, json, maybe, text
from projections.projection import read_model_table

LABELS = ("success", "deviated_success", "recoverable_failure", "fatal_failure")
SUPPORTS = frozenset(LABELS[:2])
SPEAKS_AGAINST = frozenset(LABELS[2:])

METADATA = MetaData()

BELIEFS = read_model_table(
    METADATA,
    "beliefs",
    text("belief", pk=True),
    text("full"),
    text("kind"),
    text("subject"),  # the tool; the tools of a path in their order; the words of a feedback
    text("subject_at"),  # time and id of the earliest feedback that used these words
    text("statement"),
    json("trigger"),
    text("tendency"),
    json("limits"),
    maybe("prior", Double),  # confidence it was proposed with; NULL: the rules' prior
    text("proposed_at"),  # time of the last proposal, UTC; empty: none
    text("proposed_id"),
    text("retracted_at"),  # time of the last retraction, UTC; empty: none
    text("retracted_id"),
    text("retracted_because"),
    text("reviewed_at"),  # last time that a review found it to hold, UTC
    count("evidence"),  # sources that speak
    json("latest"),  # [[time, source, failed, calls], ...]: the latest sources; calls 0: it says nothing any more
)

GROUNDS = read_model_table(
    METADATA,
    "belief_grounds",
    text("belief", pk=True),
    text("event", pk=True),  # the proposal or retraction, as it stands in a key
    text("act"),  # proposed, retracted
    json("words"),  # what it made of the belief's own columns
    json("because"),  # ids of the events that made somebody propose it
    json("elsewhere"),  # evidence from another place
    text("event_id"),
    text("time"),  # UTC
    unread=True,
)
"""Every proposal and retraction: the latest stands on the belief, but it may be of a time that has not come."""

COUNTS = read_model_table(
    METADATA,
    "belief_counts",
    text("belief", pk=True),
    count("day", pk=True),  # days since 1970-01-01 UTC
    *(count(label) for label in LABELS),
)

EVIDENCE = read_model_table(
    METADATA,
    "evidence",
    text("belief", pk=True),
    text("source", pk=True),  # run, verification or feedback that it comes from
    text("kind"),  # experience, verification, feedback
    text("event_id"),
    text("run"),
    json("counts"),  # by label
    json("because"),  # ids of the events that speak
    text("detail"),
    text("by"),
    text("time"),  # UTC
)
Index("evidence_by_time", *(EVIDENCE.c[name] for name in ("org", "key", "belief", "time", "source")))

EXPERIENCES = read_model_table(
    METADATA,
    "experiences",
    text("run", pk=True),
    text("run_id"),
    count("deriver_version"),
    count("revision"),
    text("agent"),
    text("user"),
    text("session"),
    text("owner"),
    json("nodes"),
    json("counts"),
    text("path"),
    text("path_label"),
    text("deviation"),
    json("sheet"),
    json("beliefs"),  # names of the beliefs that it speaks for or against
    json("notices"),  # keys of this run's rows in ``notices``
    text("event_id"),
    text("time"),  # UTC
)
Index("experiences_by_time", *(EXPERIENCES.c[name] for name in ("org", "key", "time")))

NOTICES = read_model_table(
    METADATA,
    "notices",
    text("pattern", pk=True),  # digest of the tool and the causal pattern
    text("run", pk=True),
    text("tool"),
    text("cause"),  # the pattern in words
    text("node"),
    json("contexts"),  # fingerprint -> how often
    json("because"),  # ids of the events that tell of it
    text("event_id"),
    text("time"),  # UTC
    unread=True,
)

TABLES = (BELIEFS, GROUNDS, COUNTS, EVIDENCE, EXPERIENCES, NOTICES)
BLANKS = Blanks(TABLES)
