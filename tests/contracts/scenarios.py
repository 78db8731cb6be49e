"""Short stories in which one safeguard matters: each holds with it, and fails an assertion without it.

``test_mutants.py`` takes the safeguards out, one at a time, and tells these by ``python -m tests.contracts.scenarios
NAME`` on the damaged code: exit status 3 says that an assertion failed.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import projections
from events.archive.reader import Archived
from events.archive.store import archive_batch, end_epoch
from events.database import Database
from events.database_errors import CommitUnknown
from events.errors import Fenced, Transient
from events.event import Position
from projections import generations
from projections.engine import checkpoints, dead_letters
from projections.engine.birth import create_store
from projections.engine.folder import PartitionFolder
from projections.engine.projector import Projector
from projections.engine.source import ArchiveSource, LogGap
from projections.engine.store import GenerationStore
from projections.projection import Projection
from projections.rebuilding.rebuild import rebuild
from projections.rebuilding.swap import swap
from tests.contracts.engine_lab import PARTITIONS, TOY, Lab, dump, lab_in, note, where
from tests.contracts.naive import naive_fold
from tests.contracts.owners import dump_of, whole_log

CAUGHT = 3
HERE = where("t")


class World:
    """A log, one generation of the toy, and the one task "t" that everything is about."""

    def __init__(self, lab: Lab, store: GenerationStore) -> None:
        self.lab, self.store = lab, store

    def owner(self, name: str, projection: Projection = TOY, **options: Any) -> PartitionFolder:
        store = GenerationStore(projection, self.store.db)
        return PartitionFolder.take_over(store, ArchiveSource(self.lab.log), HERE, name, **options)

    def notes(self, *numbers: int) -> None:
        self.lab.archive(*(note(f"e{n}", "t", "a", n) for n in numbers))

    def check(self) -> None:
        """The rows are those of the log."""
        assert dump_of(self.store.db, TOY) == naive_fold(TOY, whole_log(self.lab.log)), "the rows are not the log's"


@contextmanager
def world(folder: Path) -> Iterator[World]:
    lab = lab_in(folder)
    store = GenerationStore(TOY, lab.stores.generation("toy__g1"))
    store.create(PARTITIONS)
    yield World(lab, store)
    store.db.close()
    lab.log.close()


def drain(folder: PartitionFolder) -> PartitionFolder:
    while folder.step().read:
        pass
    return folder


def must_be(expected: type[Exception], work: Callable[[], Any], what: str) -> None:
    """The work is stopped by this error, and by no other, which would be luck."""
    try:
        work()
    except expected:
        return
    except Exception as error:
        raise AssertionError(f"{what}: stopped by {error!r} alone") from error
    raise AssertionError(what)


def a_zombie_that_lags(folder: Path) -> None:
    """An owner is frozen behind its successor, and wakes."""
    with world(folder) as w:
        zombie = w.owner("zombie", batch=1)
        w.notes(1, 2, 3)
        zombie.step()
        drain(w.owner("successor"))
        must_be(Fenced, zombie.step, "a zombie committed")
        w.check()


def a_zombie_at_the_same_position(folder: Path) -> None:
    """Two owners stand at one checkpoint: the position alone does not tell them apart."""
    with world(folder) as w:
        zombie = w.owner("zombie")
        w.owner("successor")
        w.notes(1)
        must_be(Fenced, zombie.step, "a zombie committed")


def a_claim_used_twice(folder: Path) -> None:
    """A commit that was thought lost arrives after all: the owner is right, the position is not."""
    with world(folder) as w:
        w.notes(1)
        owner = w.owner("owner")
        twin = PartitionFolder(w.store, ArchiveSource(w.lab.log), replace(owner.claim, parked=set()))
        owner.step()
        must_be(Fenced, twin.step, "one claim committed the same events twice")


def a_sealed_generation(folder: Path) -> None:
    """Another generation takes its place: nobody may advance it, however right its claim is."""
    with world(folder) as w:
        owner = w.owner("owner")
        w.notes(1)
        w.store.db.write_now(lambda conn: checkpoints.seal(conn, True))
        epoch = w.store.db.read_now(lambda conn: checkpoints.read_position(conn, HERE))[1]
        owner.claim.owner_epoch = epoch
        must_be(Fenced, owner.step, "a sealed generation was advanced")


def a_clean_hand_over(folder: Path) -> None:
    """An owner stops in the middle of the log, the next one goes on."""
    with world(folder) as w:
        w.notes(1, 2, 3, 4)
        first = w.owner("first", batch=2)
        first.step()
        first.hand_over()
        drain(w.owner("second"))
        w.check()


def an_owner_that_is_new(folder: Path) -> None:
    """Who takes over in the middle of a log knows nothing of the rows that are there."""
    with world(folder) as w:
        w.notes(1)
        drain(w.owner("first"))
        w.notes(2)
        drain(w.owner("second"))
        w.check()


def a_worker_that_was_fenced(folder: Path) -> None:
    """It takes its partition over again, and must not remember rows that others have written since."""

    async def run(w: World) -> None:
        projector = Projector([TOY], w.lab.stores, w.lab.log, "projector", lease_ttl_s=5.0, poll_s=60.0)
        await asyncio.to_thread(w.notes, 1)
        await projector.start()
        await until(w, projector, 1)
        last = await asyncio.to_thread(fold_by_another, w, 2)
        await asyncio.to_thread(w.notes, last + 1)
        await until(w, projector, last + 1)
        await projector.stop()

    def fold_by_another(w: World, number: int) -> int:
        """Somebody else folds one more event; the last number, should the projector have been faster with some."""
        while True:
            another = w.owner("another")
            w.notes(number)
            with suppress(Fenced):
                drain(another)
                return number
            number += 1

    async def until(w: World, projector: Projector, events: int) -> None:
        while (await w.store.db.read(checkpoints.read_vector))[HERE] != Position(1, events - 1):
            projector.wake(HERE)
            await asyncio.sleep(0.02)

    with world(folder) as w:
        asyncio.run(asyncio.wait_for(run(w), 60))
        w.check()


def a_second_archiver(folder: Path) -> None:
    """It slept while recovery ended the epoch; what it holds is void."""
    with world(folder) as w:
        w.notes(1)
        mark = w.lab.marks()[HERE]
        w.lab.log.write_now(lambda conn: end_epoch(conn, HERE, mark, 2, "test", 0))
        late = [(Position(1, mark.n + 1), note("e2", "t", "a", 2))]
        must_be(
            Fenced,
            lambda: w.lab.log.write_now(lambda conn: archive_batch(conn, HERE, mark, late, 0)),
            "an archiver wrote behind the end of an epoch",
        )


def an_event_again(folder: Path) -> None:
    """C13: the same event twice, and another one under its id."""
    with world(folder) as w:
        first = note("e1", "t", "a", 1)
        w.lab.archive(first, first, note("e1", "t", "a", "other"), note("e2", "t", "b", 2))
        drain(w.owner("owner"))
        w.check()


def a_row_past_the_watermark(folder: Path) -> None:
    """C9: what stands in the archive behind its watermark is not there yet."""
    with world(folder) as w:
        w.notes(1, 2)
        w.lab.log.write_now(lambda conn: conn.exec_driver_sql("UPDATE log_watermarks SET n = n - 1 WHERE n > 0"))
        assert drain(w.owner("owner")).position == Position(1, 0), "it was folded past the watermark"


class _WithAGap:
    """An archive that leaves out the second event of a batch."""

    def __init__(self, source: ArchiveSource) -> None:
        self._source = source

    def read(self, partition: int, after: Position, limit: int, upto: Position | None = None) -> Sequence[Archived]:
        batch = self._source.read(partition, after, limit, upto)
        return [*batch[:1], *batch[2:]]

    def epochs(self, partition: int) -> Mapping[int, int | None]:
        return self._source.epochs(partition)

    @property
    def log(self) -> Database:
        return self._source.log


def a_reader_with_a_gap(folder: Path) -> None:
    """The engine checks that positions follow each other, whatever its source says."""
    with world(folder) as w:
        w.notes(1, 2, 3)
        reading = PartitionFolder.take_over(w.store, _WithAGap(ArchiveSource(w.lab.log)), HERE, "owner")
        must_be(LogGap, reading.step, "a gap was passed over")


def a_poisoned_key(folder: Path) -> None:
    """Later events of a key wait behind one that failed, in its batch and in later ones."""
    with world(folder) as w:
        w.lab.archive(note("e1", "t", "a", 1), note("e2", "t", "poison"), note("e3", "t", "a", 3))
        owner = drain(w.owner("owner"))
        w.notes(4)
        drain(owner)
        w.notes(5)
        drain(w.owner("another"))
        w.check()


def a_retry_beside_its_owner(folder: Path) -> None:
    """Who writes rows beside the owner fences it: its cache knows nothing of them."""

    def mended(recorded: Any, rows: Any) -> Any:
        return [] if recorded.event.id == "e2" else TOY.apply(recorded, rows)

    with world(folder) as w:
        w.lab.archive(note("e1", "t", "a", 1), note("e2", "t", "poison"), note("e3", "t", "a", 3))
        owner = drain(w.owner("owner"))
        store = GenerationStore(Projection("toy", 1, TOY.tables, TOY.handles, mended, TOY.names), w.store.db)
        dead_letters.retry(store, ArchiveSource(w.lab.log), ("default", "task/t"))
        w.notes(4)
        must_be(Fenced, owner.step, "an owner went on from rows that a retry had replaced")


def a_commit_that_was_lost(folder: Path) -> None:
    """The answer of a commit is lost, and so is the commit: the events are folded again."""
    with world(folder) as w:
        w.notes(1)
        owner = w.owner("owner")
        write = w.store.db.write_now

        def lost(work: Any) -> Any:
            raise CommitUnknown

        owner.store.db.write_now = lost  # type: ignore[method-assign]
        must_be(Transient, owner.step, "a commit that did not hold was taken for one that did")
        owner.store.db.write_now = write  # type: ignore[method-assign]
        drain(owner)
        w.check()


def _late(w: World, active: str, number: int) -> None:
    """One more event, and a projector that folds it into the active generation at once."""
    w.notes(number)
    store = GenerationStore(TOY, w.lab.stores.generation(active))
    drain(PartitionFolder.take_over(store, ArchiveSource(w.lab.log), HERE, "live"))
    store.db.close()


def a_swap_that_goes_on(folder: Path) -> None:
    """While a generation is built the old one goes on: at the swap the new one must have all that was read."""
    with world(folder) as w:
        w.notes(1)
        old = rebuild(TOY, w.lab.stores, w.lab.log)
        _late(w, old.name, 2)
        new = w.lab.log.write_now(lambda conn: generations.create(conn, TOY))
        store = create_store(TOY, w.lab.stores, w.lab.log, new.name)
        builder = PartitionFolder.take_over(store, ArchiveSource(w.lab.log), HERE, "builder", batch=1)
        builder.step()

        def pass_it(vector: Mapping[int, Position]) -> None:
            builder.step(vector[HERE])

        swap(new, w.lab.stores, w.lab.log, pass_it, lambda conn: None)
        store.db.close()
        assert _vector(w, new.name)[HERE] >= _vector(w, old.name)[HERE], "a read went back at the swap"


def a_swap_with_a_projector(folder: Path) -> None:
    """Between the look at the old generation's positions and the swap nobody may advance it."""
    with world(folder) as w:
        w.notes(1, 2, 3)
        old = rebuild(TOY, w.lab.stores, w.lab.log)
        outcomes: list[str] = []

        def report(progress: Any) -> None:
            if progress.phase == "swapping":
                try:
                    _late(w, old.name, 4)
                except Fenced:
                    outcomes.append("fenced")

        new = rebuild(TOY, w.lab.stores, w.lab.log, progress=report)
        assert outcomes == ["fenced"], "the old generation was advanced during the swap"
        assert _vector(w, new.name)[HERE] >= _vector(w, old.name)[HERE]
        active = w.lab.log.read_now(partial(generations.active, projection="toy"))
        assert active is not None and active.number == new.number


