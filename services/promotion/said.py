"""The wishes about conduct in what a person wrote: a message or a feedback. Pure.

Nothing is read from what Refold wrote itself (C40), from what reads like an order against its reader's people (C39),
from code and from quotations.
"""

from __future__ import annotations

import regex

from projections.cards.reading.prose import sentences
from projections.cards.secrecy.secrets import masked_text
from services.curation.quality import is_own_output
from services.curation.safety import credential, is_order
from services.wishes.reading import Wish, opposed, wish_of_ours, wishes_of

MOST_CHARS = 8_000
"""Of a text that are read: who writes more pastes a document."""

_CODE = regex.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", regex.DOTALL)
_QUOTED = (">", "|", "#", "{", "[", "<")


def wishes_in(text: str) -> list[Wish]:
    """What a text asks for, in its order. Of wishes that go against each other none is taken.

    A wish for this once and one for good do not go against each other.
    """
    plain = _CODE.sub("\n", text[:MOST_CHARS])
    if not is_safe(plain):
        return []
    found: dict[tuple[tuple[str, str, bool], bool, str], Wish] = {}
    for sentence in sentences(plain):
        if sentence.startswith(_QUOTED) or wish_of_ours(sentence.removeprefix("- ")) is not None:
            continue  # a rule of ours that comes back is no news
        for wish in wishes_of(sentence):
            found.setdefault((wish.what, wish.once, wish.when), wish)
    return [wish for wish in found.values() if not any(_clash(wish, other) for other in found.values())]


def is_safe(text: str) -> bool:
    """Whether a text may lead to a rule at all."""
    read = text[:MOST_CHARS]
    return not is_own_output(read) and not is_order(read)


def shown(words: str) -> str:
    """Words as a chain of evidence may show them: nothing where they hold a secret (C21)."""
    read = words[:MOST_CHARS]
    return "" if credential(read) else masked_text(read)


def _clash(one: Wish, other: Wish) -> bool:
    return (one.once, one.when) == (other.once, other.when) and opposed(one.what, other.what)
