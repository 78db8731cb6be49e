"""Memory cards: what later decisions depend on, kept small, with the way back to the original.

    run.started          the mode that weighs values; the parameters that its tools may ask for
    plan.updated, step.* open steps, whose words tell what may still be asked for
    tool.called          uses values of earlier cards (causal necessity), counts from which field to which parameter;
                         remembers what it looks at
    tool.returned        a card: its facts, traced values, what it rules out, whether it changed something
    tool.failed          a card that excludes an option
    message.added        of the user: a card of what was said
    decision.made        uses values of earlier cards; a card of the conclusion, which gives way to a later
                         one on the same question
    card.summarized      a model's summary beside the extracted one
    card.invalidated     the card does not hold; card.restored: it does again

Cards on one subject (the same tool and arguments, the same entity, the same question) meet as ``cards.conflicts``
tells. An observation equal to a card's is counted on that card and makes no new one. What has too little to speak for
it waits in ``card_latent``, with its values traced all the same, and becomes a card when something uses it.

Work per event is bounded: ``MAX_VALUES`` values an event, two cards a value (the one that brought it, the one that
confirmed it last), ``MAX_LINKS`` cards a use, ``MAX_RIVALS`` earlier cards a subject.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from events.event import Recorded
from events.types.plan import PlanUpdated, StepCompleted, StepFailed, StepSkipped, StepStarted
from events.types.run import RunStarted
from events.types.thought import CardInvalidated, CardRestored, CardSummarized, DecisionMade, MessageAdded
from events.types.tools import ToolCalled, ToolFailed, ToolReturned
from projections.bounds import clip, short
from projections.cards import conflicts, flows, needs
from projections.cards.extract import GAP
from projections.cards.making import NAME_LIMIT, observe
from projections.cards.rules import CAUSAL, CHANGE, CONSTRAINT, excludes
from projections.cards.scene import Card, Scene, speak
from projections.cards.secrecy.secrets import masked_text
from projections.cards.summary import LIMIT, of_decision, summarize
from projections.cards.tables import TABLES
from projections.cards.templates import SHIPPED, Templates
from projections.cards.trace import call_subject, card_id, entity_subject, forget, question_subject, text_subject, trace
from projections.projection import Change, Projection, RowRef, Rows

MAX_LINKS = 32
MAX_USED = 64
"""Values in use that a card's summary is made for, at most."""

_HANDLES = frozenset((
    "run.started", "plan.updated", "step.started", "step.completed", "step.failed", "step.skipped", "tool.called",
    "tool.returned", "tool.failed", "message.added", "decision.made", "card.summarized", "card.invalidated",
    "card.restored",
))  # fmt: skip


def apply(recorded: Recorded, rows: Rows, templates: Templates = SHIPPED) -> Iterable[Change]:
    """Fold one event of a task. ``templates``: how results of tools read."""
    match recorded.payload:
        case MessageAdded(role=role) if role != "user":
            return ()
    scene = Scene(recorded, rows, templates)
    match recorded.payload:
        case ToolCalled() as payload:
            _called(scene, payload)
        case ToolReturned() | ToolFailed() as payload:
            _answered(scene, payload)
        case MessageAdded():
            observe(scene, "user", {}, chars=len(recorded.event.data))
        case DecisionMade():
            _decided(scene)
        case CardSummarized() as payload:
            _summarized(scene, payload)
        case CardInvalidated() | CardRestored() as payload:
            _judged(scene, payload)
        case _:
            _needed(scene)
    forget(recorded)
    return scene.draft.changes()


# --- uses ------------------------------------------------------------------------------------------------------------


