"""Settings come from arguments, environment, defaults, in this order; a bad value is one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest

from events.errors import SetupError
from services.settings import Settings, unknown_variables


def test_defaults_need_nothing() -> None:
    settings = Settings.read({})
    assert (settings.data, settings.partitions, settings.http_port) == (Path(".refold"), 0, 8321)
    assert settings.stores_url == f"sqlite:///{Path('.refold').resolve()}/db"


def test_an_argument_wins_over_the_environment_and_that_over_the_default() -> None:
    environ = {"REFOLD_PARTITIONS": "4", "REFOLD_LEASE_S": "2.5", "REFOLD_DATA": "/srv/refold"}
    settings = Settings.read(environ, partitions=2, data=None)
    assert (settings.partitions, settings.lease_s, settings.data) == (2, 2.5, Path("/srv/refold"))


@pytest.mark.parametrize(
    ("variable", "text", "said"),
    [
        ("REFOLD_PARTITIONS", "0", "a whole number from 1 to 1024"),
        ("REFOLD_PARTITIONS", "eight", "a whole number"),
        ("REFOLD_PARTITIONS", "1e3", "a whole number"),
        ("REFOLD_HTTP_PORT", "70000", "a whole number from 0 to 65535"),
        ("REFOLD_LEASE_S", "nan", "seconds"),
        ("REFOLD_LEASE_S", "-1", "seconds"),
        ("REDIS_URL", "localhost:6379", "like redis://localhost:6379/0"),
        ("REDIS_URL", "http://localhost", "like redis://"),
        ("REDIS_URL", "redis://localhost:6379/prod", "the number of a database"),
        ("REDIS_URL", "redis://one:6379,two:6379/x", "the number of a database"),
        ("REFOLD_DATABASE_URL", "mysql://x/y", "sqlite:///FOLDER or postgresql://"),
        ("REFOLD_DATABASE_URL", "sqlite://", "sqlite:///FOLDER"),
        ("REFOLD_PROJECTIONS", "projections/registry.py", "like package.module:NAME"),
        ("REFOLD_UVLOOP", "perhaps", "1 or 0"),
        ("REFOLD_PACK_CONFIDENCE", "1.5", "a number from 0 to 1"),
        ("REFOLD_PACK_CONFIDENCE", "nan", "a number from 0 to 1"),
        ("REFOLD_LOG_LEVEL", "loud", "debug, info, warning or error"),
    ],
)
def test_a_bad_value_is_one_line_that_names_it(variable: str, text: str, said: str) -> None:
    with pytest.raises(SetupError) as caught:
        Settings.read({variable: text})
    message = str(caught.value)
    assert variable in message
    assert said in message
    assert "\n" not in message


def test_an_argument_is_named_as_the_command_line_names_it() -> None:
    with pytest.raises(SetupError, match="--http is '99999'"):
        Settings.read({}, http_port=99999)


def test_no_password_is_shown() -> None:
    with pytest.raises(SetupError) as caught:
        Settings.read({"REDIS_URL": "amqp://user:hunter2@host"})
    assert "hunter2" not in str(caught.value)


def test_a_child_process_reads_the_same_settings() -> None:
    settings = Settings.read({}, data="/srv/x", uvloop="0", lease_s=3, redis_url="redis://h:1/0")
    assert Settings.read(settings.environ()) == settings


def test_a_mistyped_variable_is_named_with_the_one_that_is_meant() -> None:
    environ = {
        "REFOLD_LEASE": "1",
        "REFOLD_DATA": "x",
        "REFOLD_URL": "http://x",
        "REFOLD_ORG": "o",
        "HOME": "/",
        "REFOLDX": "1",
    }
    assert unknown_variables(environ) == ["REFOLD_LEASE (is it REFOLD_LEASE_S?)"]
    assert unknown_variables({"REFOLD_Q9": "1"}) == ["REFOLD_Q9"]
