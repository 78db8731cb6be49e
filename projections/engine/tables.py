"""The engine's own tables. They live with the generation's read-model tables, so that one transaction commits both."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, MetaData, Table, Text

metadata = MetaData()

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("epoch", BigInteger, nullable=False),
    Column("n", BigInteger, nullable=False),
    Column("owner_epoch", BigInteger, nullable=False),
    Column("owner", Text, nullable=False),
    Column("unclean", Integer, nullable=False),
    Column("strikes", Integer, nullable=False),
    Column("alone", Boolean, nullable=False),
    Column("sealed", Boolean, nullable=False),
    Column("paused", Text, nullable=False),
)
"""How far each partition is folded (position epoch, n), and who may write.

``owner_epoch`` rises with every change of hands; ``owner`` is empty after a clean hand-over. ``unclean`` counts owners
that vanished since the last advance, ``strikes`` those that vanished while the next event was ``alone`` in its step.
``sealed``: nobody folds this generation any more, another one is taking its place. ``paused``: why it waits, or "".
"""

dead_letters = Table(
    "dead_letters",
    metadata,
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("n", BigInteger, primary_key=True, autoincrement=False),
    Column("org", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("event_id", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("cause", Text, nullable=False),
    Column("error", Text, nullable=False),
    Column("traceback", Text, nullable=False),
    Index("dead_letters_key", "org", "key"),
)
"""Events that could not be folded, and later ones of their keys, which wait for them. The bodies are in the archive.

``cause``: ``poison`` (its decoding or folding fails), ``newer_version``, ``killed`` (the process died on it),
``unwritable`` (the store refuses its rows), ``machine`` (it alone finds no memory, file or module), ``waiting`` (an
earlier event of its key is one of these).
"""

parked_keys = Table(
    "parked_keys",
    metadata,
    Column("org", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("partition", Integer, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("n", BigInteger, nullable=False),
)
"""Partition keys whose read model is incomplete, with the position of the first event that it lacks."""

NAMES = frozenset(metadata.tables)
"""Names that no read-model table may have."""
