"""Tables of the log store. Alembic owns them (``migrations/``); a test holds both equal.

A row of ``event_log`` is one position of one partition, and is never changed but by erasure. All times are Unix
milliseconds, ``received_ms`` of the database's clock; they order nothing.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Double, Index, Integer, LargeBinary, MetaData, Table, Text, text

metadata = MetaData()

event_log = Table(
    "event_log",
    metadata,
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("n", BigInteger, primary_key=True, autoincrement=False),
    Column("type", Text, nullable=False),
    Column("verdict", Text, nullable=False),
    Column("ref_epoch", BigInteger),
    Column("ref_n", BigInteger),
    Column("received_ms", BigInteger, nullable=False),
    Column("id", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("time", Text, nullable=False),
    Column("org", Text, nullable=False),
    Column("agent", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("session", Text, nullable=False),
    Column("task", Text, nullable=False),
    Column("run", Text, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("schemaversion", BigInteger, nullable=False),
    Column("causation", Text, nullable=False),
    Column("correlation", Text, nullable=False),
    Column("traceparent", Text, nullable=False),
    Column("sanitized", Boolean, nullable=False),
    Column("key", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("data", Text, nullable=False),
)
"""Every position. ``verdict``: ``effective``, or ``duplicate_of`` / ``conflict_with`` position (ref_epoch, ref_n).

``erased_by`` the erasure at that position, none where it was erased when it came: its data are gone (``erasing``).
"""

EFFECTIVE = "effective"
"""The verdict of events that folds see."""

# literal, or SQLite does not see that a partial index applies
OF_A_RUN = text("event_log.run <> ''")
IS_RUN_START = text("event_log.type = 'run.started'")

_OF_A_RUN = text("run <> ''")
_IS_RUN_START = text("type = 'run.started'")

Index(
    "event_log_run", event_log.c.org, event_log.c.run, event_log.c.partition, event_log.c.epoch, event_log.c.n,
    sqlite_where=_OF_A_RUN, postgresql_where=_OF_A_RUN,
)  # fmt: skip
Index(
    "event_log_attempts", event_log.c.org, event_log.c.task,
    sqlite_where=_IS_RUN_START, postgresql_where=_IS_RUN_START,
)  # fmt: skip
Index(
    "event_log_recent_runs", event_log.c.org, event_log.c.received_ms,
    sqlite_where=_IS_RUN_START, postgresql_where=_IS_RUN_START,
)  # fmt: skip
Index("event_log_key", event_log.c.org, event_log.c.key, event_log.c.epoch, event_log.c.n)

event_ids = Table(
    "event_ids",
    metadata,
    Column("id", Text, primary_key=True),
    Column("org", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("partition", Integer, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("n", BigInteger, nullable=False),
    Column("digest", Text, nullable=False),
    sqlite_with_rowid=False,
)
"""Where each event stands first. The id leads the key, so that time-ordered ids go to the end of the index."""

log_watermarks = Table(
    "log_watermarks",
    metadata,
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("epoch", BigInteger, nullable=False),
    Column("n", BigInteger, nullable=False),
)
"""The last archived position of each partition; compare-and-set by whoever advances it."""

log_epochs = Table(
    "log_epochs",
    metadata,
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("ended_at_n", BigInteger),
    Column("reason", Text, nullable=False),
    Column("opened_ms", BigInteger, nullable=False),
)
"""Epochs of each partition. ``ended_at_n`` is the last n that counts, NULL for the one that is open.

Epoch 0 is empty (ended at -1), so that the first entry follows ``START`` by the same rule as any other.
"""

log_config = Table(
    "log_config",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
"""What is fixed when the log is created: ``partitions``."""

refused_events = Table(
    "refused_events",
    metadata,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("received_ms", BigInteger, nullable=False),
    Column("org", Text, nullable=False),
    Column("event_id", Text, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("code", Text, nullable=False),
    Column("field", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("raw", Text, nullable=False),
    Index("refused_events_org", "org", "number"),
)
"""What the door or the log refused, with the reason. ``source`` is the way in; ``raw`` the event's text, capped."""

