"""Memory cards: what later decisions depend on, kept small, with the way back to the original.

    tool.called        uses values of earlier cards (causal necessity); remembers what it looks at
    tool.returned      a card: skeleton of the result, traced values, what it rules out, whether it changed something
    tool.failed        a card that excludes an option
    message.added      of the user: a card of what was said
    decision.made      uses values of earlier cards; a card of the conclusion, which gives way to a later
                       one on the same question
    card.summarized    a model's summary beside the extracted one

A newer observation of the same thing (same tool and arguments; or the same entity with at least the same fields)
supersedes the older card, which stays. An observation equal to a card's is counted on that card and makes no new one. A
card with nothing new, nothing excluded and nothing changed is not made: its raw event is in the archive all the same.

Work per event is bounded: ``values.MAX_VALUES`` values an event, two cards a value (the one that brought it, the one
that confirmed it last), ``MAX_LINKS`` cards a use, ``MAX_RIVALS`` earlier cards a subject.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from events.event import Recorded
from events.types.thought import CardSummarized, DecisionMade, MessageAdded
from events.types.tools import ToolCalled, ToolFailed, ToolReturned
from projections.bounds import clip, digest, short
from projections.cards import summary
from projections.cards.rules import CAUSAL, CHANGE, CONSTRAINT, NOVELTY, excludes, worth
from projections.cards.tables import BLANKS, TABLES
from projections.cards.trace import call_subject, card_id, text_subject, trace
from projections.draft import Draft
from projections.projection import Change, Projection, Put, RowRef, Rows

MAX_LINKS = 32
MAX_RIVALS = 4
NAME_LIMIT = 200

_HANDLES = frozenset(
    ("tool.called", "tool.returned", "tool.failed", "message.added", "decision.made", "card.summarized")
)

Mutable = dict[str, Any]


def apply(recorded: Recorded, rows: Rows) -> Iterable[Change]:
    """Fold one event of a task."""
    draft = Draft(rows, BLANKS)
    match recorded.payload:
        case ToolCalled() as payload:
            _called(draft, recorded, payload)
        case ToolReturned() | ToolFailed() as payload:
            _answered(draft, recorded, payload)
        case MessageAdded(role="user") as payload:
            text = summary.message_text(payload.content)
            _make(draft, recorded, "user", summary.of_prose(text), {}, chars=len(text))
        case DecisionMade() as payload:
            _decided(draft, recorded, payload)
        case CardSummarized() as payload:
            _summarized(draft, payload)
    return _stamped(draft.changes(), recorded)


def _stamped(changes: list[Change], recorded: Recorded) -> list[Change]:
    """Each card that changed knows the position of the event that changed it, so that an index can follow."""
    for change in changes:
        if change.table == "cards" and isinstance(change, Put):
            change.row.update(changed_epoch=recorded.position.epoch, changed_n=recorded.position.n)  # type: ignore[attr-defined]
    return changes


# --- uses ------------------------------------------------------------------------------------------------------------


def _called(draft: Draft, recorded: Recorded, payload: ToolCalled) -> None:
    call = draft.edit("card_calls", short(recorded.event.run), short(payload.call_id))
    own = call["card"] if not call["called"] else ""  # its result came first
    if call["called"]:
        call.update(answered=False, card="")  # some runtimes use an id again
    call.update(called=True, name=payload.name, subject=call_subject(payload), side_effect=payload.side_effect)
    _use(draft, recorded, "call", payload.call_id, payload.name, spare=own)
    if own:
        card = draft.edit("cards", own)
        card["tool"] = payload.name
        if payload.side_effect:
            _speak(card, CHANGE)
        _supersede(draft, card, call["subject"], whole=True)


def _use(draft: Draft, recorded: Recorded, kind: str, used_by: str, name: str, *, spare: str = "") -> None:
    """Every card that an event's values come from has been used; ``spare`` is the event's own."""
    links: dict[str, list[str]] = {}
    for value in trace(recorded).values:
        if draft.peek("card_values", value) is None:
            continue
        row = draft.edit("card_values", value)
        row["uses"] += 1
        for card in dict.fromkeys((row["first"], row["last"])):
            if card != spare:
                links.setdefault(card, []).append(value)
    for card, values in list(links.items())[:MAX_LINKS]:
        row = draft.edit("cards", card)
        row["uses"] += 1
        _speak(row, CAUSAL)
        use = draft.add("card_uses", card, *recorded.position)
        use.update(kind=kind, used_by=used_by, name=clip(name, NAME_LIMIT), values=values)
        use.update(event_id=recorded.event.id, time=recorded.event.time)


def _speak(card: Mutable, rule: str) -> None:
    reasons = card["reasons"] or {}
    card["reasons"] = {**reasons, rule: reasons.get(rule, 0) + 1}
    card["value"] = worth(card["reasons"])


# --- cards -----------------------------------------------------------------------------------------------------------


def _answered(draft: Draft, recorded: Recorded, payload: ToolReturned | ToolFailed) -> None:
    call = draft.edit("card_calls", short(recorded.event.run), short(payload.call_id))
    if call["answered"]:
        return  # the first result counts
    call["answered"] = True
    reasons: dict[str, int] = {}
    if isinstance(payload, ToolFailed):
        text, words = summary.of_prose(payload.error), "failed"
    else:
        found = excludes(payload.result)
        text, words = summary.of_result(payload.result), found.words if found else ""
    if words:
        reasons[CONSTRAINT] = 1
    if call["side_effect"]:
        reasons[CHANGE] = 1
    card = _make(draft, recorded, "tool", text, reasons, chars=len(recorded.event.data))
    if card is None:
        return
    call["card"] = card["card"]
    card.update(tool=call["name"] or payload.name, call_id=payload.call_id, excludes=words)
    failed = isinstance(payload, ToolFailed)
    _supersede(draft, card, call["subject"], whole=not failed)
    _supersede(draft, card, trace(recorded).subject, whole=False)


def _decided(draft: Draft, recorded: Recorded, payload: DecisionMade) -> None:
    _use(draft, recorded, "decision", recorded.event.id, payload.question)
    card = _make(draft, recorded, "decision", summary.of_decision(payload), {CHANGE: 1}, chars=len(recorded.event.data))
    if card is not None and payload.question:
        _supersede(draft, card, f"question:{digest(' '.join(payload.question.casefold().split()))}", whole=True)


def _make(
    draft: Draft, recorded: Recorded, source: str, text: str, reasons: dict[str, int], *, chars: int
) -> Mutable | None:
    """A new card, or None when the same was said before (that card is seen again) or there is nothing to keep."""
    event, traced, new = recorded.event, trace(recorded), card_id(recorded)
    if not text.strip() and not reasons:
        return None
    said = draft.edit("card_subjects", text_subject(source, traced))
    before = draft.peek("cards", said["cards"][0]) if said["cards"] else None
    if before is not None and before["status"] == "active":
        again = draft.edit("cards", before["card"])
        again.update(seen=again["seen"] + 1, last_seen=event.time)
        return None
    if _bring(draft, traced.values, new) or before is None:
        reasons = {**reasons, NOVELTY: 1}
    said["cards"] = [new]
    card = draft.edit("cards", new)
    card.update(
        source=source,
        summary=text,
        entity=list(traced.entity) or None,
        fields=list(traced.fields),
        facts=[list(fact) for fact in traced.facts],
        trust="own" if source == "decision" else "data",
        values=list(traced.values),
        reasons=reasons,
        value=worth(reasons),
        status="active",
        as_of=event.time,
        last_seen=event.time,
        seen=1,
        chars=chars,
        event_id=event.id,
        partition=recorded.partition,
        epoch=recorded.position.epoch,
        n=recorded.position.n,
    )
    card.update(agent=event.agent, user=event.user, session=event.session, run=event.run, task=event.task)
    return card


def _bring(draft: Draft, values: Sequence[str], card: str) -> bool:
    """Note where values stand. True when one of them is new to the task."""
    news = False
    for value in values:
        row = draft.edit("card_values", value)
        if not row["first"]:
            row["first"] = card
            news = True
        row["last"] = card
        row["cards"] += 1
    return news


def _supersede(draft: Draft, card: Mutable, subject: str, *, whole: bool) -> None:
    """The card becomes the latest on its subject. Older ones that say no more than it does give way.

    ``whole``: whatever it says is all there is to say, so older ones give way in any case.
    """
    if not subject:
        return
    row = draft.edit("card_subjects", subject)
    stay: list[str] = []
    for other in row["cards"] or []:
        if other == card["card"]:
            continue
        old = draft.peek("cards", other)
        if old is None or old["status"] != "active":
            continue
        if whole or (old["fields"] and set(old["fields"]) <= set(card["fields"] or ())):
            draft.edit("cards", other).update(status="superseded", superseded_by=card["card"])
        else:
            stay.append(other)
    row["cards"] = [*stay, card["card"]][-MAX_RIVALS:]


def _summarized(draft: Draft, payload: CardSummarized) -> None:
    if draft.peek("cards", short(payload.card)) is not None:
        draft.edit("cards", short(payload.card)).update(
            model_summary=clip(payload.summary, summary.LIMIT), model=payload.model
        )


# --- prefetch --------------------------------------------------------------------------------------------------------


def names(recorded: Recorded) -> Iterable[RowRef]:
    """The rows that ``apply`` will ask for, but for the cards that values lead to."""
    traced = trace(recorded)
    refs = [RowRef("card_values", (value,)) for value in traced.values]
    match recorded.payload:
        case ToolCalled() as payload:
            refs += _call_refs(recorded, payload.call_id)
            refs += [RowRef("card_subjects", (subject,)) for subject in (call_subject(payload),) if subject]
        case ToolReturned(call_id=call) | ToolFailed(call_id=call):
            refs += [*_call_refs(recorded, call), *_card_refs(recorded, "tool")]
            refs += [RowRef("card_subjects", (subject,)) for subject in (traced.subject,) if subject]
        case MessageAdded(role="user"):
            refs += _card_refs(recorded, "user")
        case DecisionMade():
            refs += _card_refs(recorded, "decision")
        case CardSummarized(card=card):
            refs.append(RowRef("cards", (short(card),)))
    return refs


def _call_refs(recorded: Recorded, call_id: str) -> list[RowRef]:
    return [RowRef("card_calls", (short(recorded.event.run), short(call_id)))]


def _card_refs(recorded: Recorded, source: str) -> list[RowRef]:
    return [RowRef("cards", (card_id(recorded),)), RowRef("card_subjects", (text_subject(source, trace(recorded)),))]


MEMORY_CARDS = Projection(name="memory_cards", version=2, tables=TABLES, handles=_HANDLES, apply=apply, names=names)
