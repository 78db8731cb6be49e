"""What an error of Redis means: it passes, a person must act, or it is a mistake of ours."""

from __future__ import annotations

import pytest
from redis import exceptions as redis_exceptions

from events.errors import Fenced, SetupError, Transient
from events.log.redis_errors import redis_errors


@pytest.mark.parametrize(
    "error",
    [
        redis_exceptions.ConnectionError("Connection refused"),
        redis_exceptions.TimeoutError("Timeout reading from socket"),
        redis_exceptions.BusyLoadingError("Redis is loading the dataset in memory"),
        redis_exceptions.ReadOnlyError("You can't write against a read only replica."),
        redis_exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."),
        redis_exceptions.ClusterDownError("CLUSTERDOWN The cluster is down"),
        redis_exceptions.ResponseError("MISCONF Errors writing to the AOF file: No space left on device"),
        redis_exceptions.ResponseError("BUSY Redis is busy running a script."),
        redis_exceptions.ResponseError("NOREPLICAS Not enough good replicas to write."),
        ConnectionResetError("reset by peer"),
    ],
)
def test_what_passes_is_transient_and_keeps_its_cause(error: Exception) -> None:
    with pytest.raises(Transient) as caught, redis_errors():
        raise error
    assert caught.value.__cause__ is error
    assert str(error) in str(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        redis_exceptions.AuthenticationError("invalid username-password pair or user is disabled."),
        redis_exceptions.NoPermissionError("this user has no permissions to run the 'evalsha' command"),
    ],
)
def test_what_a_person_must_change_says_where(error: Exception) -> None:
    with pytest.raises(SetupError, match="REDIS_URL"), redis_errors():
        raise error


def test_a_key_of_another_type_closes_the_partition() -> None:
    error = redis_exceptions.ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value")
    with pytest.raises(Fenced, match="holds something else"), redis_errors():
        raise error


def test_a_pool_that_is_used_up_is_not_called_an_unreachable_redis() -> None:
    with pytest.raises(Transient, match="all connections of this process") as caught, redis_errors():
        raise redis_exceptions.MaxConnectionsError("Too many connections")
    assert "reached" not in str(caught.value)


def test_a_mistake_of_ours_stays_what_it_is() -> None:
    mistake = redis_exceptions.ResponseError("ERR wrong number of arguments for 'xadd' command")
    with pytest.raises(redis_exceptions.ResponseError), redis_errors():
        raise mistake
