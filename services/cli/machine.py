"""``refold up``, ``worker``, ``demo`` and ``doctor``: what runs on this machine, without asking an instance."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from services.cli.errors import NO, UNREACHABLE, USAGE, CliError
from services.cli.options import AsJson
from services.cli.output import console, print_json, print_table

if TYPE_CHECKING:
    from services.settings import Settings

DataHere = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="Data folder (REFOLD_DATA; default .refold).")
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
    http: Annotated[int | None, typer.Option(metavar="PORT", help="HTTP port; 0 is any free one.")] = None,
    host: Annotated[str | None, typer.Option(help="HTTP address; default 127.0.0.1.")] = None,
    workers: Annotated[int | None, typer.Option(help="Projector processes beside the main one.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
) -> None:
    """Run everything on this machine: Redis, archive, projections, reactors, HTTP. Ctrl-C ends it."""
    settings = settings_of(data=data, http_port=http, http_host=host, workers=workers, log_level=log_level)
    from services.up import run

    with setup_errors():
        run(settings)


def demo() -> None:
    """Watch the whole idea work: an agent runs, is killed, goes on; its read models are refolded and verified."""
    from services.demo.main import run

    raise typer.Exit(run())


def worker(
    roles: Annotated[list[str] | None, typer.Option("--role", help="Only this role; may be repeated.")] = None,
    projections: Annotated[str, typer.Option(help="Fold only these, separated by commas.")] = "",
    data: DataHere = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
) -> None:
    """Run one more process of the backend, here or on another machine (REDIS_URL and REFOLD_DATABASE_URL)."""
    settings = settings_of(data=data, log_level=log_level)
    from services.worker import run

    with setup_errors():
        run(settings, roles or (), [name for name in projections.split(",") if name])


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
    """Check this machine: versions, Redis, stores, folders, disk, port. Exit code 1 when it will not work."""
    from services.cli.doctor import examine, partitions

    settings = settings_of(data=data)
    checks = examine(settings)
    made = partitions(settings)
    if as_json:
        rows = [{"name": c.name, "state": c.state, "found": c.found, "advice": c.advice} for c in checks]
        print_json({"ok": all(c.state != "bad" for c in checks), "partitions": made, "checks": rows})
    else:
        rows_ = [(c.name, _MARKS[c.state], f"{c.found}\n{c.advice}".strip()) for c in checks]
        print_table(("what", "", "found"), rows_)
        console().print(f"partitions: {made or f'{settings.partitions} (no log yet)'}")
    if any(check.state == "bad" for check in checks):
        raise typer.Exit(NO)


_MARKS = {"ok": "ok", "warning": "look", "bad": "BAD"}
