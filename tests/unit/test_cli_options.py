"""Options of all commands: what reads a scope can read each kind of scope, what asks an instance can answer in JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from services.cli.errors import CliError
from services.cli.main import app
from services.cli.options import one_scope


def commands(command: Any, name: str = "") -> Iterator[tuple[str, set[str]]]:
    """Every command by its full name, with its long options."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name.strip(), {text for one in command.params for text in one.opts if text.startswith("--")}
    else:
        for each, below in inner.items():
            yield from commands(below, f"{name} {each}")


ALL = dict(commands(typer.main.get_command(app)))

UNITE = {"search", "policy", "mcp"}
"""Read the scopes of several at once, the organisation's among them."""
BY_ID = {"memory", "pack import"}
"""Know the scope by what they are given; `--user` and `--agent` only narrow it."""
OTHER_OUTPUT = {"mcp", "pack export", "task export"}
"""Write a protocol, a zip, JSON lines."""


def test_what_reads_the_scope_of_a_user_reads_that_of_the_organisation_too() -> None:
    of_users = {name for name, options in ALL.items() if {"--user", "--agent"} <= options} - UNITE - BY_ID
    assert {"memories", "remember", "forget", "beliefs", "belief", "experiences", "pack export"} <= of_users
    assert [name for name in sorted(of_users) if "--org" not in ALL[name]] == []


def test_what_asks_an_instance_answers_in_json() -> None:
    asks = {name for name, options in ALL.items() if "--url" in options}
    assert len(asks) > 30
    assert [name for name in sorted(asks - OTHER_OUTPUT) if "--json" not in ALL[name]] == []


def test_one_thing_has_one_name() -> None:
    """An option that is called otherwise elsewhere goes by the common name, too."""
    for other, common in (("--top-k", "--limit"), ("--tokens", "--max-tokens")):
        assert [name for name, options in ALL.items() if other in options and common not in options] == []


def test_two_scopes_are_refused() -> None:
    assert one_scope(None, None, True) == {"user": None, "agent": None}
    with pytest.raises(CliError, match="give one of"):
        one_scope("ada", None, True)