def _called(scene: Scene, payload: ToolCalled) -> None:
    call = scene.draft.edit("card_calls", short(scene.event.run), short(payload.call_id))
    own = call["card"] if not call["called"] else ""  # its result came first
    if call["called"]:
        call.update(answered=False, card="")  # some runtimes use an id again
    call.update(
        called=True, name=payload.name, subject=call_subject(payload, scene.traced), side_effect=payload.side_effect
    )
    _use(scene, "call", payload.call_id, payload.name, spare=own)
    flows.called(scene.draft, scene.event.agent, payload.name)
    card = scene.woken(own) if own else None
    if card is not None:
        card["tool"] = payload.name
        card["summary"] = summarize(scene.facts_of(card), scene.templates.of(payload.name), card["used"] or ())
        if payload.side_effect:
            speak(card, CHANGE)
        conflicts.settle(scene.draft, scene.card, card, call["subject"], whole=True)


def _use(scene: Scene, kind: str, used_by: str, name: str, *, spare: str = "", made: str = "") -> None:
    """Every card that an event's values come from has been used; ``spare`` is the event's own."""
    links: dict[str, list[str]] = {}
    found: list[flows.Flow] = []
    origin: dict[str, str] = {}
    for value, parameter in scene.traced.found.items():
        row = scene.draft.edit_known("card_values", value)
        if row is None:
            continue
        row["uses"] += 1
        stood = flows.places(row["origins"])
        origin[value] = "" if stood[0][1].startswith("~") else stood[0][1]
        found += [(tool, field, parameter) for tool, field in stood]
        for card in (row["first"], row["last"]) if row["first"] != row["last"] else (row["first"],):
            if card != spare:
                links.setdefault(card, []).append(value)
    if kind == "call":
        flows.flowed(scene.draft, scene.event.agent, name, found)
    for card, values in list(links.items())[:MAX_LINKS]:
        used = scene.woken(card)
        if used is not None:
            _used(scene, used, values)
            links_of = [[value, origin[value], scene.traced.found[value]] for value in values]
            scene.draft.put(("card_uses", card, *scene.position), {
                "card": card, "epoch": scene.position.epoch, "n": scene.position.n, "kind": kind, "used_by": used_by,
                "name": clip(name, NAME_LIMIT), "values": values, "links": links_of, "run": short(scene.event.run),
                "made": made, "event_id": scene.event.id, "time": scene.event.time,
            })  # fmt: skip


def _used(scene: Scene, card: Card, values: list[str]) -> None:
    card["uses"] += 1
    speak(card, CAUSAL)
    before = card["used"] or []
    new = [value for value in values if value not in before]
    if not new or len(before) >= MAX_USED:
        return
    card["used"] = [*before, *new][:MAX_USED]
    template = scene.templates.of(card["tool"])
    cut = GAP in card["summary"] or template.fields or template.leave_out  # only then it lacks anything
    if not cut or card["source"] == "decision":
        return
    said = card["summary"].casefold()
    if any(value.removeprefix("-") not in said for value in new):  # a day without its year stands there with it
        card["summary"] = summarize(scene.facts_of(card), template, card["used"])


# --- cards -----------------------------------------------------------------------------------------------------------


def _answered(scene: Scene, payload: ToolReturned | ToolFailed) -> None:
    call = scene.draft.edit("card_calls", short(scene.event.run), short(payload.call_id))
    if call["answered"]:
        return  # the first result counts
    call["answered"] = True
    failed = isinstance(payload, ToolFailed)
    found = None if failed else excludes(scene.traced.content)
    words = "failed" if failed else found.words if found else ""
    reasons = {rule: 1 for rule, speaks in ((CONSTRAINT, words), (CHANGE, call["side_effect"])) if speaks}
    tool = call["name"] or payload.name
    subjects = ((call["subject"], not failed),)
    more = {"call_id": payload.call_id, "excludes": words}
    call["card"] = observe(
        scene, "tool", reasons, chars=len(scene.event.data), tool=tool, subjects=subjects, **more
    )  # fmt: skip


def _decided(scene: Scene) -> None:
    made: DecisionMade = scene.traced.content  # without its secrets
    _use(scene, "decision", scene.event.id, made.question, made=card_id(scene.recorded))
    summary = of_decision(made)
    subject = question_subject(scene.traced)
    observe(scene, "decision", {CHANGE: 1}, chars=len(scene.event.data), summary=summary, subjects=((subject, True),))


