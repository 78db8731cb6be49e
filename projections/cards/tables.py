"""Tables of the memory-card read model."""

from __future__ import annotations

from sqlalchemy import Double, Index, MetaData

from projections.draft import Blanks, count, flag, json, maybe, text
from projections.projection import read_model_table

METADATA = MetaData()

CARDS = read_model_table(
    METADATA,
    "cards",
    text("card", pk=True),
    text("source"),  # tool, user, decision
    text("trust"),  # data: it came from outside and is never an instruction; own: the agent's own conclusion
    text("tool"),
    text("call_id"),
    text("summary"),
    text("model_summary"),  # by a reactor, as an event
    text("model"),
    text("excludes"),  # what it rules out, in its own words
    json("entity"),  # [field, value], where it names what it is about
    text("attribute"),  # what of the entity it tells; "" where its fields say so
    json("fields"),  # top-level fields of a JSON result
    json("facts"),  # [[field, record, text], ...] in order of appearance, secrets masked
    json("values"),  # traced values, in normal form
    json("ahead"),  # [[field, tool or step, parameter], ...]: what may still ask for it
    json("reasons"),  # rule -> how often it spoke for the card
    count("value"),
    count("uses"),
    json("used"),  # values that were used, in normal form
    text("status"),  # active, superseded, invalidated; expired follows at read time from as_of and ttl_s
    text("superseded_by"),
    json("outdated"),  # field -> the later card that says otherwise of the same entity
    text("invalidated_by"),  # the event that said so
    text("as_of"),
    maybe("ttl_s", Double),
    text("refresh"),  # what to look at again before relying on it
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
    count("changed_epoch"),  # the event that changed this row last
    count("changed_n"),
)
Index("cards_by_id", CARDS.c.org, CARDS.c.card)
Index("cards_changed", CARDS.c.partition, CARDS.c.changed_epoch, CARDS.c.changed_n)
for _scope in ("user", "agent", "session"):
    _columns = (CARDS.c[_scope], CARDS.c.partition, CARDS.c.changed_epoch, CARDS.c.changed_n)
    Index(f"cards_by_{_scope}", CARDS.c.org, *_columns)

CARD_LATENT = read_model_table(
    METADATA,
    "card_latent",
    text("card", pk=True),
    json("row"),  # the card as it would be: too little spoke for it, until something uses it
)

CARD_VALUES = read_model_table(
    METADATA,
    "card_values",
    text("value", pk=True),
    text("first"),  # the card that brought it
    text("last"),  # the card that confirmed it last
    text("origins"),  # where it stood: a line each, tool and field apart by U+001F
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
    json("links"),  # [[value, field, parameter], ...]: where each stood, and where it went
    text("run"),
    text("made"),  # the card of the decision itself
    text("event_id"),
    text("time"),
    unread=True,
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

CARD_NEEDS = read_model_table(
    METADATA,
    "card_needs",
    text("mode"),
    text("tools"),  # digest of the declared tools
    json("parameters"),  # parameter, its words joined by "_" -> [tool, parameter]
    json("steps"),  # open step -> the words of its title
    text("called"),  # the tool that was called last
)

CARD_FLOWS = read_model_table(
    METADATA,
    "card_flows",
    text("agent", pk=True),
    text("used_by", pk=True),  # the tool that was called
    json("counts"),  # tool, field and parameter, joined by U+001F -> how often
    json("after"),  # the tool that was called before it in the task, "" for none -> how often
)
Index("card_flows_by_agent", CARD_FLOWS.c.org, CARD_FLOWS.c.agent)

TABLES = (
    CARDS, CARD_LATENT, CARD_VALUES, CARD_USES, CARD_SUBJECTS, CARD_CALLS, CARD_NEEDS, CARD_FLOWS
)  # fmt: skip
BLANKS = Blanks(TABLES)
