"""What is different on a Redis Cluster: finding the node of a key, following it, hearing of what is new."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.crc import key_slot
from redis.exceptions import RedisError

from events.archive.schema import metadata
from events.database import Database, Stores
from events.errors import SetupError, Transient
from events.log.arrivals import Arrivals, ring
from events.log.client import Cluster, connect
from events.log.layout import APPENDED_CHANNEL, ARCHIVED_CHANNEL, keys_of
from services.apps.inbox import STREAM, Inbox
from services.apps.wakeups import run_awake
from services.supervisor import Ended
from tests.redis_cluster import RedisCluster, open_redis, redis_cluster, until
from tests.servers import free_port, redis_server
from tests.stack import PARTITIONS, event, raw_event, running_stack


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[RedisCluster]:
    """A cluster of two masters that a test may harm."""
    cluster = redis_cluster(tmp_path / "mortal", masters=2)
    yield cluster
    cluster.stop()


@pytest.fixture
def log_db(tmp_path: Path) -> Iterator[Database]:
    db = Stores(f"sqlite:///{tmp_path}/stores").log()
    db.write_now(metadata.create_all)
    yield db
    db.close()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Cluster]:
    found = await connect(url)
    assert isinstance(found, Cluster)
    try:
        yield found
    finally:
        await found.aclose()


async def put(redis: Cluster, key: str, text: str) -> Any:
    return await redis.ask(key, lambda node: node.set(key, text, get=True))


# --- opening ---------------------------------------------------------------------------------------------------------


def test_any_node_is_enough_to_name_and_tells_that_it_is_a_cluster(cluster: RedisCluster) -> None:
    async def main() -> None:
        for node in cluster.nodes:
            async with opened(node.url) as redis:
                for number in range(20):
                    await put(redis, f"key-{number}", node.url)
        assert sum(node.run("DBSIZE") for node in cluster.nodes) == 20
        assert all(node.run("DBSIZE") for node in cluster.nodes)

    asyncio.run(main())


def test_of_several_named_nodes_some_may_be_away(cluster: RedisCluster) -> None:
    async def main() -> None:
        away = f"127.0.0.1:{free_port()}"
        async with opened(f"redis://{away},127.0.0.1:{cluster.nodes[1].port},{away}/0") as redis:
            assert len(await redis.masters()) == 3
        with pytest.raises(Transient, match="cannot be reached"):
            await connect(f"redis://{away},{away}/0")

    asyncio.run(main())


def test_addresses_that_cannot_be_right_are_refused(cluster: RedisCluster, tmp_path: Path) -> None:
    server = redis_server(tmp_path / "redis")

    async def main() -> None:
        with pytest.raises(SetupError, match="no database but 0"):
            await connect(cluster.nodes[0].url.replace("/0", "/1"))
        with pytest.raises(SetupError, match="several nodes, but the one that answers is no Redis Cluster"):
            await connect(f"redis://127.0.0.1:{server.port},127.0.0.1:{cluster.nodes[0].port}/0")
        single = await connect(server.url)
        assert isinstance(single, Redis)
        await single.aclose()

    try:
        asyncio.run(main())
    finally:
        server.stop()


def test_user_and_password_are_those_of_every_node(mortal: RedisCluster) -> None:
    for node in mortal.nodes:
        node.run("ACL", "SETUSER", "refold", "on", ">s3cret/@", "~*", "&*", "+@all")
        node.run("ACL", "SETUSER", "default", "off")

    async def main() -> None:
        async with opened(f"redis://refold:s3cret%2F%40@127.0.0.1:{mortal.nodes[0].port}/0") as redis:
            for number in range(20):
                await put(redis, f"key-{number}", "")
            assert await redis.url_of(STREAM) != await redis.url_of(keys_of(3).log)
            assert "refold:s3cret%2F%40@127.0.0.1" in await redis.live_url()
        with pytest.raises(SetupError, match="user and password in REDIS_URL"):
            await connect(f"redis://refold:wrong@127.0.0.1:{mortal.nodes[0].port}/0")

    asyncio.run(main())


# --- following -------------------------------------------------------------------------------------------------------


def test_a_slot_is_followed_to_its_new_node_and_waited_for_on_the_way(cluster: RedisCluster) -> None:
    """ASK and TRYAGAIN pass; MOVED nobody notices."""
    key, other = "{0}:key", "{0}:other"
    slot, source = key_slot(key.encode()), cluster.holder("{0}")
    target = cluster.nodes[(cluster.nodes.index(source) + 1) % 3]

    async def main() -> None:
        async with opened(cluster.url) as redis:
            await put(redis, key, "one")
            target.run("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
            source.run("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
            assert await put(redis, key, "two") == b"one"
            with pytest.raises(Transient, match="TryAgainError"):
                await redis.ask(key, lambda node: node.mset({key: "three", other: "three"}))
            with pytest.raises(Transient, match="AskError"):
                await put(redis, other, "three")
            await asyncio.to_thread(cluster.move_slot, slot, target)
            assert await put(redis, key, "three") == b"two"
            assert await redis.url_of(key) == target.url
            await asyncio.to_thread(cluster.migrate_slot, slot, source)
            assert await put(redis, key, "four") == b"three"
            assert await redis.url_of(key) == source.url

    asyncio.run(main())


def test_a_node_that_dies_takes_no_other_with_it(mortal: RedisCluster, log_db: Database) -> None:
    """Its partitions wait, those of the other node are archived; when it is back, so are its own."""
    for node in mortal.nodes:
        node.run("CONFIG", "SET", "cluster-require-full-coverage", "no")
    held = {p: mortal.nodes.index(mortal.holder(keys_of(p).log)) for p in range(PARTITIONS)}
    owner = mortal.nodes.index(mortal.holder("refold:log"))
    victim = mortal.nodes[1 - owner]

    async def main() -> None:
        async with running_stack(mortal, log_db, timeout_s=30.0) as stack:
            everywhere = [raw_event(f"r{n}") for n in range(40)]
            await stack.publisher.publish(everywhere)
            of_run = {row.event().run: held[row.partition] for row in stack.archived()}
            assert set(of_run.values()) == {0, 1}
            await asyncio.to_thread(victim.kill)
            alive = [raw_event(run) for run, node in of_run.items() if node == owner]
            away = [raw_event(run) for run, node in of_run.items() if node != owner]
            outcomes = await publish_again(stack, alive)
            assert {outcome.status for outcome in outcomes} <= {"stored", "duplicate"}
            with pytest.raises(Transient):
                await stack.publisher.publish(away)
            await asyncio.to_thread(victim.start)
            await asyncio.to_thread(mortal.until_ready)
            await publish_again(stack, away)
            assert stack.ids() == sorted(raw["id"] for raw in everywhere + alive + away)

    asyncio.run(main())


async def publish_again(stack: Any, raws: list[dict[str, Any]]) -> Any:
    """Publish as every publisher does: again, while the backend says that it passes."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await stack.publisher.publish(raws)
            except Transient:
                await asyncio.sleep(0.1)