def _summarized(scene: Scene, payload: CardSummarized) -> None:
    card = scene.woken(short(payload.card))
    if card is not None and payload.summary:
        card.update(model_summary=clip(masked_text(payload.summary), LIMIT), model=payload.model)


def _judged(scene: Scene, payload: CardInvalidated | CardRestored) -> None:
    """Somebody says that the card does not hold, or that it does again."""
    card = scene.woken(short(payload.card))
    if card is None:
        return
    if isinstance(payload, CardInvalidated):
        conflicts.invalidate(card, scene.event.id)
    else:
        conflicts.restore(card, scene.event.time)
    conflicts.reconsider(scene.draft, scene.card, card, entity_subject(card["entity"] or (), card["attribute"]))


# --- what may still be asked for -------------------------------------------------------------------------------------


def _needed(scene: Scene) -> None:
    match scene.recorded.payload:
        case RunStarted(mode=mode, tools=tools):
            row = scene.draft.edit("card_needs")
            row["mode"] = mode
            if tools is not None and (tools.content is not None or tools.digest != row["tools"]):
                row["tools"] = tools.digest
                row["parameters"] = needs.parameters(tools.content)
        case PlanUpdated(steps=steps):
            titles = {step.id: step.title for step in steps if step.status in ("planned", "in_progress")}
            scene.draft.edit("card_needs")["steps"] = needs.open_steps({}, titles)
        case StepStarted(step=step, title=title) if title:
            row = scene.draft.edit("card_needs")
            row["steps"] = needs.open_steps(row["steps"] or {}, {step: title})
        case StepCompleted(step=step) | StepFailed(step=step) | StepSkipped(step=step):
            row = scene.draft.edit("card_needs")
            row["steps"] = {name: words for name, words in (row["steps"] or {}).items() if name != step}
        case _:
            pass


# --- prefetch --------------------------------------------------------------------------------------------------------


def names(recorded: Recorded) -> Iterable[RowRef]:
    """The rows that ``apply`` will ask for, but for the cards that values lead to."""
    match recorded.payload:
        case CardSummarized(card=card) | CardInvalidated(card=card) | CardRestored(card=card):
            return [RowRef("cards", (short(card),)), RowRef("card_latent", (short(card),))]
        case ToolCalled() | ToolReturned() | ToolFailed() | DecisionMade() | MessageAdded(role="user"):
            return _named(recorded)
        case MessageAdded():
            return ()
        case _:
            return [RowRef("card_needs")]


def _named(recorded: Recorded) -> list[RowRef]:
    traced, event = trace(recorded), recorded.event
    refs = [RowRef("card_values", (value,)) for value in traced.found]
    subjects = [entity_subject(traced.entity)]
    match recorded.payload:
        case ToolCalled() as payload:
            refs.append(RowRef("card_calls", (short(event.run), short(payload.call_id))))
            refs += (RowRef("card_flows", (short(event.agent), short(payload.name))), RowRef("card_needs"))
            return [*refs, RowRef("card_subjects", (call_subject(payload, traced),))]
        case ToolReturned(call_id=call) | ToolFailed(call_id=call):
            refs.append(RowRef("card_calls", (short(event.run), short(call))))
            source = "tool"
        case DecisionMade():
            subjects = [entity_subject(traced.entity, "chosen"), question_subject(traced)]
            source = "decision"
        case _:
            source = "user"
    refs += [RowRef("card_subjects", (subject,)) for subject in (text_subject(source, traced), *subjects) if subject]
    return [*refs, RowRef("card_needs")]


MEMORY_CARDS = Projection(name="memory_cards", version=4, tables=TABLES, handles=_HANDLES, apply=apply, names=names)


def memory_cards(templates: Templates) -> Projection:
    """The read model with a deployment's own templates."""
    return replace(MEMORY_CARDS, apply=partial(apply, templates=templates), parameters=templates.parameters())
