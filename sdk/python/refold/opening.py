"""What both clients begin with: their settings, and opening a run."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, TypeVar

from refold import ids
from refold.address import find, is_inbox
from refold.core import RunCore
from refold.delivery import Delivery, Policy
from refold.envelope import Scope
from refold.errors import Conflict, RefoldError
from refold.options import Options, spool_folder
from refold.vocabulary import addressed, configured, filled

RunT = TypeVar("RunT")


class Client(ABC, Generic[RunT]):
    """A connection to a backend, for one agent.

    ``url`` is ``http://HOST:PORT``, or left out: ``REFOLD_URL``, else the instance whose data folder is
    ``REFOLD_DATA`` or ``.refold`` here, else http://127.0.0.1:8321. ``redis://HOST:PORT`` publishes to the inbox, which
    answers nothing: no conflicts, no ``resume=True``, no ``side_effect=True``. ``org`` (left out: ``REFOLD_ORG``),
    ``agent``, ``user`` and ``session`` stand in every event unless a run says otherwise. Events that cannot be sent
    wait in ``spool``: a folder; True is ``REFOLD_SPOOL`` or the user's state folder, False memory only.
    ``ack="fast"`` takes the log's word for the archive's, before a side effect too. ``timeout_s`` bounds every wait
    for the backend.

    Raises ValueError for an address or a name that cannot be.
    """

    _delivery: Delivery

    def __init__(
        self,
        url: str | None = None,
        *,
        org: str = "",
        agent: str = "",
        user: str = "",
        session: str = "",
        ack: Literal["durable", "fast"] = "durable",
        api_key: str = "",
        spool: str | os.PathLike[str] | bool = True,
        policy: Policy | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        scope = Scope(org or os.environ.get("REFOLD_ORG", ""), agent, user, session)
        self._options = Options(find(url), scope, ack, api_key, spool_folder(spool), policy or Policy(), timeout_s)
        self._open()

    def run(
        self,
        goal: str = "",
        *,
        task: str | None = None,
        resume: bool = False,
        run: str | None = None,
        user: str | None = None,
        session: str | None = None,
        agent: str | None = None,
        settles: Literal["agent", "backend"] = "backend",
        settle: Callable[[str], Any] | None = None,
        settle_deadline_s: float | None = None,
        mode: str = "",
        model: str = "",
        parent_run: str = "",
        budget: Mapping[str, Any] | None = None,
        system_prompt: Any = None,
        tools: Any = None,
        checkpoint_version: str = "",
    ) -> RunT:
        """One attempt at a task, to be used as ``with client.run(...) as run`` (``async with`` in the async client).

        With ``resume`` it goes on where the task's last attempt ended (and begins it when there is none). Entering it
        raises Conflict when another worker has the task, Refused when the backend refuses its beginning, and with
        ``resume`` Unavailable when nobody can tell, and NewerCheckpoint when the last checkpoint is of a newer schema
        than ``checkpoint_version``, the one that this code writes and reads. What of model, prompt and tools is not as
        the last attempt had it is logged, and stands in ``run.resumed.changed``. Raises RefoldError for ``resume``
        through the inbox.

        The run leaves notes at its end: by the backend, which asks the run's ``model``; by ``run.settle`` with
        ``settles="agent"``; or by ``settle``, a function that hands a prompt to the agent's own model and returns its
        answer (see ``refold.settling``). ``settle_deadline_s`` is how long the backend leaves the latter two.
        """
        if resume:
            self.must_answer("`resume=True` asks what earlier attempts left")
        run_id = run or ids.uuid7()
        scope = self._options.scope.narrow(user=user, session=session, agent=agent, task=task or run_id, run=run_id)
        about = filled(
            goal=goal,
            mode=mode,
            model=model,
            parent_run=parent_run,
            budget=budget,
            settle_deadline_s=settle_deadline_s,
            system_prompt=addressed(system_prompt),
            tools=addressed(tools),
        )
        versions = configured(model=model, system_prompt=system_prompt, tools=tools)
        by = "agent" if settle else settles
        core = RunCore(scope, settles=by, about=about, versions=versions, checkpoint_version=checkpoint_version)
        core.notes = settle
        return self._new_run(core, resume)

    @property
    def dropped(self) -> int:
        """How many events could be kept nowhere: neither the backend nor a spool took them."""
        return self._delivery.dropped

    # ---- for runs

    @property
    def absence(self) -> str:
        """Why events wait, and where."""
        return self._delivery.absence

    def conflict(self, run: str) -> Conflict | None:
        """The conflict that ended a run, if one did."""
        return self._delivery.conflict(run)

    def must_answer(self, why: str) -> None:
        """Raise RefoldError where nothing that is published is ever answered: on the inbox."""
        if is_inbox(self._options.url):
            raise RefoldError(f"{why}, and the inbox answers nothing: use the instance's address, http://HOST:PORT")

    @abstractmethod
    def _open(self) -> None:
        """Make everything that a client has beside its settings."""

    @abstractmethod
    def _new_run(self, core: RunCore, resume: bool) -> RunT:
        """The run that a core belongs to."""
