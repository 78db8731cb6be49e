"""What commands print: JSON for programs, tables of at most 100 columns for people. Progress goes to stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

WIDTH = 100
STATE_STYLES = {
    "completed": "green", "live": "green", "active": "green", "stored": "green", "success": "green",
    "in_progress": "cyan", "running": "cyan", "building": "cyan", "catching_up": "cyan", "duplicate": "cyan",
    "blocked": "yellow", "waiting_approval": "yellow", "interrupted": "yellow", "stale": "yellow", "paused": "yellow",
    "failed": "red", "refused": "red", "conflict": "red", "stuck": "red", "lost": "red",
}  # fmt: skip
"""Colour of a word that tells a state; unknown words have none."""


def console(*, stderr: bool = False) -> Console:
    """A console that is never wider than WIDTH."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    made = Console(file=stream, highlight=False, soft_wrap=False)
    made.width = min(made.width, WIDTH) if stream.isatty() else WIDTH
    return made


def print_json(value: Any) -> None:
    """One JSON document on one line."""
    import orjson

    sys.stdout.buffer.write(orjson.dumps(value) + b"\n")
    sys.stdout.buffer.flush()


def print_lines(values: Iterable[Any]) -> None:
    """JSON lines."""
    for value in values:
        print_json(value)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str = "", empty: str = "none") -> None:
    """A table. ``name#`` is right-aligned; ``name~`` takes what width is left, on one line, cut where it must be."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    cells = [[_cell(value) for value in row] for row in rows]
    out = console()
    if not cells:
        out.print(f"[dim]{empty}[/dim]")
        return
    table = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left", title_style="bold", pad_edge=False)
    widths = [max(len(Text.from_markup(row[index])) for row in cells) for index in range(len(columns))]
    for index, column in enumerate(columns):
        name = column.rstrip("#~")
        if column.endswith("~"):
            others = sum(max(width, len(columns[other])) for other, width in enumerate(widths) if other != index)
            room = max(20, out.width - others - 3 * len(columns) - 2)
            for row in cells:
                cut = Text.from_markup(row[index])
                cut.truncate(room, overflow="ellipsis")
                row[index] = _escape(cut.plain)
        right: Literal["left", "right"] = "right" if column.endswith("#") else "left"
        table.add_column(name, justify=right, no_wrap=column[-1:] in ("#", "~"), overflow="fold")
    for row in cells:
        table.add_row(*row)
    out.print(table)


def print_fields(title: str, fields: Iterable[tuple[str, Any]]) -> None:
    """A title and names with values, those without a value left out."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in fields:
        if value not in (None, "", [], {}):
            grid.add_row(name, _cell(value))
    out = console()
    out.print(f"[bold]{_escape(title)}[/bold]")
    out.print(grid)


def progress(unit: str) -> Progress:
    """A progress bar on stderr with rate and remaining time; it shows nothing where stderr is no terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=28),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]} " + unit + "/s"),
        TimeRemainingColumn(),
        console=console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    )


def one_line(value: Any, limit: int = 300) -> str:
    """A value as one line of text, cut at ``limit`` characters."""
    import orjson

    text = value if isinstance(value, str) else "" if value is None else orjson.dumps(value).decode()
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def duration(seconds: float | None) -> str:
    """Seconds for people."""
    if seconds is None:
        return "-"
    if seconds < 90:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, (list, tuple)):
        return "\n".join(_cell(item) for item in value)
    text = value if isinstance(value, str) else one_line(value)
    style = STATE_STYLES.get(text)
    return f"[{style}]{text}[/{style}]" if style else _escape(_printable(text))


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _printable(text: str) -> str:
    """Control characters of recorded data must not reach the terminal."""
    return "".join(char if char.isprintable() or char == "\n" else "�" for char in text)
