"""``refold bench beliefs``: whether beliefs built from some recorded runs know which of the others fail."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from services.cli.bench import bench
from services.cli.errors import USAGE, CliError
from services.cli.options import AsJson
from services.cli.output import hint, print_json, print_table


def register(app: typer.Typer) -> None:
    """Add the command to the group that ``services.cli.bench`` has added."""
    bench.command("beliefs")(beliefs)


def beliefs(
    data: Annotated[Path, typer.Option("--data", metavar="FILE|DIR", help="Recorded runs.", exists=True)],
    format_: Annotated[str, typer.Option("--format", metavar="FORM", help="chat, relay or swe-agent.")] = "chat",
    limit: Annotated[int | None, typer.Option(metavar="N", min=2, help="At most so many runs.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure beliefs: what they foretell.

    Beliefs about tools and paths are built from all but the last trial (of files that name trials; else from the first
    three quarters of the runs), and foretell which of the rest fail: AUC with its 95 % interval, 0.5 is chance. The way
    marked * is chosen without the last trial. Then whether confidences mean what they say.
    """
    from events.errors import RefoldError
    from services.bench import beliefs as measuring
    from services.bench.context import runs_of
    from services.importers.registry import FORMATS

    if format_ not in FORMATS:
        raise CliError(f"--format is {format_!r}: it must be one of {', '.join(FORMATS)}", USAGE)
    try:
        runs = [told for run in runs_of(data, format_, limit) if (told := measuring.told(run)) is not None]
        measured = measuring.measure(runs)
    except (RefoldError, ValueError) as error:
        raise CliError(f"{data}: {error}", USAGE) from error
    if as_json:
        print_json(measured)
    else:
        _show(measured)


def _show(measured: dict[str, Any]) -> None:
    rows = [
        (
            row["moment"], f"{row['way']}{' *' if row['chosen'] else ''}", _figure(row["held_in"]),
            *map(_figure, row["auc"] or (None,) * 3), _figure(row["auc_new_tasks"]), _figure(row["brier"]),
        )
        for row in measured["rows"]
    ]  # fmt: skip
    print_table(("moment", "way", "held in#", "AUC#", "from#", "to#", "new tasks#", "Brier#"), rows)
    hint(
        f"{measured['foretold']} runs foretold, {measured['failed']} of them failed, "
        f"from {measured['built_from']} others; "
        f"base rate {measured['base_rate']:.2f}, its Brier {measured['brier_of_base_rate']:.4f}"
    )
    if measured["failed"] in (0, measured["foretold"]):
        hint("there is no AUC where all of them end alike: more runs, or other ones, are needed")
    for name, what in _CONFIDENCES:
        table = measured[name]
        bins = [
            (f"{b['from']:.1f}-{b['to']:.1f}", b["number"], _figure(b["said"]), _figure(b["came"]))
            for b in table["bins"]
        ]
        if bins:
            print_table((what, "number#", "mean#", "came#"), bins)


_CONFIDENCES = (
    ("calls", "belief about a tool: the call worked"),
    ("paths", "belief about a path: the run succeeded"),
    ("runs", "chosen way: the run succeeded"),
)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
