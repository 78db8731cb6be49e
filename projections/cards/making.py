"""A card is made: what speaks for it, what it says, which earlier cards give way; or it waits until it is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from projections.bounds import clip
from projections.cards import conflicts, kinds, needs, validity
from projections.cards.flows import places_of, with_places
from projections.cards.reading.forms import normal
from projections.cards.rules import AHEAD, NOVELTY, THRESHOLD, worth
from projections.cards.scene import Card, Scene
from projections.cards.summary import summarize
from projections.cards.tables import BLANKS
from projections.cards.templates import PLAIN
from projections.cards.trace import card_id, entity_subject, text_subject

NAME_LIMIT = 200
ENTITY_LIMIT = 400


def observe(
    scene: Scene, source: str, reasons: dict[str, int], *, chars: int, summary: str = "", tool: str = "",
    subjects: Sequence[tuple[str, bool]] = (), **more: Any,
) -> str:  # fmt: skip
    """Make the card of this event; its name, or ``""`` when the same was said before or nothing is said.

    ``summary``: for what has one of its own. ``subjects``: what else it is about besides its entity, and whether it is
    all there is to say of that.
    """
    traced, new = scene.traced, card_id(scene.recorded)
    if not traced.facts and not reasons:
        return ""
    said = scene.draft.edit("card_subjects", text_subject(source, traced))
    news = not said["cards"]
    if not news and _seen_again(scene, said["cards"][0]):
        return ""
    said["cards"] = [new]
    mode = scene.draft.peek("card_needs")
    weight = _bring(scene, new, tool or source, kinds.weights(mode["mode"] if mode else ""), first_time=news)
    weight = max(weight, 1) if source == "user" and traced.told else weight
    if weight if news else 1:  # said before, and no longer so until now: that is news
        reasons = {**reasons, NOVELTY: weight if news else 1}
    card = BLANKS.row("cards", (new,))
    _tell(scene, card, source, tool, chars)
    if source != "decision":
        card["ahead"] = needs.ahead(traced.fields, mode) or None
    if card["ahead"]:
        reasons = {**reasons, AHEAD: 1}
    card.update(summary=summary or summarize(traced.facts, scene.templates.of(tool)), **more)
    own = entity_subject(card["entity"] or (), card["attribute"])
    otherwise = [
        conflicts.settle(scene.draft, scene.card, card, subject, whole=whole)
        for subject, whole in (*subjects, (own, bool(card["attribute"])))
    ]
    if any(otherwise) and NOVELTY not in reasons:
        reasons = {**reasons, NOVELTY: 1}
    card.update(reasons=reasons, value=worth(reasons))
    if card["value"] < THRESHOLD:
        scene.draft.add("card_latent", new)["row"] = card
    else:
        scene.new_card(card)
    return new


def _seen_again(scene: Scene, name: str) -> bool:
    """The same was said before, and that card still stands: it is seen once more."""
    before = scene.draft.peek("cards", name)
    if before is not None and before["status"] == "active":
        card = scene.card(name)
        card.update(seen=card["seen"] + 1, last_seen=scene.event.time)
        if card["ttl_s"] is not None:
            card["as_of"] = scene.event.time
        return True
    latent = scene.draft.peek("card_latent", name)
    if latent is None:
        return False
    row = latent["row"]
    scene.draft.edit("card_latent", name)["row"] = {**row, "seen": row["seen"] + 1, "last_seen": scene.event.time}
    return True


def _bring(scene: Scene, card: str, tool: str, weights: Mapping[kinds.Kind, int], *, first_time: bool) -> int:
    """Note where values stand. How much the new ones among them weigh; without any, what is told in words."""
    draft, behind = scene.draft, scene.traced.behind
    news: list[tuple[str, str]] = []
    for value, field in scene.traced.found.items():
        before, here = draft.peek("card_values", value), places_of(tool, behind.get(value) or (field,))
        if before is None:
            news.append((value, field))
            row = {"value": value, "first": card, "last": card, "origins": here, "cards": 1, "uses": 0}
        else:
            row = {
                **before,
                "last": card,
                "origins": with_places(before["origins"], here),
                "cards": before["cards"] + 1,
            }
        draft.put(("card_values", value), row)
    if news or not first_time:
        return kinds.heaviest(news, weights)
    told = scene.traced.told
    return weights[told] if told else 0


def _tell(scene: Scene, card: Card, source: str, tool: str, chars: int) -> None:
    """What the card says of its event."""
    event, traced = scene.event, scene.traced
    template = scene.templates.of(tool) if source == "tool" else PLAIN
    about = template.about(traced.facts)
    entity = (about[0], normal(about[1]) or about[1][:ENTITY_LIMIT]) if about else traced.entity
    looked = source == "tool"
    card.update(
        source=source,
        trust="own" if source == "decision" else "data",
        tool=tool,
        entity=[clip(part, ENTITY_LIMIT) for part in entity] or None,
        attribute="chosen" if source == "decision" and entity else template.attribute,
        fields=list(traced.top),
        facts=list(map(list, traced.facts)),
        values=list(traced.found),
        ttl_s=float(template.ttl_s) or validity.ttl_s(traced.facts, event.time) if looked else None,
        refresh=template.refresh or validity.refresh(traced.fields) if looked else "",
        status="active",
        as_of=event.time,
        last_seen=event.time,
        seen=1,
        chars=chars,
        event_id=event.id,
        partition=scene.recorded.partition,
        epoch=scene.position.epoch,
        n=scene.position.n,
    )
    card.update(agent=event.agent, user=event.user, session=event.session, run=event.run, task=event.task)
