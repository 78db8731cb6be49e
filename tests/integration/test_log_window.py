"""What the log remembers is bounded; what it has forgotten, the archive knows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from events.errors import Fenced, LogFull
from events.event import Event, Position
from events.log.layout import keys_of
from events.log.log import Log
from tests.integration.log_world import World, event, in_each_world, in_world, positions, start, statuses

WINDOW = 50
KEYS = keys_of(0)


async def remembered(world: World) -> int:
    return sum([await world.redis.hlen(key) for key in (KEYS.seen_a, KEYS.seen_b)])


async def forget(world: World) -> None:
    """Append and archive until both hashes have changed places often enough to hold nothing from before."""
    for round_ in range(5):
        await world.log.append([event(f"fill-{round_}-{i}", task="fill", run="fill") for i in range(WINDOW)])
        await world.archive_all()
    assert (await world.redis.hget(KEYS.meta, "complete")) == b"0"


@in_each_world(window=WINDOW)
async def test_memory_is_bounded_while_the_archive_follows(world: World) -> None:
    for i in range(100):
        await world.log.append([event(f"e{i}-{j}", task=f"t{i}", run=f"r{i}", seq=j + 1) for j in range(10)])
        await world.archive_all()
        assert await remembered(world) <= 3 * WINDOW
    assert len(await world.archived_ids()) == 1000


@in_each_world(window=WINDOW, limit=150)
async def test_nothing_unarchived_is_forgotten_and_publishing_waits(world: World) -> None:
    """Back-pressure: the window grows to its limit, then LogFull, until the archiver has caught up."""
    sent = [event(f"e{i}") for i in range(1000)]

    async def publish_all() -> None:
        for one in sent:
            await world.log.append([one])

    with pytest.raises(LogFull, match="publish again when the archiver has caught up"):
        await publish_all()
    held = int(await world.redis.hget(KEYS.meta, "next"))
    assert WINDOW + 150 <= held <= 2 * WINDOW + 150
    meta = await world.redis.hgetall(KEYS.meta)
    assert meta[b"complete"] == b"1"
    await world.archive_all()
    assert statuses(await world.log.append(sent[held:][:40])) == ["stored"] * 40
    assert statuses(await world.log.append(sent[held - 20 : held])) == ["duplicate"] * 20


@in_each_world(window=WINDOW)
async def test_a_forgotten_id_sent_again_is_caught_by_the_archive(world: World) -> None:
    (first,) = await world.log.append([event("old")])
    await forget(world)
    (again,) = await world.log.append([event("old")])
    assert again.status == "stored"
    await world.archive_all()
    assert again.position is not None
    assert first.position is not None
    verdict = (await world.archive.verdicts(0, [again.position]))[again.position]
    assert (verdict.verdict, verdict.first) == ("duplicate_of", first.position)
    assert (await world.archived_ids()).count("old") == 1


@in_each_world(window=WINDOW)
async def test_a_forgotten_event_with_seq_or_start_is_a_duplicate_not_a_conflict(world: World) -> None:
    batch = [start("r1", seq=1), event("a", seq=2), event("b", seq=3)]
    first = await world.log.append(batch)
    await forget(world)
    again = await world.log.append([*batch, event("c", seq=4)])
    assert statuses(again) == ["duplicate"] * 3 + ["stored"]
    assert positions(again[:3]) == positions(first)
    other = await world.log.append([event("a", seq=2, content="other"), event("new", seq=2)])
    assert statuses(other) == ["conflict", "seq_conflict"]
    assert other[0].position == first[1].position
    assert "5 is expected" in other[1].message


@in_each_world(window=WINDOW)
async def test_what_follows_a_forgotten_event_of_a_thread_is_stored(world: World) -> None:
    """A journal that is sent again from its start goes on where it was cut off."""

    def written(seq: int) -> Event:
        return event(f"w{seq}", "thread.written", task="thread:t", run="thread:t", seq=seq)

    await world.log.append([written(seq) for seq in (1, 2, 3)])
    await forget(world)
    again = await world.log.append([written(seq) for seq in range(1, 6)])
    assert statuses(again) == ["duplicate"] * 3 + ["stored"] * 2
    rival = await world.log.append([event("r", "thread.written", task="thread:t", run="thread:t", seq=5), written(6)])
    assert statuses(rival) == ["seq_conflict", "seq_conflict"]
    mixed = await world.log.append([written(5), event("x", "thread.written", run="thread:t", task="thread:t", seq=7)])
    assert statuses(mixed) == ["duplicate", "seq_conflict"]


@in_each_world(window=WINDOW)
async def test_forgotten_attempts_are_looked_up(world: World) -> None:
    await world.log.append([start("r1"), start("r2", 2)])
    await forget(world)
    outcomes = await world.log.append(
        [event("z"), event("late", "tool.returned", late=True), start("r4", 4), start("r3", 3), event("n", run="r2")]
    )
    assert statuses(outcomes) == ["superseded", "stored", "attempt_conflict", "stored", "superseded"]
    assert "'r2' (attempt 2" in outcomes[0].message
    assert "'r3' (attempt 3" in outcomes[4].message


@in_each_world(window=WINDOW)
async def test_a_winner_known_by_name_alone_can_be_superseded_within_a_batch(world: World) -> None:
    await world.log.append([start("r1"), start("r2", 2)])
    await forget(world)
    await world.log.append([event("stray", run="r0")])
    outcomes = await world.log.append([event("a", run="r2"), start("r3", 3), event("b", run="r2")])
    assert statuses(outcomes) == ["stored", "stored", "superseded"]


@in_each_world(window=WINDOW)
async def test_what_was_looked_up_is_remembered(world: World) -> None:
    """New tasks and runs cost one look-up a batch, known ones none."""
    await forget(world)
    history = Counting(world)
    log = Log(world.redis, 1, history, window=WINDOW)
    await log.append([event(f"e{i}", task=f"t{i}", run=f"r{i}", seq=1) for i in range(5)])
    assert history.asked == ["tasks", "seqs"]
    await log.append([event(f"f{i}", task=f"t{i}", run=f"r{i}", seq=2) for i in range(5)])
    assert history.asked == ["tasks", "seqs"]


@in_each_world(window=WINDOW)
async def test_a_slow_look_up_overrides_nothing_newer(world: World) -> None:
    """While we ask the archive, another appender starts the attempt: the archive's older answer must not win."""
    await forget(world)
    rival = world.log

    class Slow(Counting):
        async def tasks(self, wanted: Sequence[Any]) -> dict[Any, Any]:
            answer = await super().tasks(wanted)
            if len(self.asked) == 1:
                await rival.append([start("rival", task="contested")])
            return answer

    (outcome,) = await Log(world.redis, 1, Slow(world), window=WINDOW).append([start("ours", task="contested")])
    assert outcome.status == "attempt_conflict"
    assert "'rival'" in outcome.message


