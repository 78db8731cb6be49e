"""A registry for tests: the real read models, and one that cannot fold notes whose content is ``poison``.

Whether it can is asked anew for each event: it can once the file named by ``REFOLD_TEST_CURE`` exists. While that says
``die``, such a note ends the process that folds it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from sqlalchemy import Column, MetaData, Text

from events.event import Recorded
from projections.projection import Change, Projection, Put, RowRef, Rows, read_model_table
from projections.registry import PROJECTIONS as REAL

METADATA = MetaData()
SEEN = read_model_table(METADATA, "seen", Column("id", Text, primary_key=True))


def _apply(recorded: Recorded, rows: Rows) -> Iterable[Change]:
    cure = Path(os.environ["REFOLD_TEST_CURE"])
    if recorded.payload.content == "poison" and not cure.exists():
        raise ValueError("cannot stomach this")
    if recorded.payload.content == "poison" and cure.read_text() == "die":
        os._exit(9)
    return [Put("seen", {"id": recorded.event.id})]


def _names(recorded: Recorded) -> Iterable[RowRef]:
    return ()


FUSSY = Projection("fussy", 1, (SEEN,), frozenset({"note.written"}), _apply, _names)
PROJECTIONS = {**REAL, "fussy": FUSSY}
