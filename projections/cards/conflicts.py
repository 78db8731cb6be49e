"""Which of two cards on the same thing holds, and the states of a card.

Cards meet on a *subject*: the same call again, the same entity (with the same attribute, where a template names one),
the same question. The later one wins, unless its source weighs less: what a person says outweighs what a tool says, and
that an agent's own conclusion. The one that loses gives way only where the winner says at least as much; else it stays,
and the fields of it that the winner tells otherwise are marked ``outdated``.

active        it holds
superseded    another card says it anew; both stay readable
invalidated   somebody said that it does not hold; ``card.restored`` takes that back
expired       its time is over (computed when it is read)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from projections.cards.reading.forms import normal
from projections.draft import Draft

MAX_RIVALS = 4
"""Earlier cards that are remembered on one subject."""

SOURCE_WEIGHT: Mapping[str, int] = {"user": 3, "tool": 2, "decision": 1}

Card = Mapping[str, Any]
Edit = Callable[[str], dict[str, Any]]


def settle(draft: Draft, edit: Edit, card: dict[str, Any], subject: str, *, whole: bool) -> bool:
    """The card meets the earlier ones on its subject. True when it says something otherwise than one of them.

    ``whole``: whatever is said of the subject last is all there is to say, so one of the two gives way in any case.
    """
    if not subject:
        return False
    row = draft.edit("card_subjects", subject)
    stay: list[str] = []
    otherwise = False
    for name in row["cards"] or []:
        old = draft.peek("cards", name) if name != card["card"] else None
        if old is None or old["status"] != "active":
            continue
        otherwise = True
        if SOURCE_WEIGHT[card["source"]] < SOURCE_WEIGHT[old["source"]]:
            _give_way(card, old, whole)
            stay.append(name)
        elif whole or _covers(card, old):
            edit(name).update(status="superseded", superseded_by=card["card"])
        else:
            outdated = _told_otherwise(old, card)
            if outdated:
                edit(name)["outdated"] = {**(old["outdated"] or {}), **outdated}
            stay.append(name)
    row["cards"] = [*stay, card["card"]][-MAX_RIVALS:] if card["status"] == "active" else stay
    return otherwise


def _give_way(card: dict[str, Any], old: Card, whole: bool) -> None:
    """The later card weighs less than the older one."""
    if whole or _covers(old, card):
        card.update(status="superseded", superseded_by=old["card"])
    else:
        card["outdated"] = {**(card["outdated"] or {}), **_told_otherwise(card, old)} or None


def _covers(one: Card, other: Card) -> bool:
    return bool(other["fields"]) and set(other["fields"]) <= set(one["fields"] or ())


def _told_otherwise(loser: Card, winner: Card) -> dict[str, str]:
    """Fields of the outermost object that both tell and the winner tells otherwise -> the winner."""
    shared = [field for field in loser["fields"] or () if field in (winner["fields"] or ())]
    before, after = _texts(loser["facts"], shared), _texts(winner["facts"], shared)
    return {field: winner["card"] for field in shared if before.get(field) != after.get(field)}


def _texts(facts: Sequence[Sequence[str]] | None, fields: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    wanted = set(fields)
    found: dict[str, list[tuple[str, str]]] = {}
    for field, _, text in facts or ():
        top = field.partition(".")[0]
        if top in wanted:
            found.setdefault(top, []).append((field, normal(text) or text))
    return found


def reconsider(draft: Draft, edit: Edit, card: Card, subject: str) -> None:
    """Whether the card holds has changed: what it told otherwise than earlier ones on its entity counts, or not."""
    row = draft.peek("card_subjects", subject) if subject else None
    for name in (row["cards"] or ()) if row is not None else ():
        old = draft.peek("cards", name)
        if old is None or (old["epoch"], old["n"]) >= (card["epoch"], card["n"]):
            continue
        others = {field: winner for field, winner in (old["outdated"] or {}).items() if winner != card["card"]}
        outdated = {**others, **(_told_otherwise(old, card) if card["status"] == "active" else {})} or None
        if outdated != old["outdated"]:
            edit(name)["outdated"] = outdated


def invalidate(card: dict[str, Any], event_id: str) -> None:
    """Somebody said that the card does not hold."""
    if card["status"] != "invalidated":
        card.update(status="invalidated", invalidated_by=event_id)


def restore(card: dict[str, Any], time: str) -> None:
    """An invalidated card is what it was before; a superseded one holds again; one with a time limit holds anew."""
    if card["status"] == "invalidated":
        card.update(status="superseded" if card["superseded_by"] else "active", invalidated_by="")
    elif card["status"] == "superseded":
        card.update(status="active", superseded_by="")
    if card["ttl_s"] is not None:
        card["as_of"] = time
