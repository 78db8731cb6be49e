"""Append on a real server: every outcome, order, races, and what the errors of Redis mean."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from redis.crc import key_slot

from events.door import admit
from events.errors import SetupError, Transient
from events.event import Event, Position
from events.log.layout import keys_of
from events.log.log import MAX_CALL, Log
from events.log.tail import read
from tests.integration.log_world import World, event, in_each_world, in_world, positions, start, statuses


@in_each_world()
async def test_entries_are_numbered_densely_and_read_back_equal(world: World) -> None:
    events = [start("r1"), *(event(f"e{i}", seq=i) for i in range(1, 5))]
    outcomes = await world.log.append(events)
    assert statuses(outcomes) == ["stored"] * 5
    assert positions(outcomes) == [Position(1, n) for n in range(5)]
    assert await read(world.redis, world.log_id, 0, Position(1, -1)) == [
        (Position(1, n), e) for n, e in enumerate(events)
    ]


@in_each_world(partitions=4)
async def test_outcomes_come_in_input_order_whatever_partitions_they_are_of(world: World) -> None:
    events = [event(f"e{i}", task=f"t{i % 20}", run=f"r{i % 20}") for i in range(100)]
    outcomes = await world.log.append(events)
    assert [outcome.event for outcome in outcomes] == events
    for partition in range(4):
        of_partition = [outcome for outcome in outcomes if outcome.partition == partition]
        assert positions(of_partition) == [Position(1, n) for n in range(len(of_partition))]
    assert len({outcome.partition for outcome in outcomes}) == 4


@in_each_world()
async def test_nothing_to_append(world: World) -> None:
    assert await world.log.append([]) == []


@in_each_world(partitions=4)
async def test_same_id_same_content_same_key(world: World) -> None:
    """C13: ok, duplicate, conflict, and another task's own event."""
    search, delete = event("E1", "tool.called", name="search"), event("E1", "tool.called", name="delete")
    elsewhere = event("E1", "tool.called", task="t2", run="r2", name="search")
    first, again, other, own = [(await world.log.append([e]))[0] for e in (search, search, delete, elsewhere)]
    assert statuses([first, again, other, own]) == ["stored", "duplicate", "conflict", "stored"]
    assert first.position == again.position == other.position
    assert "'E1' is taken by another event, at 1-0" in other.message
    assert again.message == ""


@in_each_world()
async def test_a_batch_may_repeat_itself(world: World) -> None:
    """C13 inside one batch."""
    outcomes = await world.log.append([event("E1"), event("E1"), event("E1", content="other"), event("E2")])
    assert statuses(outcomes) == ["stored", "duplicate", "conflict", "stored"]
    assert positions(outcomes) == [Position(1, 0), Position(1, 0), Position(1, 0), Position(1, 1)]


@in_each_world()
async def test_order_of_arrival_loses_nothing(world: World) -> None:
    """C14: a result before its call before its step before its run, and feedback for a run that never started."""
    batch = [event("a", "tool.returned"), event("b", "tool.called"), event("c", "step.started"), start("r1")]
    orphan = event("f", "feedback.given", task="never", run="never", text="good")
    outcomes = await world.log.append([*batch, orphan])
    assert statuses(outcomes) == ["stored"] * 5


@in_each_world()
async def test_events_after_the_end_of_a_run_are_stored(world: World) -> None:
    """C15: the log refuses neither a second termination nor a step after it; the fold marks them late."""
    late = [
        event("t1", "run.terminated", reason="interrupt"),
        event("t2", "run.terminated", reason="end_turn"),
        event("s", "step.started"),
    ]
    assert statuses(await world.log.append([start("r1"), *late])) == ["stored"] * 4


@in_each_world()
async def test_an_attempt_follows_the_one_before(world: World) -> None:
    first, rival, skipping, second = start("r1"), start("r2"), start("r3", 3), start("r2", 2)
    outcomes = await world.log.append([first, rival, skipping, second])
    assert statuses(outcomes) == ["stored", "attempt_conflict", "attempt_conflict", "stored"]
    assert "attempt 1 of task 't1' is run 'r1'" in outcomes[1].message
    assert "the next one is attempt 2" in outcomes[2].message
    assert statuses(await world.log.append([first, second])) == ["duplicate", "duplicate"]


@in_each_world()
async def test_the_first_attempt_is_one(world: World) -> None:
    (outcome,) = await world.log.append([start("r2", 2)])
    assert outcome.status == "attempt_conflict"
    assert "its first attempt is 1" in outcome.message


@in_each_world()
async def test_a_run_is_one_attempt(world: World) -> None:
    again = event("other-id", "run.started", attempt=1)
    anew = event("next-id", "run.started", attempt=2)
    outcomes = await world.log.append([start("r1"), again, anew])
    assert statuses(outcomes) == ["stored", "attempt_conflict", "attempt_conflict"]
    assert "run 'r1' is attempt 1 of task 't1'" in outcomes[2].message


