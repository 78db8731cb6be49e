"""Tables of the memory-card read model."""

from __future__ import annotations

from sqlalchemy import Index, MetaData

from projections.draft import Blanks, count, flag, json, text
from projections.projection import read_model_table

METADATA = MetaData()

CARDS = read_model_table(
    METADATA,
    "cards",
    text("card", pk=True),
    text("source"),  # tool, user, decision
    text("tool"),
    text("call_id"),
    text("summary"),
    text("model_summary"),  # by a reactor, as an event
    text("model"),
    text("excludes"),  # what it rules out, in its own words
    json("entity"),  # [field, value], where the result names what it is about
    json("fields"),  # top-level fields of a JSON result
    json("values"),  # traced values, in normal form
    json("reasons"),  # rule -> how often it spoke for the card
    count("value"),
    count("uses"),
    text("status"),  # active, superseded
    text("superseded_by"),
    text("as_of"),
    text("last_seen"),
    count("seen"),
    count("chars"),  # of the original
    text("agent"),
    text("user"),
    text("session"),
    text("run"),
    text("task"),
    text("event_id"),
    count("partition"),
    count("epoch"),
    count("n"),
)
Index("cards_by_id", CARDS.c.org, CARDS.c.card)

CARD_VALUES = read_model_table(
    METADATA,
    "card_values",
    text("value", pk=True),
    text("first"),  # the card that brought it
    text("last"),  # the card that confirmed it last
    count("cards"),
    count("uses"),
)

CARD_USES = read_model_table(
    METADATA,
    "card_uses",
    text("card", pk=True),
    count("epoch", pk=True),
    count("n", pk=True),
    text("kind"),  # call, decision
    text("used_by"),  # call id, or event id of the decision
    text("name"),  # tool, or question
    json("values"),
    text("event_id"),
    text("time"),
)

CARD_SUBJECTS = read_model_table(
    METADATA,
    "card_subjects",
    text("subject", pk=True),  # what cards are about, or the digest of what one says
    json("cards"),
)

CARD_CALLS = read_model_table(
    METADATA,
    "card_calls",
    text("run", pk=True),
    text("call_id", pk=True),
    text("name"),
    text("subject"),
    flag("side_effect"),
    flag("called"),
    flag("answered"),
    text("card"),
)

TABLES = (CARDS, CARD_VALUES, CARD_USES, CARD_SUBJECTS, CARD_CALLS)
BLANKS = Blanks(TABLES)
