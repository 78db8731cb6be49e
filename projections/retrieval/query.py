"""What a search asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

TOP_K = 10
MAX_TOP_K = 200

ACTIVE: Final = "active"
ANY: Final = "any"


class Scope(NamedTuple):
    """Whose cards: of an org, and of every name that is given. Nothing outside of it has any part in an answer."""

    org: str
    user: str = ""
    agent: str = ""
    session: str = ""
    task: str = ""


@dataclass(frozen=True, kw_only=True)
class CardQuery:
    """A search. An empty ``text`` matches everything, so that value and time alone make the order.

    ``filter``: see ``filters``. ``status``: a card's, ``active`` unless told otherwise, ``any`` for all. ``as_of``:
    only what was known at this moment (RFC 3339), as it stood then. ``focus``: the decision that the answer is for: the
    id of a call, a decision or a card, or words of what is to be decided. ``threshold``: least relevance, 0..1.
    ``max_tokens`` bounds the text of the answer. ``offset`` and ``top_k`` cut a page out of one stable order.
    """

    text: str
    scope: Scope
    filter: Mapping[str, Any] = field(default_factory=dict)
    status: str = ACTIVE
    as_of: str = ""
    focus: str = ""
    top_k: int = TOP_K
    offset: int = 0
    threshold: float = 0.0
    max_tokens: int | None = None
    explain: bool = False