@pytest.mark.parametrize("together", [True, False])
def test_older_attempts_are_superseded(tmp_path, together: bool) -> None:
    """C20 (log part): the late result of a call is taken when it says so; nothing else of the older worker is."""
    events = [
        start("r1"),
        event("before"),
        start("r2", 2),
        event("zombie"),
        event("late", "tool.returned", late=True),
        event("failed-late", "tool.failed", late=True),
        event("not-late", "tool.returned", late=False, result='{"late":true}'),
        event("of-r2", run="r2"),
        event("before"),
    ]

    @in_world()
    async def scenario(world: World) -> None:
        batches = [events] if together else [[e] for e in events]
        outcomes = [outcome for batch in batches for outcome in await world.log.append(batch)]
        assert statuses(outcomes) == [
            "stored", "stored", "stored", "superseded", "stored", "stored", "superseded", "stored", "duplicate",
        ]  # fmt: skip
        assert "superseded by run 'r2' (attempt 2 of task 't1')" in outcomes[3].message
        assert outcomes[3].position is None

    scenario(tmp_path)


@pytest.mark.parametrize("together", [True, False])
def test_a_run_that_lost_has_no_say_until_it_starts(tmp_path, together: bool) -> None:
    """The events that a losing worker sent along with its start do not end the winner's task."""
    lost = [
        event("early", "decision.made", run="l3", chosen="x"),
        event("try", "run.started", run="l3", attempt=2),
        event("decides", "decision.made", run="l3", chosen="x"),
        event("late", "tool.returned", run="l3", late=True),
        event("fb", "feedback.given", run="l3", text="good"),
        event("ends", "run.terminated", run="l3"),
    ]
    anew = [event("again", "run.started", run="l3", attempt=3), event("goes on", run="l3"), event("old", run="l2")]

    @in_world()
    async def scenario(world: World) -> None:
        await world.log.append([start("l1"), start("l2", 2)])
        batches = [[*lost, *anew]] if together else [[e] for e in (*lost, *anew)]
        outcomes = [outcome for batch in batches for outcome in await world.log.append(batch)]
        assert statuses(outcomes) == [
            "stored", "attempt_conflict", "superseded", "stored", "stored", "superseded", "stored", "stored",
            "superseded",
        ]  # fmt: skip
        assert [(o.winner, o.attempt) for o in outcomes if o.status == "superseded"] == [
            ("l2", 2), ("l2", 2), ("l3", 3),
        ]  # fmt: skip

    scenario(tmp_path)


@in_each_world()
async def test_a_start_that_is_too_early_loses_nothing(world: World) -> None:
    """C14: a task that nobody has started has no winner whose events could be mixed up with others."""
    outcomes = await world.log.append([start("r1", 2), event("a")])
    assert statuses(outcomes) == ["attempt_conflict", "stored"]


@in_each_world()
async def test_others_may_write_about_an_older_run(world: World) -> None:
    """Settlements, feedback and a person's answer come when they come; memories live under other keys."""
    await world.log.append([start("r1"), start("r2", 2)])
    about = [
        event("fb", "feedback.given", text="good"),
        event("sd", "settlement.degraded", degraded="no_model"),
        admit({"id": "m", "type": "memory.proposed", "user": "u", "run": "r1", "task": "t1", "data": {"content": "x"}}),
    ]
    assert statuses(await world.log.append(about)) == ["stored"] * 3


@in_each_world()
async def test_seq_counts_one_by_one(world: World) -> None:
    outcomes = await world.log.append(
        [start("r1", seq=1), event("a", seq=2), event("c", seq=4), event("b", seq=3), event("x", seq=2)]
    )
    assert statuses(outcomes) == ["stored", "stored", "seq_conflict", "stored", "seq_conflict"]
    assert "3 is expected" in outcomes[2].message
    assert "4 is expected" in outcomes[4].message
    assert statuses(await world.log.append([start("r1", seq=1), event("a", seq=2)])) == ["duplicate", "duplicate"]
    assert statuses(await world.log.append([event("d", seq=4)])) == ["stored"]


def written(id: str, seq: int) -> Event:
    return event(id, "thread.written", task="thread:t", run="thread:t", seq=seq)


@in_each_world()
async def test_what_follows_a_refused_event_of_a_thread_is_refused_with_it(world: World) -> None:
    """Its number is free, since another writer took just as many: but it would build upon what is not there."""
    await world.log.append([written("theirs", 1)])
    outcomes = await world.log.append([written("a", 1), written("b", 2), event("other"), written("c", 3)])
    assert statuses(outcomes) == ["seq_conflict", "seq_conflict", "stored", "seq_conflict"]
    assert "2 is expected" in outcomes[0].message
    assert "follows seq 1, which was refused" in outcomes[3].message
    again = await world.log.append([written("theirs", 1), written("d", 2), written("e", 3)])
    assert statuses(again) == ["duplicate", "stored", "stored"]


