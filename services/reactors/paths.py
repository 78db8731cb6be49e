"""The promoter's evidence that a path is one to leave: each piece is named and dated by its own run's experience.

So it is the same whichever run was read last: a function of the set of experiences, as long as no more arrive before
the path is proposed than are remembered (``rulebook.MOST_TRIES``). Each experience of a failure proposes the rule anew,
with an id and a time that follow from it, and the last of them by time stays.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from events.ids import named_id
from events.times import instant
from services.promotion.pieces import of_path
from services.promotion.rulebook import FAILED, SUCCEEDED, Rulebook, Tried
from services.promotion.rules import Rule, path_rule
from services.reactors.reactor import Reaction

_VERSION_MS = 1_000
"""Milliseconds for each version of the deriver; each revision has one, and no run is judged so often."""


def spoken_at(time: str, version: int, revision: int) -> str:
    """When an experience says what it says: a run that is judged again has the last word on its occasion."""
    later = timedelta(milliseconds=version * _VERSION_MS + revision)
    return (instant(time) + later).isoformat(timespec="milliseconds")


def path_events(reaction: Reaction, path: str, known: Rulebook) -> list[dict[str, Any]]:
    """Proposals and evidence about a path that the log does not have yet; the rulebook counts on them."""
    rule = path_rule(path)
    raws = [raw for tried in of_path(path, known) for raw in _events_of(reaction, rule, tried)]
    news = [raw for raw in raws if raw["id"] not in known.ids]
    known.expect(news)
    return news


def _events_of(reaction: Reaction, rule: Rule, tried: Tried) -> list[dict[str, Any]]:
    common = {"scope": "agent", "because": [tried.event]}
    evidence = {"belief": rule.belief, "supports": tried.label in FAILED, "source": f"run/{tried.run}"}
    evidence["withdrawn"] = tried.label not in FAILED | SUCCEEDED
    said: list[tuple[str, dict[str, Any]]] = [("belief.verified", {**common, **evidence, "by": "promoter"})]
    if evidence["supports"]:
        said.insert(0, ("belief.proposed", {**common, **rule._asdict()}))
    time, org = spoken_at(tried.time, tried.version, tried.revision), reaction.event.org
    named = {"time": time, "causation": tried.event, "correlation": tried.run}
    return [
        {
            **reaction.derive(kind, data, agent=reaction.event.key.removeprefix("agent/")),
            **named,
            "id": named_id("\x1f".join((reaction.reactor, org, tried.event, rule.belief, kind)), instant(time)),
        }
        for kind, data in said
    ]