generations = Table(
    "generations",
    metadata,
    Column("projection", Text, primary_key=True),
    Column("generation", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("progress", Text, nullable=False, server_default="{}"),
    Column("created_ms", BigInteger, nullable=False),
    Column("activated_ms", BigInteger),
)
"""Generations of each read model.

``state``: building, active, retired, failed, cancelled, dropped. ``progress`` is a JSON object.
"""

_IS_ACTIVE = text("state = 'active'")
Index(
    "generations_active", generations.c.projection, unique=True,
    sqlite_where=_IS_ACTIVE, postgresql_where=_IS_ACTIVE,
)  # fmt: skip

leases = Table(
    "leases",
    metadata,
    Column("name", Text, primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("owner", Text, nullable=False),
    Column("owner_epoch", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
)
"""Who works on what. A lease is only liveness; safety is the compare-and-set of the checkpoint it protects."""

fold_reports = Table(
    "fold_reports",
    metadata,
    Column("name", Text, primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("owner", Text, nullable=False),
    Column("moved_ms", BigInteger, nullable=False),
    Column("events_per_s", Double, nullable=False),
    Column("waits_for", Text, nullable=False),
)
"""What the holder of a lease last said of its work: when it last got on (database clock), how fast, why it waits."""

erasures = Table(
    "erasures",
    metadata,
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("n", BigInteger, primary_key=True, autoincrement=False),
    Column("erasure", Text, nullable=False),
    Column("org", Text, nullable=False),
    Column("level", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("by", Text, nullable=False),
    Column("received_ms", BigInteger, nullable=False),
    Column("events", BigInteger, nullable=False),
    Column("finished_ms", BigInteger),
)
"""Each ``scope.erased`` that was archived, and how many ``events`` of its partition it blanked.

``finished_ms`` is when nothing that it erased was left anywhere, NULL until then.
"""

erased_keys = Table(
    "erased_keys",
    metadata,
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("n", BigInteger, primary_key=True, autoincrement=False),
    Column("org", Text, primary_key=True),
    Column("key", Text, primary_key=True),
)
"""The partition keys that had events blanked by the ``scope.erased`` at a position: folds make them anew there."""

erased_runs = Table(
    "erased_runs",
    metadata,
    Column("org", Text, primary_key=True),
    Column("task", Text, primary_key=True),
    Column("run", Text, primary_key=True),
)
"""Runs that were erased: whatever still comes of one is blanked as it is archived."""

unknown_types = Table(
    "unknown_types",
    metadata,
    Column("org", Text, primary_key=True),
    Column("type", Text, primary_key=True),
    Column("events", BigInteger, nullable=False),
    Column("first_ms", BigInteger, nullable=False),
    Column("last_ms", BigInteger, nullable=False),
)
"""Effective events whose type the archiver that wrote them did not know, counted; received first and last."""

reactor_checkpoints = Table(
    "reactor_checkpoints",
    metadata,
    Column("reactor", Text, primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("epoch", BigInteger, nullable=False),
    Column("n", BigInteger, nullable=False),
    Column("owner_epoch", BigInteger, nullable=False),
)
"""How far each reactor has come."""

vectors = Table(
    "vectors",
    metadata,
    Column("model", Text, primary_key=True),
    Column("org", Text, primary_key=True),
    Column("hash", Text, primary_key=True),
    Column("dimension", Integer, nullable=False),
    Column("vector", LargeBinary, nullable=False),
)
"""Vectors of texts, by the digest of the text. Derived, but neither a fold's nor quickly made again."""

embedding_models = Table(
    "embedding_models",
    metadata,
    Column("model", Text, primary_key=True),
    Column("source", Text, nullable=False),
    Column("dimension", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("written", BigInteger, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("activated_ms", BigInteger),
)
"""Models that have vectors. ``state``: building, active (searches use it: one, at most), retired.

``source`` tells how it is loaded, as JSON. ``written`` counts the vectors ever written, so that whoever keeps some in
memory sees that there are more.
"""

Index(
    "embedding_models_active", embedding_models.c.state, unique=True,
    sqlite_where=_IS_ACTIVE, postgresql_where=_IS_ACTIVE,
)  # fmt: skip

embedding_progress = Table(
    "embedding_progress",
    metadata,
    Column("model", Text, primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("generation", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("n", BigInteger, nullable=False),
)
"""How far each model is: every card of a generation that changed up to this position has been looked at."""