def a_builder_that_was_overtaken(folder: Path) -> None:
    """It stood still while it passed the old generation, and another one builds by now."""
    with world(folder) as w:
        w.notes(1)
        old = rebuild(TOY, w.lab.stores, w.lab.log)
        new = w.lab.log.write_now(lambda conn: generations.create(conn, TOY))
        create_store(TOY, w.lab.stores, w.lab.log, new.name).db.close()
        frozen: list[str] = []

        def still_ours(conn: Any) -> None:
            if frozen:
                raise Fenced("another builder goes on")

        must_be(
            Fenced,
            lambda: swap(new, w.lab.stores, w.lab.log, lambda vector: frozen.append("now"), still_ours),
            "a builder swapped that had lost its lease",
        )
        active = w.lab.log.read_now(partial(generations.active, projection="toy"))
        assert active is not None and active.number == old.number
        _late(w, old.name, 2)  # it is not left sealed


def _vector(w: World, name: str) -> Mapping[int, Position]:
    db = w.lab.stores.generation(name)
    try:
        assert dump(db)["tallies"], "nothing was folded"
        return db.read_now(checkpoints.read_vector)
    finally:
        db.close()


def a_redis_that_was_rewound(folder: Path) -> None:
    """An older copy of Redis' files agrees with itself: only its server's id tells that it is not what was written."""
    from tests.integration import log_world

    async def run() -> None:
        async with log_world.world(folder) as w:
            await w.log.append([log_world.event("e1")])
            copy, live = folder / "copy", w.server.directory / "appendonlydir"
            shutil.copytree(live, copy)
            await w.log.append([log_world.event("e2")])
            await w.archive_all(keep=100)
            w.server.kill()
            shutil.rmtree(live)
            shutil.copytree(copy, live)
            w.server.restart()
            try:
                (appended,) = await w.log.append([log_world.event("e3")])
            except Fenced:
                return
            raise AssertionError(f"position {appended.position} was given away a second time")

    asyncio.run(run())


