"""Neighbours in meaning: of feedback that no rule reads, the earlier one that says the same in other words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from events.errors import RefoldError
from services.curation.statements import gist
from services.promotion.neighbours import LEAST, may_be_one
from services.promotion.rulebook import Rulebook
from services.reactors.reactor import Embed

MOST = 500
"""Earlier feedback of a scope that is compared, the latest."""


async def nearest(text: str, known: Rulebook, session: str, embed: Embed | None) -> str:
    """The belief of the nearest earlier feedback, of another session; empty where there is none, or no model."""
    others = [
        (name, said)
        for name, (said, by) in list(known.told.items())[-MOST:]
        if name not in known.retracted and said != text.strip() and (not session or by != session)
    ]
    if embed is None or not others:
        return ""
    unseen = [one for one in (text, *(said for _, said in others)) if one not in known.vectors]
    if unseen:
        try:
            known.vectors.update(zip(unseen, await embed([gist(one) for one in unseen]), strict=True))
        except RefoldError:
            return ""  # no model now: the words stand for themselves
    return _nearest(text, others, known)


def _nearest(text: str, others: Sequence[tuple[str, str]], known: Rulebook) -> str:
    likeness = np.stack([known.vectors[said] for _, said in others]) @ known.vectors[text]
    for index in np.argsort(-likeness, kind="stable"):
        name, said = others[int(index)]
        if likeness[index] < LEAST:
            return ""
        if may_be_one(text, said):
            return name
    return ""