@in_each_world(window=WINDOW)
async def test_a_very_slow_look_up_is_asked_again(world: World) -> None:
    """While we ask, the rival's start is appended, archived and forgotten again: the answer is stale by two turns."""
    await forget(world)
    rival = world.log

    class VerySlow(Counting):
        async def tasks(self, wanted: Sequence[Any]) -> dict[Any, Any]:
            answer = await super().tasks(wanted)
            if len(self.asked) == 1:
                await rival.append([start("rival", task="contested")])
                await forget(world)
            return answer

    history = VerySlow(world)
    (outcome,) = await Log(world.redis, 1, history, window=WINDOW).append([start("ours", task="contested")])
    assert outcome.status == "attempt_conflict"
    assert history.asked.count("tasks") == 2


class Counting:
    """The archive, and what it was asked."""

    def __init__(self, world: World) -> None:
        self._archive = world.archive
        self.asked: list[str] = []

    async def log_id(self) -> str:
        return await self._archive.log_id()

    async def ids(self, partition: int, wanted: Sequence[tuple[str, str, str]]) -> dict[Any, Any]:
        self.asked.append("ids")
        return dict(await self._archive.ids(partition, wanted))

    async def tasks(self, wanted: Sequence[tuple[str, str]]) -> dict[Any, Any]:
        self.asked.append("tasks")
        return dict(await self._archive.tasks(wanted))

    async def last_seqs(self, wanted: Sequence[tuple[str, str, str]]) -> dict[Any, int]:
        self.asked.append("seqs")
        return dict(await self._archive.last_seqs(wanted))


