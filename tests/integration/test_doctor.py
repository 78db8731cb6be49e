"""``refold doctor`` against a real Redis."""

from __future__ import annotations

from pathlib import Path

import redis

from services.cli.doctor import Check, examine
from services.settings import Settings
from tests.servers import redis_server


def test_a_redis_that_may_drop_keys_is_wrong(tmp_path: Path) -> None:
    server = redis_server(tmp_path / "redis")
    settings = Settings(data=tmp_path / "data", redis_url=server.url)

    def found() -> Check:
        return next(check for check in examine(settings) if check.name == "Redis")

    try:
        assert found().state == "ok"
        with redis.Redis.from_url(server.url) as client:
            client.config_set("maxmemory-policy", "volatile-lru")
        assert found().state == "bad"
        assert "volatile-lru" in found().found
        assert "noeviction" in found().advice
    finally:
        server.stop()
