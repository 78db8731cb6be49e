"""The entry point ``refold``: puts the command groups together, and turns errors into one line and an exit code.

Exit codes: 0 done; 1 the answer is no (verify unequal, events refused, no such thing); 2 wrong usage or set-up;
3 no instance, or it cannot be reached; 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from services.cli import (
    beliefs,
    bench,
    bench_beliefs,
    bench_context,
    calibrate,
    cards,
    context,
    deadletters,
    erase,
    experiences,
    history,
    machine,
    mcp,
    memories,
    operate,
    packs,
    policy,
    publish,
    read,
    rebuild,
    restore,
    search,
    settle,
    status,
    task,
)
from services.cli.errors import INTERRUPTED, CliError

app = typer.Typer(
    name="refold",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
for group in (
    machine, publish, read, settle, cards, memories, search, task, status, operate, rebuild, restore, deadletters,
    erase, history, context, beliefs, experiences, calibrate, policy, mcp, packs, bench, bench_context, bench_beliefs,
):  # fmt: skip
    group.register(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"refold {version('refold')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Event-sourced memory and state backend for AI agents: publish what happens, fold it, refold it."""


def main() -> None:
    """Run a command line and exit."""
    try:
        app()
    except CliError as error:
        print(f"refold: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # the reader of our output left (`refold events ... | head`): nothing more to say, to anyone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