# --- hearing ---------------------------------------------------------------------------------------------------------


def test_the_bell_names_the_partition(cluster: RedisCluster) -> None:
    async def main() -> None:
        async with opened(cluster.url) as redis:
            arrivals = Arrivals(redis)
            arrivals.start()
            await asyncio.to_thread(until, lambda: listeners(cluster, APPENDED_CHANNEL) == 1, "somebody listens")
            marks = dict.fromkeys(range(PARTITIONS), (0, -1))
            await ring(redis, 2)
            assert await arrivals.wait(marks, 20) == {2}
            await redis.ask(STREAM, lambda node: node.publish(APPENDED_CHANNEL, "nonsense"))
            await ring(redis, 999)
            await ring(redis, 1)
            heard = await arrivals.wait(marks, 20) or await arrivals.wait(marks, 20)
            assert heard == {1}
            arrivals.more(3)
            assert await arrivals.wait(marks, 20) == {3}
            assert await arrivals.wait(marks, 0.01) == set()
            await arrivals.stop()

    asyncio.run(main())


def listeners(cluster: RedisCluster, channel: str) -> int:
    return sum(int(node.run("PUBSUB", "NUMSUB", channel)[1]) for node in cluster.nodes)


def test_rings_and_wake_ups_that_are_lost_cost_a_moment(cluster: RedisCluster, log_db: Database) -> None:
    """Every subscription is cut while events are published; later they are there again."""

    async def main() -> None:
        async with running_stack(cluster, log_db) as stack:
            published = []
            for _ in range(3):
                for node in cluster.nodes:
                    node.run("CLIENT", "KILL", "TYPE", "pubsub")
                published += [event(f"r{n}") for n in range(20)]
                outcomes = await stack.publisher.publish_events(published[-20:])
                assert {outcome.status for outcome in outcomes} == {"stored"}
            assert stack.ids() == sorted(e.id for e in published)
            for channel in (APPENDED_CHANNEL, ARCHIVED_CHANNEL):
                listening = lambda channel=channel: listeners(cluster, channel) == 1  # noqa: E731
                await asyncio.to_thread(until, listening, "the subscription is there again")

    asyncio.run(main())


