"""What uvloop says of a connection that the server has closed passes, as every lost connection does."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from events.errors import Transient
from events.log.redis_errors import redis_errors


def test_writing_to_what_the_server_closed_is_transient() -> None:
    async def write_too_late() -> None:
        async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.transport.abort()

        async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.transport.abort()
            await asyncio.sleep(0.05)
            with redis_errors():
                writer.writelines([b"PING\r\n"])

    with pytest.raises(Transient, match="Redis closed a connection"):
        uvloop.run(write_too_late())


def test_other_runtime_errors_are_mistakes_of_ours() -> None:
    with pytest.raises(RuntimeError, match="no running loop"), redis_errors():
        raise RuntimeError("no running loop")
