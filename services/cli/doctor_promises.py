"""What ``refold doctor`` says of settings that weaken a promise (docs/promises.md), in Redis and in the database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import psycopg
import redis
from redis.exceptions import RedisError, ResponseError

from events.log.address import node_urls
from services.cli.check import Check
from services.settings import Settings

_TIMEOUT_S = 3.0
_REDIS = ("appendonly", "appendfsync", "no-appendfsync-on-rewrite", "min-replicas-to-write")
_POSTGRES = ("fsync", "full_page_writes", "synchronous_commit")


def look_at_promises(settings: Settings) -> Check:
    """What an acknowledged event could not survive, as the servers are set now. What cannot be asked is left out."""
    weak = [*_of_redis(settings), *_of_store(settings)]
    if not weak:
        return Check("promises", "ok", "what is acknowledged is on disk, durable and fast")
    return Check("promises", "warning", "; ".join(weak), "docs/promises.md tells what can be lost under which settings")


def _of_redis(settings: Settings) -> Iterator[str]:
    if not settings.redis_url:
        return
    for url in node_urls(settings.redis_url):
        try:
            with redis.Redis.from_url(url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S) as client:
                info: Any = client.info("replication")
                yield from weak_redis(_config(client), int(info.get("connected_slaves", 0)))
            return
        except (RedisError, OSError, ValueError):
            continue  # another check says so


def _config(client: redis.Redis) -> Mapping[str, str]:
    """Empty where the server's provider lets nobody ask."""
    try:
        found: Any = client.config_get(*_REDIS)
    except ResponseError:
        return {}
    return {_text(name): _text(value) for name, value in found.items()}


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def weak_redis(config: Mapping[str, str], replicas: int) -> Iterator[str]:
    """What an event that was acknowledged with ``ack=fast`` does not survive: the archive has the others."""
    if config.get("appendonly") == "no":
        yield "Redis: appendonly no: a restart loses what was acknowledged fast and not archived yet"
    elif config.get("appendfsync") in ("everysec", "no"):
        yield (
            f"Redis: appendfsync {config['appendfsync']}: a crash of its machine loses what was acknowledged fast in "
            + ("the last second or two" if config["appendfsync"] == "everysec" else "the last half minute or so")
        )
    elif config.get("no-appendfsync-on-rewrite") == "yes":
        yield "Redis: no-appendfsync-on-rewrite yes: while it rewrites its file, as with appendfsync no"
    if replicas and config.get("min-replicas-to-write") == "0":
        yield "Redis: min-replicas-to-write 0: a failover loses what was acknowledged fast and no replica had"


def _of_store(settings: Settings) -> Iterator[str]:
    if settings.stores_url.startswith("sqlite"):
        return
    address = settings.stores_url.replace("postgresql+psycopg://", "postgresql://")
    try:
        with psycopg.connect(address, connect_timeout=int(_TIMEOUT_S)) as connection:
            values = {}
            for name in _POSTGRES:
                row = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
                values[name] = "" if row is None else str(row[0])
    except psycopg.Error:
        return  # another check says so
    yield from weak_postgres(values)


def weak_postgres(values: Mapping[str, str]) -> Iterator[str]:
    """What a durable event does not survive, and what a read model does not."""
    if values["fsync"] == "off":
        yield "PostgreSQL: fsync off: a crash of its machine can ruin the archive, acknowledged events with it"
    elif values["full_page_writes"] == "off":
        yield "PostgreSQL: full_page_writes off: a crash of its machine can leave torn pages in the archive"
    if values["synchronous_commit"] == "off":
        yield "PostgreSQL: synchronous_commit off: Refold turns it on for its own transactions"
