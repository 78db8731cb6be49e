"""One partition of one generation in the hands of its owner: read, fold, commit, again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from sqlalchemy import Connection

from events.archive.reader import Archived
from events.archive.schema import EFFECTIVE
from events.archive.subjects import ERASURE
from events.database import overwriting
from events.database_errors import CommitUnknown
from events.errors import Fenced, Transient
from events.event import Position
from projections.engine import checkpoints, erasing, repair
from projections.engine.cache import RowCache
from projections.engine.checkpoints import Claim
from projections.engine.fold import DeadLetter, Fold, Folded, PartitionKey, Refusal, Stumbled
from projections.engine.shapes import RowKey, unread_tables
from projections.engine.source import DenseReader, Source
from projections.engine.store import UNWRITABLE, GenerationStore, unpark, write

SYSTEMIC_KEYS = 10
"""Keys that must fail together, with no event succeeding, before a fault of the system is suspected."""


@dataclass(frozen=True)
class Step:
    """What one step did: ``read`` positions are behind us now, of which ``applied`` events changed the read model.

    ``failed`` are the dead letters that it left and that a person is to look at: not those that only wait for an
    earlier one of their key, nor what newer code will fold.
    """

    read: int
    applied: int
    position: Position
    failed: tuple[DeadLetter, ...] = ()


class PartitionFolder:
    """Folds one claimed partition in steps of at most ``batch`` events. Blocking; one thread at a time.

    ``single`` tells that the next step takes one event alone, since processes died here: the caller then lets nothing
    else run in this process meanwhile, so that the next death has one explanation.
    ``refused`` are events to park unseen. ``patience`` is how many times a batch in which everything fails, for many
    keys, is held back as a fault of the system before it is parked event by event; and how many times one event that
    fails as if the machine did (no memory, no file, no module) is, before it is to blame if others succeed.
    """

    def __init__(
        self,
        store: GenerationStore,
        source: Source,
        claim: Claim,
        *,
        batch: int = 500,
        cache_rows: int = 100_000,
        refused: Mapping[Position, Refusal] | None = None,
        patience: int = 0,
    ) -> None:
        self.store = store
        self.claim = claim
        self._source = source
        self._reader = DenseReader(source, claim.partition)
        self._batch = batch
        own = store.projection.cache_rows
        most = cache_rows if own is None else min(own, cache_rows)
        self._cache = RowCache(most, complete=claim.position < Position(1, 0), unread=unread_tables(store.shapes))
        self._refused = dict(refused or {})
        self._patience = self._patience_left = patience
        self._stumbles: dict[tuple[Position, str], int] = {}
        self._singles = batch if claim.suspicious else 0

    @classmethod
    def take_over(
        cls,
        store: GenerationStore,
        source: Source,
        partition: int,
        owner: str,
        *,
        batch: int = 500,
        cache_rows: int = 100_000,
        refused: Mapping[Position, Refusal] | None = None,
        patience: int = 0,
    ) -> PartitionFolder:
        """Become the owner of a partition. Raises Fenced while the generation is sealed."""
        claim = store.db.write_now(lambda conn: checkpoints.take_over(conn, partition, owner))
        return cls(store, source, claim, batch=batch, cache_rows=cache_rows, refused=refused, patience=patience)

    @property
    def single(self) -> bool:
        """Whether the next step takes one event alone."""
        return self._singles > 0

    @property
    def position(self) -> Position:
        """The checkpoint."""
        return self.claim.position

    def step(self, upto: Position | None = None, limit: int | None = None) -> Step:
        """Fold the next events, none past ``upto``, at most ``limit``; ``read`` is 0 when there are none.

        Raises Fenced when the partition is somebody else's by now (this object is of no more use), Transient for what
        passes (nothing has happened; call again later).
        """
        size = self._batch if limit is None else min(limit, self._batch)
        batch = self._cut(self._reader.read(self.claim.position, size, upto))
        if not batch:
            return Step(0, 0, self.claim.position)
        if not self.single:
            return self._take(batch)
        self._singles -= len(batch)
        return self._take_alone(batch) if self._wanted(batch[0]) else self._take(batch)

    def hand_over(self) -> None:
        """Give the partition up cleanly."""
        self.store.db.write_now(lambda conn: checkpoints.hand_over(conn, self.claim))

    def show_paused(self, reason: str) -> None:
        """Show in the generation why the partition waits; the next advance clears it."""
        self.store.db.write_now(lambda conn: checkpoints.set_paused(conn, self.claim, reason))

    def _cut(self, batch: Sequence[Archived]) -> Sequence[Archived]:
        """The part of a batch that one step takes: a discard or an erasure alone; in single steps, any folded one."""
        for index, archived in enumerate(batch):
            discard = archived.type == repair.DISCARDED and repair.discard_of(self.store.projection, archived)
            if discard or _erases(archived) or (self.single and self._wanted(archived)):
                return batch[: index or 1]
        return batch

    def _wanted(self, archived: Archived) -> bool:
        if archived.type == repair.DISCARDED:
            return True
        return archived.type in self.store.projection.handles and archived.verdict == EFFECTIVE

    def _take(self, batch: Sequence[Archived]) -> Step:
        if repair.discard_of(self.store.projection, batch[0]) is not None:
            return self._discard(batch[0])
        if _erases(batch[0]):
            return self._erase(batch[0])
        return self._fold(batch)

    def _take_alone(self, batch: Sequence[Archived]) -> Step:
        """One event with a mark around it, by which the next owner knows what this process died of, if it does."""
        db, claim = self.store.db, self.claim
        if claim.strikes >= checkpoints.STRIKES and batch[0].type != repair.DISCARDED:
            text = f"the process ended {claim.strikes} times while it folded this event alone"
            self._refused[batch[0].position] = Refusal("killed", text)
        db.write_now(lambda conn: checkpoints.mark_alone(conn, claim, True))
        try:
            return self._take(batch)
        except Transient:
            with suppress(Transient):
                db.write_now(lambda conn: checkpoints.mark_alone(conn, claim, False))
            raise

    def _fold(self, batch: Sequence[Archived]) -> Step:
        folded = self._folded(batch)
        self._check_systemic(folded)
        try:
            self._commit(batch[-1].position, folded)
        except Transient:
            raise
        except UNWRITABLE as error:
            return self._unwritable(batch, error)
        return self._done(batch, folded)

    def _folded(self, batch: Sequence[Archived]) -> Folded:
        """The batch in memory. A failure of the machine is the event's own when others succeed beside it."""
        blamed: set[Position] = set()
        while True:
            fold = Fold(
                self.store.projection, self.store.shapes, self._cache, self._load, self.claim.parked, self._refused,
                blamed,
            )  # fmt: skip
            try:
                folded = fold.run(batch)
            except Stumbled as stumbled:
                if not self._is_repeated(stumbled) or len(blamed) >= SYSTEMIC_KEYS:
                    raise
                blamed.add(stumbled.position)
                continue
            if blamed and not folded.applied:
                raise Transient(f"{folded.letters[0].error}, and no other event succeeds")
            return folded

    def _is_repeated(self, stumbled: Stumbled) -> bool:
        """Whether this event has met this failure more often than patience bears."""
        outcome = (stumbled.position, str(stumbled))
        self._stumbles[outcome] = self._stumbles.get(outcome, 0) + 1
        return self._stumbles[outcome] > self._patience

    def _check_systemic(self, folded: Folded) -> None:
        """Many keys fail and nothing succeeds: rather a fault of the system than of so many events.

        Events that are newer than this code are no failure: they are parked for the code that knows them.
        """
        failed = [letter for letter in folded.letters if letter.cause == "poison"]
        if folded.applied or len(failed) < SYSTEMIC_KEYS:
            self._patience_left = self._patience
        elif self._patience_left:
            self._patience_left -= 1
            raise Transient(f"events of {len(failed)} keys fail, none succeeds: {failed[0].error}")

    def _unwritable(self, batch: Sequence[Archived], error: Exception) -> Step:
        """The store refuses the rows: find the event in single steps, and park it when it is alone."""
        if len(batch) > 1:
            self._singles = len(batch)
            return self.step(batch[-1].position)
        self._refused[batch[0].position] = repair.unwritable(error)
        return self._fold(batch)

    def _discard(self, archived: Archived) -> Step:
        try:
            repaired = self._commit_without(archived)
        except Transient:
            raise
        except UNWRITABLE as error:
            repaired = self._commit_without(archived, repair.unwritable(error))
        self.claim.parked.discard(repaired.owner)
        return self._done([archived], repaired.folded)

    def _commit_without(self, archived: Archived, held: Refusal | None = None) -> repair.Repaired:
        repaired = repair.without(self.store, self._reader, self._cache, archived, self.claim.parked, held)
        self._commit(archived.position, repaired.folded, also=lambda conn: unpark(conn, repaired.owner))
        return repaired

    def _erase(self, archived: Archived) -> Step:
        """Make the keys anew that lost events to an erasure, in as many transactions as it takes.

        The checkpoint moves last: whoever takes over in between begins with the erasure again. The owner epoch rises,
        so that whoever keeps rows in memory and follows what changes reads them anew.
        """
        partition = self.claim.partition
        for owners, folded in erasing.made_anew(self.store, self._source.log, partition, archived.position):
            self.store.db.write_now(partial(self._make_anew, owners=owners, folded=folded))
            self._cache.learn(folded.rows)
            self.claim.parked.difference_update(owners)
            self.claim.parked |= folded.parked.keys()
        folded = self._folded([archived])
        also = partial(checkpoints.raise_owner_epoch, partition=partition)
        self._commit(archived.position, folded, also, raised=1)
        self.claim.owner_epoch += 1
        return self._done([archived], folded)

    def _make_anew(self, conn: Connection, owners: Collection[PartitionKey], folded: Folded) -> None:
        checkpoints.advance(conn, self.claim, self.claim.position)
        with overwriting(conn):
            for owner in owners:
                unpark(conn, owner)
            write(conn, self.store.shapes, folded, self.claim.partition)

    def _done(self, batch: Sequence[Archived], folded: Folded) -> Step:
        self._cache.learn(folded.rows)
        self._cache.shrink()
        self.claim.parked |= folded.parked.keys()
        self.claim.position = batch[-1].position
        self.claim.strikes = self.claim.unclean = 0
        self._stumbles.clear()
        failed = tuple(letter for letter in folded.letters if letter.cause not in ("waiting", "newer_version"))
        return Step(len(batch), folded.applied, self.claim.position, failed)

    def _load(self, names: Collection[RowKey]) -> None:
        self._cache.learn(self.store.load(names))

    def _commit(
        self, new: Position, folded: Folded, also: Callable[[Connection], None] | None = None, raised: int = 0
    ) -> None:
        """``raised``: by how much ``also`` raises the owner epoch."""

        def work(conn: Connection) -> None:
            checkpoints.advance(conn, self.claim, new)
            if also is not None:
                also(conn)
            write(conn, self.store.shapes, folded, self.claim.partition)

        try:
            self.store.db.write_now(work)
        except CommitUnknown:
            self._settle(new, raised)

    def _settle(self, new: Position, raised: int) -> None:
        """The store failed during the commit: the checkpoint tells whether it holds."""
        read = self.store.db.read_now(lambda conn: checkpoints.read_position(conn, self.claim.partition))
        if read == (new, self.claim.owner_epoch + raised):
            return
        if read == (self.claim.position, self.claim.owner_epoch):
            raise Transient(f"partition {self.claim.partition}: the commit to {new} did not hold; it is tried again")
        raise Fenced(f"partition {self.claim.partition}: somebody else took it over during a commit")


def _erases(archived: Archived) -> bool:
    return archived.type == ERASURE and archived.verdict == EFFECTIVE