@in_each_world(window=WINDOW)
async def test_positions_stay_dense_through_turns(world: World) -> None:
    await forget(world)
    (outcome,) = await world.log.append([event("last")])
    assert outcome.position == Position(1, 5 * WINDOW)


@in_each_world(window=WINDOW)
async def test_a_run_that_lost_and_goes_on_is_not_forgotten(world: World) -> None:
    await world.log.append([start("r1"), start("r2")])
    for round_ in range(8):
        await world.log.append([event(f"fill-{round_}-{i}", task="fill", run="fill") for i in range(WINDOW)])
        await world.archive_all()
        (outcome,) = await world.log.append([event(f"e{round_}", run="r2")])
        assert (outcome.status, outcome.winner) == ("superseded", "r1")
    assert (await world.redis.hget(KEYS.meta, "complete")) == b"0"


@pytest.mark.parametrize("key", [KEYS.seen_a, KEYS.seen_b])
@pytest.mark.parametrize("replacement", [None, "a text", "half"])
def test_what_was_remembered_and_is_gone_is_not_what_never_happened(
    tmp_path: Path, key: str, replacement: str | None
) -> None:
    """Evicted, deleted, overwritten: the log closes, recovery asks the archive, and the checks go on."""

    @in_world(window=WINDOW)
    async def scenario(world: World) -> None:
        await world.log.append([start("r1", seq=1), event("e2", seq=2), start("r2", 2)])
        if key == KEYS.seen_b:
            await world.log.append([event(f"fill-{i}", task="fill", run="fill") for i in range(WINDOW)])
            await world.log.append([event("more", task="fill", run="fill")])
            assert await world.redis.hlen(key) > 0
        await world.archive_all()
        assert (await world.redis.hget(KEYS.meta, "complete")) == b"1"
        if replacement == "half":
            await world.redis.hdel(key, (await world.redis.hkeys(key))[0])
        else:
            await world.redis.delete(key)
        if replacement == "a text":
            await world.redis.set(key, replacement)
        late = [event("zombie"), event("old", run="r2", seq=7), event("e2", content="other", seq=2)]
        with pytest.raises(Fenced, match="remembered are gone"):
            await world.log.append(late)
        await world.open()
        assert statuses(await world.log.append(late)) == ["superseded", "seq_conflict", "conflict"]
        assert statuses(await world.log.append([event("next", run="r2", seq=1)])) == ["stored"]

    scenario(tmp_path)


@in_each_world(window=WINDOW)
async def test_meta_tells_how_much_is_remembered(world: World) -> None:
    """Through turns, refusals that leave a mark, answers of the archive, and a recovery that carries over."""
    for round_ in range(6):
        batch = [event(f"e{round_}-{i}", task=f"t{i}", run=f"r{i}", seq=round_ + 1) for i in range(20)]
        await world.log.append([*batch, start(f"x{round_}"), event(f"m{round_}", run=f"x{round_}")])
        if round_ == 3:
            await world.redis.hset(KEYS.meta, "server", "another")
            await world.open()
        if round_ % 2:
            await world.archive_all()
        told = await world.redis.hmget(KEYS.meta, ["seen_a", "seen_b"])
        assert [int(n) for n in told] == [await world.redis.hlen(key) for key in (KEYS.seen_a, KEYS.seen_b)]