@in_each_world()
async def test_orgs_do_not_meet(world: World) -> None:
    """Invariant 7: ids, attempts and seq of one org say nothing to another."""
    raw = {"id": "E1", "type": "run.started", "run": "r1", "task": "t1", "seq": 1, "data": {}}
    events = [admit(raw, org="a"), admit({**raw, "data": {"goal": "x"}}, org="b")]
    assert statuses(await world.log.append(events)) == ["stored", "stored"]


@in_each_world()
async def test_two_appenders_race_for_one_run(world: World) -> None:
    """Of two writers of one run each number goes to one, and the loser learns which is expected."""
    logs = [world.appender(world.client()) for _ in range(2)]

    async def write(log: Log, who: int) -> list[str]:
        return [(await log.append([event(f"{who}-{seq}", seq=seq)]))[0].status for seq in range(1, 101)]

    answers = await asyncio.gather(*(write(log, who) for who, log in enumerate(logs)))
    for pair in zip(*answers, strict=True):
        assert Counter(pair)["stored"] <= 1
    stored = [e.seq for _, e in await read(world.redis, world.log_id, 0, Position(1, -1), 1000)]
    assert stored == list(range(1, len(stored) + 1))
    assert len(stored) > 0


@in_each_world()
async def test_many_workers_race_for_one_attempt(world: World) -> None:
    """One wins; each other one learns who."""
    await world.log.append([start("r1")])
    logs = [world.appender(world.client()) for _ in range(8)]
    outcomes = await asyncio.gather(*(log.append([start(f"w{i}", 2)]) for i, log in enumerate(logs)))
    flat = [outcome for (outcome,) in outcomes]
    (winner,) = [outcome.event.run for outcome in flat if outcome.status == "stored"]
    losers = [outcome for outcome in flat if outcome.status == "attempt_conflict"]
    assert len(losers) == 7
    assert all(f"attempt 2 of task 't1' is run {winner!r}" in loser.message for loser in losers)


@in_each_world()
async def test_the_script_is_loaded_by_whoever_finds_it_missing(world: World) -> None:
    await world.log.append([event("a")])
    await world.redis.script_flush()
    assert statuses(await world.log.append([event("a"), event("b")])) == ["duplicate", "stored"]


@in_each_world()
async def test_a_batch_larger_than_one_call(world: World) -> None:
    count = 2 * MAX_CALL + 7
    events = [event(f"e{i}", seq=i + 1) for i in range(count)]
    assert positions(await world.log.append(events)) == [Position(1, n) for n in range(count)]
    assert set(statuses(await world.log.append(events))) == {"duplicate"}


@in_each_world()
async def test_hostile_text_goes_through_unchanged(world: World) -> None:
    """C22, C19: NUL (as the door leaves it), quotes, and four-byte characters, in names and values."""
    hostile = event("id \U0001f9d1‍\U0001f4bb {0} ${x}", task='t|x (y) "q"', run="r\\", content="a\x00b \\u0000 𠀋")
    await world.log.append([hostile])
    assert [e for _, e in await read(world.redis, world.log_id, 0, Position(1, -1))] == [hostile]
    assert statuses(await world.log.append([hostile])) == ["duplicate"]


@in_world()
async def test_sending_again_after_a_broken_connection_doubles_nothing(world: World) -> None:
    """The server is killed between the answer and us: the outcome is unknown, the same ids tell."""
    events = [event(f"e{i}", seq=i + 1) for i in range(20)]
    await world.log.append(events[:10])
    world.server.kill()
    with pytest.raises(Transient, match="cannot be reached"):
        await world.log.append(events)
    world.server.restart()
    await world.open()
    assert statuses(await world.log.append(events)) == ["duplicate"] * 10 + ["stored"] * 10
    assert [e.seq for _, e in await read(world.redis, world.log_id, 0, Position(2, -1))] == list(range(1, 21))


@in_world()
async def test_redis_out_of_memory_is_transient_and_writes_nothing(world: World) -> None:
    await world.log.append([event("a")])
    await world.redis.config_set("maxmemory", "1")
    with pytest.raises(Transient, match="fails for now"):
        await world.log.append([event("b")])
    await world.redis.config_set("maxmemory", "0")
    assert statuses(await world.log.append([event("b")])) == ["stored"]


@in_world()
async def test_a_refused_password_says_what_to_do(world: World) -> None:
    await world.redis.config_set("requirepass", "secret")
    with pytest.raises(SetupError, match="REDIS_URL"):
        await world.appender(world.client()).append([event("a")])


def test_keys_of_a_partition_share_a_slot() -> None:
    """So that the script runs on Redis Cluster."""
    for partition in (0, 7, 1023):
        assert len({key_slot(key.encode()) for key in keys_of(partition)}) == 1


@in_each_world()
async def test_a_batch_of_large_events_goes_in_several_calls(world: World) -> None:
    """C28: ten events at the limit of one are no problem together."""
    events = [event(f"e{i}", seq=i + 1, content="x" * 1_000_000) for i in range(10)]
    assert positions(await world.log.append(events)) == [Position(1, n) for n in range(10)]
    assert [e for _, e in await read(world.redis, world.log_id, 0, Position(1, -1))] == events
