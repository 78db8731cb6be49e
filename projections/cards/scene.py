"""One event as the fold of cards sees it: the rows at hand, and cards that know what changed them."""

from __future__ import annotations

from typing import Any

from events.event import Recorded
from projections.cards.reading.facts import Fact
from projections.cards.rules import worth
from projections.cards.tables import BLANKS
from projections.cards.templates import Templates
from projections.cards.trace import Traced, trace
from projections.draft import Draft
from projections.projection import Rows

Card = dict[str, Any]


class Scene:
    """The event, what it says, and the draft of the rows that it changes."""

    __slots__ = ("draft", "event", "position", "recorded", "templates", "traced")

    def __init__(self, recorded: Recorded, rows: Rows, templates: Templates) -> None:
        self.recorded = recorded
        self.event = recorded.event
        self.position = recorded.position
        self.templates = templates
        self.draft = Draft(rows, BLANKS)
        self.traced: Traced = trace(recorded)

    def card(self, name: str) -> Card:
        """A card to change in place (a blank one, when it is new); its change bears this event's position."""
        card = self.draft.edit("cards", name)
        card["changed_epoch"], card["changed_n"] = self.position
        return card

    def facts_of(self, card: Card) -> list[Fact]:
        """The facts of a card."""
        return list(map(Fact._make, card["facts"] or ()))

    def new_card(self, row: Card) -> None:
        """The card that this event makes."""
        row["changed_epoch"], row["changed_n"] = self.position
        self.draft.put(("cards", row["card"]), row)

    def woken(self, name: str) -> Card | None:
        """A card to change in place, also one for which too little spoke until now; None when there is none."""
        card = self.draft.edit_known("cards", name)
        if card is None:
            latent = self.draft.peek("card_latent", name)
            if latent is None:
                return None
            self.draft.drop("card_latent", name)
            card = self.draft.edit("cards", name)
            card.update(latent["row"])
        card["changed_epoch"], card["changed_n"] = self.position
        return card


def speak(card: Card, rule: str) -> None:
    """A rule speaks for the card once more."""
    reasons = card["reasons"] or {}
    card["reasons"] = {**reasons, rule: reasons.get(rule, 0) + 1}
    card["value"] = worth(card["reasons"])
