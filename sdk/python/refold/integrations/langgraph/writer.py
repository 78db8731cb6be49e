"""What one process knows of a thread, and whether it may write to it: one writer goes on, another one is told. Pure.

Every event of a thread bears a number, and the log takes each number once. So of two processes that write on from the
same state one wins. A process takes a new state over only at the beginning of a run, when it reads the root's newest
checkpoint; a run that was overtaken keeps its old numbers, or finds that its parent is not the newest any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from refold.errors import Conflict, RefoldError

Place = tuple[str, str]
"""Namespace and checkpoint."""


@dataclass(eq=False)
class Tenure:
    """A process's hold on a thread, from a state that it took over until others go on from there.

    ``lost``: one of its events was not stored. So none that follows may be: its number may be free again, but it
    builds upon what is not there.
    """

    thread: str
    lost: RefoldError | None = None


@dataclass
class Writer:
    """``seq`` numbers the last event that this process knows or has given away; ``heads`` are the newest checkpoints.

    ``known``: it was read at least once. ``forks`` are older checkpoints that were asked for by their ids: to go on
    from them is meant. ``lost`` tells why this process may not write on. ``kept``: the only ones that are left since
    this process gave the others up; ``dropped``: those that it gave up.
    """

    thread: str
    seq: int = 0
    known: bool = False
    heads: dict[str, str] = field(default_factory=dict)
    forks: set[Place] = field(default_factory=set)
    kept: set[Place] | None = None
    dropped: set[Place] = field(default_factory=set)
    lost: str = ""
    tenure: Tenure = field(init=False)

    def __post_init__(self) -> None:
        self.tenure = Tenure(self.thread)

    def learn(self, seq: int, namespace: str, head: str, asked: str = "") -> bool:
        """What a read told: the thread's number, the newest checkpoint there, and which one was ``asked`` for.

        True when others wrote meanwhile: what this process remembers of the thread is not the newest.
        """
        moved = not self.known or bool(self.lost) or seq > self.seq
        if moved and self.known and namespace:
            # in the midst of a run: its root has not seen what others wrote
            self.lost = self.lost or "another process wrote on to it"
            return True
        if moved:
            self.seq, self.known, self.lost = seq, True, ""
            self.tenure = Tenure(self.thread)
            self.forget()
            self.kept = None
            self.dropped.clear()
        self.heads[namespace] = max(head, self.heads.get(namespace, ""))
        if asked and asked != self.heads[namespace]:
            self.forks.add((namespace, asked))
        return moved

    def number(self, events: int) -> int:
        """Take the numbers of the next events; the first of them. Raises Conflict."""
        if self.lost:
            raise self.conflict(self.lost)
        self.seq += events
        return self.seq - events + 1

    def check(self, namespace: str, checkpoint: str, parent: str) -> None:
        """Raise Conflict where a checkpoint would fork the thread without anybody having asked for that.

        And where it goes on from one that was given up: the values that both have in common are gone.
        """
        if parent:
            self.check_there(namespace, parent)
        head = self.heads.get(namespace, "")
        if parent and head not in ("", parent, checkpoint) and (namespace, parent) not in self.forks:
            raise self.conflict(f"checkpoint {checkpoint} goes on from {parent}, but the newest one is {head}")

    def check_there(self, namespace: str, checkpoint: str) -> None:
        """Raise Conflict for a checkpoint that this process has given up."""
        place = namespace, checkpoint
        if place in self.dropped or (self.kept is not None and place not in self.kept):
            raise Conflict(
                f"checkpoint {checkpoint} of thread {self.thread!r} was given up while a run went on from it; nothing "
                "of this was saved. Invoke the graph again to go on from what is left",
                code="thread",
            )

    def advance(self, namespace: str, checkpoint: str) -> None:
        """A checkpoint was given away."""
        self.heads[namespace] = max(checkpoint, self.heads.get(namespace, ""))
        self.forks.discard((namespace, checkpoint))
        self.dropped.discard((namespace, checkpoint))
        if self.kept is not None:
            self.kept.add((namespace, checkpoint))

    def give_up(self, keep: Iterable[Iterable[str]] | None, drop: Iterable[Iterable[str]]) -> None:
        """All checkpoints were given up but for ``keep``, where that is no None, and those of ``drop``."""
        if keep is not None:
            kept = _places(keep)
            self.kept = kept if self.kept is None else kept & self.kept
        self.dropped |= _places(drop)
        self.forget()

    def forget(self) -> None:
        """Which checkpoint is the newest is not known any more."""
        self.heads.clear()
        self.forks.clear()

    def conflict(self, why: str) -> Conflict:
        """The error for a writer that another one has overtaken."""
        return Conflict(
            f"thread {self.thread!r} has another writer: {why}; nothing of this was saved. "
            "Invoke the graph again to go on from the newest checkpoint",
            code="thread",
        )


def _places(pairs: Iterable[Iterable[str]]) -> set[Place]:
    return {(namespace, checkpoint) for namespace, checkpoint in pairs}