def an_event_appended_again(folder: Path) -> None:
    """C13: an id that the log remembers gets no second position."""
    from tests.integration import log_world

    async def run() -> None:
        async with log_world.world(folder) as w:
            first, again = log_world.event("e1"), log_world.event("e1")
            other = log_world.event("e1", content="other")
            outcomes = [*await w.log.append([first]), *await w.log.append([again]), *await w.log.append([other])]
            assert [outcome.status for outcome in outcomes] == ["stored", "duplicate", "conflict"]

    asyncio.run(run())


SCENARIOS: Mapping[str, Callable[[Path], None]] = {
    scenario.__name__: scenario
    for scenario in (
        a_zombie_that_lags, a_zombie_at_the_same_position, a_claim_used_twice, a_sealed_generation, a_clean_hand_over,
        an_owner_that_is_new, a_worker_that_was_fenced, a_second_archiver, an_event_again, a_row_past_the_watermark,
        a_reader_with_a_gap, a_poisoned_key, a_retry_beside_its_owner, a_commit_that_was_lost, a_swap_that_goes_on,
        a_swap_with_a_projector, a_builder_that_was_overtaken, a_redis_that_was_rewound, an_event_appended_again,
    )
}  # fmt: skip


def main(name: str) -> int:
    """Tell one scenario, on the code in the current folder."""
    loaded = Path(str(projections.__file__)).resolve()
    if not loaded.is_relative_to(Path.cwd().resolve()):
        raise SystemExit(f"not the damaged code: {loaded}")
    with tempfile.TemporaryDirectory() as folder:
        try:
            SCENARIOS[name](Path(folder))
        except AssertionError as error:
            print(f"caught: {error}")
            return CAUGHT
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
