"""The forgetter: what an agent has learned from a user's runs goes when the user is erased.

    scope.erased of a user   ``experience.recorded`` of the ``LAST_WORD``, saying nothing, for each run of the user: in
                             the user's scope, and in that of the agent whose counts came from it; and
                             ``belief.verified``, withdrawn, for what such a run said of the agent's other beliefs

The erasure goes to every partition, and each is looked through once, up to the erasure: for runs by the user's name,
and for counts that travelled to an agent by the name that says nothing (``owner_of``). Since the last word has the
highest version there is, a derivation that comes later changes nothing, whichever arrives first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from events.archive.erasing import ERASED
from events.archive.reader import Archived
from events.event import START
from events.types.belief import LAST_WORD, BeliefVerified, ExperienceRecorded, owner_of
from events.types.system import ScopeErased
from services.reactors.reactor import PAGE, Later, Reaction, Reactor, read_recorded

_EXPERIENCE, _VERDICT = "experience.recorded", "belief.verified"
_OF_RUN = "run/"
"""How the occasion of a verdict is called that a run was."""


async def forget(reaction: Reaction) -> Sequence[dict[str, Any]] | Later:
    """Take back what came from the runs of a user, as far as this partition knows of them."""
    payload = reaction.recorded.payload
    if not isinstance(payload, ScopeErased) or payload.level != "user":
        return []
    seen = _Seen(reaction.event.org, payload.subject)
    after, upto = START, reaction.source.position
    while page := await reaction.archive.read(reaction.source.partition, after, PAGE, upto):
        for archived in page:
            seen.add(archived)
        after = page[-1].position
    derived = [_last_word(reaction, "user", run, user=payload.subject) for run in sorted(seen.runs)]
    derived += [_last_word(reaction, "agent", run, agent=agent) for run, agent in seen.counted()]
    return derived + [_withdrawn(reaction, *verdict) for verdict in seen.verdicts()]


class _Seen:
    """The runs of a user that a partition tells of, and the agents that may have learned from them."""

    def __init__(self, org: str, user: str) -> None:
        self._org, self._user, self._owner = org, user, owner_of(org, user)
        self._agents: dict[str, set[str]] = defaultdict(set)
        self._told: set[tuple[str, str]] = set()
        self._verdicts: set[tuple[str, str, str]] = set()
        self.runs: set[str] = set()

    def add(self, archived: Archived) -> None:
        """Take in one event of the partition."""
        event = archived.event()
        if event.org != self._org or archived.verdict not in ("effective", ERASED):
            return
        if event.run and event.key.startswith("task/"):
            self._agents[event.run].add(event.agent)
            if event.user == self._user:
                self.runs.add(event.run)
        elif event.type in (_EXPERIENCE, _VERDICT) and event.key.startswith("agent/"):
            recorded = read_recorded(archived)
            match recorded and recorded.payload:
                case ExperienceRecorded(owner=self._owner, run=run):
                    self._told.add((run, event.agent))
                case BeliefVerified(source=source, belief=belief) if source.startswith(_OF_RUN):
                    self._verdicts.add((event.agent, belief, source))

    def counted(self) -> list[tuple[str, str]]:
        """(run, agent) wherever the agent's scope may hold counts of the run."""
        own = {(run, agent) for run in self.runs for agent in self._agents[run] if agent}
        return sorted(own | self._told)

    def verdicts(self) -> list[tuple[str, str, str]]:
        """(agent, belief, occasion) of what the runs said of an agent's beliefs."""
        runs = self.runs | {run for run, _ in self._told}
        return sorted(one for one in self._verdicts if one[2].removeprefix(_OF_RUN) in runs)


def _withdrawn(reaction: Reaction, agent: str, belief: str, source: str) -> dict[str, Any]:
    data = {"belief": belief, "supports": False, "withdrawn": True, "source": source, "scope": "agent"}
    return reaction.derive(_VERDICT, data, part=f"verdict/{agent}/{belief}/{source}", agent=agent)


def _last_word(reaction: Reaction, level: str, run: str, **names: str) -> dict[str, Any]:
    data = {"run": run, "deriver_version": LAST_WORD, "scope": level}
    return reaction.derive(_EXPERIENCE, data, part=f"{level}/{'/'.join(names.values())}/{run}", **names)


FORGETTER = Reactor(name="forgetter", handles=frozenset(("scope.erased",)), react=forget)
