"""``refold up``, ``worker``, ``demo`` and ``doctor``: what runs on this machine, without asking an instance."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from services.cli.errors import NO, UNREACHABLE, USAGE, CliError
from services.cli.options import AsJson
from services.cli.output import piped, print_fields, print_json, print_table, say

if TYPE_CHECKING:
    from services.cli.check import Check
    from services.settings import Settings


class Role(StrEnum):
    """The roles of ``services.roles``, which is slow to import."""

    archiver = "archiver"
    inbox = "inbox"
    projector = "projector"
    reactors = "reactors"
    indexer = "indexer"
    api = "api"


class Level(StrEnum):
    """From which level on something is logged."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


DataHere = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="Data folder (REFOLD_DATA; default .refold).")
]

LogLevel = Annotated[
    Level | None, typer.Option(case_sensitive=False, help="What is logged (REFOLD_LOG_LEVEL; default info).")
]


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command("up")(up)
    app.command("demo")(demo)
    app.command("worker")(worker)
    app.command("doctor")(doctor)


def settings_of(**given: Any) -> Settings:
    """The settings of this process. Raises CliError in one line for a bad one."""
    from events.errors import SetupError
    from services.settings import Settings

    try:
        return Settings.read(os.environ, **given)
    except SetupError as error:
        raise CliError(str(error), USAGE) from error


def up(
    data: DataHere = None,
    http: Annotated[
        int | None, typer.Option("--http", "--port", metavar="PORT", help="HTTP port; 0: any free one.")
    ] = None,
    host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="HTTP address; default 127.0.0.1.")] = None,
    workers: Annotated[int | None, typer.Option(metavar="N", help="Projector processes beside the main one.")] = None,
    log_level: LogLevel = None,
) -> None:
    """Run everything on this machine, until Ctrl-C.

    Redis, archive, projections, reactors and HTTP; /openapi.json there describes the API. docs/guides/settings.md lists
    what can be set.
    """
    settings = settings_of(data=data, http_port=http, http_host=host, workers=workers, log_level=log_level)
    warn_of_unknown_settings()
    gc.disable()  # while a thousand modules are imported; the event loop turns it on again
    from services.up import run

    with setup_errors():
        run(settings)


def demo() -> None:
    """Watch it work: an agent runs, is killed, goes on.

    Then its read models are refolded and verified.
    """
    from services.demo.main import run

    raise typer.Exit(run())


def worker(
    roles: Annotated[
        list[Role] | None,
        typer.Option("--role", metavar="ROLE", help="archiver, inbox, projector, reactors or api; may be repeated."),
    ] = None,
    projections: Annotated[str, typer.Option(metavar="NAMES", help="Fold only these, separated by commas.")] = "",
    data: DataHere = None,
    metrics_port: Annotated[
        int | None, typer.Option(metavar="PORT", help="Serve this process's metrics there (REFOLD_METRICS_PORT).")
    ] = None,
    log_level: LogLevel = None,
) -> None:
    """Run one more process of the backend.

    Here it joins the instance of the data folder; on another machine it goes by REDIS_URL and REFOLD_DATABASE_URL.
    """
    settings = settings_of(data=data, metrics_port=metrics_port, log_level=log_level)
    warn_of_unknown_settings()
    gc.disable()  # as in ``up``
    from services.worker import run

    with setup_errors():
        run(settings, roles or (), [name.strip() for name in projections.split(",") if name.strip()])


def warn_of_unknown_settings() -> None:
    """Name the ``REFOLD_...`` variables that nothing reads: a mistyped setting would be silently ignored."""
    from services.settings import unknown_variables

    for name in unknown_variables(os.environ):
        print(f"warning: {name} is set, but no setting of that name exists", file=sys.stderr)


@contextmanager
def setup_errors() -> Iterator[None]:
    """Show errors of ours in one line. Exit code 2 for what must be set up otherwise, 3 for what cannot be reached."""
    from events.errors import RefoldError, SetupError

    try:
        yield
    except SetupError as error:
        raise CliError(str(error), USAGE) from error
    except RefoldError as error:
        raise CliError(str(error), UNREACHABLE) from error


def doctor(data: DataHere = None, as_json: AsJson = False) -> None:
    """Check this machine, and say what to do.

    Versions, Redis, stores, folders, disk, port, settings. Exit code 1 when it will not work.
    """
    from services.cli.doctor import examine, partitions
    from services.settings import NEW_LOG_PARTITIONS

    settings = settings_of(data=data)
    checks = examine(settings)
    made = partitions(settings)
    if as_json:
        rows = [{"name": c.name, "state": c.state, "found": c.found, "advice": c.advice} for c in checks]
        print_json({"ok": all(c.state != "bad" for c in checks), "partitions": made, "checks": rows})
    else:
        _print_checks(checks)
        wanted = settings.partitions or NEW_LOG_PARTITIONS
        say(f"partitions: {made}" if made else f"partitions: no log yet, a new one gets {wanted}")
    if any(check.state == "bad" for check in checks):
        raise typer.Exit(NO)


def _print_checks(checks: list[Check]) -> None:
    marks = {"ok": "ok", "warning": "look", "bad": "BAD"}
    found = [(check.name, marks[check.state], check.found, check.advice) for check in checks]
    if piped():
        print_table(("what", "state", "found", "advice"), found)
        return
    # advice is as long as it needs to be: sentences are folded, not cut
    print_fields(
        "", [(name, f"{mark:<5}{text}" + (f"\n{'':5}{advice}" if advice else "")) for name, mark, text, advice in found]
    )
