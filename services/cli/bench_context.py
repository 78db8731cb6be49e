"""``refold bench context``: how much of what decisions need stands in a context, and at what cost."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from services.cli.bench import bench
from services.cli.errors import USAGE, CliError
from services.cli.options import AsJson
from services.cli.output import console, hint, print_json, print_table


def register(app: typer.Typer) -> None:
    """Add the command to the group that ``services.cli.bench`` has added."""
    bench.command("context")(context)


def context(
    data: Annotated[Path, typer.Option("--data", metavar="FILE|DIR", help="Recorded runs.", exists=True)],
    format_: Annotated[str, typer.Option("--format", metavar="FORM", help="chat, relay or swe-agent.")] = "chat",
    budget: Annotated[
        list[float] | None,
        typer.Option(metavar="SHARE", min=0.001, max=1.0, help="Share of the history's tokens; may be repeated."),
    ] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="At most so many runs.")] = None,
    alone: Annotated[bool, typer.Option("--alone", help="No run learns from those before it.")] = False,
    model: Annotated[str, typer.Option(metavar="NAME", help="Embedding model of dense; none: without, far faster.")] = (
        "use-multilingual"
    ),
    dump: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Every context at the first budget, as JSON lines.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure contexts: what they hold, and cost.

    For each tool call whose arguments stand in earlier results: the share of those values that the context before it
    holds (coverage), with their names (labelled), prose only in whole sentences (in sentence); its tokens over the
    history's (cost); the share of its own values that the call uses (density), that any later call uses (later).
    Beside other ways to make a context.
    """
    from events.errors import RefoldError
    from services.bench.context import BUDGETS
    from services.importers.registry import FORMATS

    if format_ not in FORMATS:
        raise CliError(f"--format is {format_!r}: it must be one of {', '.join(FORMATS)}", USAGE)
    try:
        told = _measured(data, format_, tuple(budget or BUDGETS), limit, alone, model, dump)
    except RefoldError as error:
        raise CliError(str(error), USAGE) from error
    if as_json:
        print_json(told)
        return
    rows = [[one["way"], *map(_figure, (one[name] for name in _SHOWN))] for one in told["ways"]]
    print_table(
        ("way", "coverage#", "labelled#", "in sentence#", "cost#", "density#", "later#"),
        rows,
        empty="no decision needs earlier values",
    )
    hint(f"{told['decisions']} decisions of {told['runs']} runs; tokens by Refold's estimate")
    if not told["decisions"]:
        hint("a decision is a call, from the fourth of its run on, with an argument that stands in an earlier result")


def _opened(dump: Path) -> TextIO:
    try:
        return dump.open("w", encoding="utf-8")
    except OSError as error:
        raise CliError(f"--dump {dump} cannot be written: {error.strerror}", USAGE) from error


_SHOWN = ("coverage", "labelled", "in_sentence", "cost", "density", "later")


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _measured(
    data: Path, format_: str, budgets: tuple[float, ...], limit: int | None, alone: bool, model: str, dump: Path | None
) -> dict[str, Any]:
    from rich.progress import Progress

    from services.bench import context as measuring
    from services.embedding.choice import Choice
    from services.embedding.models import load

    runs = measuring.runs_of(data, format_, limit)
    if not runs:
        raise CliError(f"{data} holds no runs of the form {format_}: is --format right?", USAGE)
    others = measuring.other_ways(budgets[0], None if model == "none" else load(Choice(model, form="light")))
    with ExitStack() as stack:
        silent = not sys.stderr.isatty()
        shown = stack.enter_context(Progress(console=console(stderr=True), transient=True, disable=silent))
        lines = stack.enter_context(_opened(dump)) if dump else None
        bar = shown.add_task("runs", total=len(runs))
        figures = measuring.measure(
            measuring.decisions(runs, budgets, others, alone=alone, done=lambda: shown.advance(bar)),
            None if lines is None else lambda line: lines.write(f"{line}\n"),
        )
    decided = figures[0]["decisions"] if figures else 0
    return {"runs": len(runs), "decisions": decided, "ways": figures}