def test_wake_ups_come_from_another_node_when_theirs_dies(mortal: RedisCluster) -> None:
    heard: list[int] = []

    async def main() -> None:
        redis: Any = await open_redis(mortal.url)
        stopping = asyncio.Event()

        async def work(until_told: asyncio.Event) -> None:
            await until_told.wait()

        async def until_heard(partition: int) -> None:
            async with asyncio.timeout(60):
                while partition not in heard:
                    await redis.publish(ARCHIVED_CHANNEL, f"{partition} 1-7")
                    await asyncio.sleep(0.05)

        running = asyncio.create_task(run_awake(redis, mortal.url, heard.append, "projector", work, stopping))
        await until_heard(3)
        [listened] = [n for n in mortal.nodes if int(n.run("PUBSUB", "NUMSUB", ARCHIVED_CHANNEL)[1])]
        await asyncio.to_thread(listened.kill)
        await until_heard(4)
        stopping.set()
        await running
        await redis.aclose()

    asyncio.run(main())


def test_the_inbox_is_followed_to_its_new_node(cluster: RedisCluster, log_db: Database) -> None:
    """What was there moves along with the stream and its group, what comes is taken there."""
    slot, source = key_slot(STREAM.encode()), cluster.holder(STREAM)
    target = cluster.nodes[(cluster.nodes.index(source) + 1) % 3]

    async def main() -> None:
        async with running_stack(cluster, log_db) as stack:
            inbox = Inbox(stack.redis, cluster.url, stack.publisher, "tester", idle_s=1.0)
            for home in (target, source):
                stopping = asyncio.Event()
                consuming = asyncio.create_task(inbox.run(stopping))
                wanted = len(stack.ids()) + 2
                await add(stack.redis)
                await asyncio.to_thread(cluster.move_slot, slot, home)
                with pytest.raises((Ended, Transient, RedisError)):  # as the supervisor, which starts it again
                    await asyncio.wait_for(consuming, 30)
                again = asyncio.create_task(inbox.run(stopping))
                await add(stack.redis)
                await asyncio.to_thread(until, lambda count=wanted: len(stack.ids()) == count, "all is archived")
                stopping.set()
                await again

    asyncio.run(main())


async def add(redis: Any) -> None:
    raw = raw_event("r1")
    await redis.xadd(STREAM, {**raw, "data": '{"role": "user", "content": "hello"}'})


# --- letting go ------------------------------------------------------------------------------------------------------


def test_all_connections_are_let_go(cluster: RedisCluster, log_db: Database) -> None:
    def clients() -> list[int]:
        return [int(node.run("INFO", "clients")["connected_clients"]) for node in cluster.nodes]

    before = clients()

    async def main() -> None:
        async with running_stack(cluster, log_db) as stack:
            publish = stack.publisher.publish_events
            await asyncio.gather(*(publish([event(f"r{n}-{k}") for k in range(9)]) for n in range(20)))
            assert max(clients()) > max(before)

    asyncio.run(main())
    until(lambda: clients() == before, "nobody is connected any more")
