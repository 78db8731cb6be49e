"""What commands print: JSON and plain rows for programs, tables for people. Progress goes to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

WIDTH = 100
LEAST = 16
"""Width that a column which may be cut keeps, though the table gets wider than the terminal."""
LINES = 5
"""Most lines of a text below its row."""
INDENT = 4
STATE_STYLES = {
    "completed": "green", "live": "green", "active": "green", "stored": "green", "success": "green",
    "in_progress": "cyan", "running": "cyan", "building": "cyan", "catching_up": "cyan", "duplicate": "cyan",
    "blocked": "yellow", "waiting_approval": "yellow", "interrupted": "yellow", "stale": "yellow", "paused": "yellow",
    "abandoned": "yellow", "behind": "cyan", "rebuilding": "cyan", "unowned": "red", "missing": "red",
    "failed": "red", "refused": "red", "conflict": "red", "stuck": "red", "lost": "red",
}  # fmt: skip
"""Colour of a word that tells a state; unknown words have none."""


def console(*, stderr: bool = False) -> Console:
    """A console as wide as the terminal (WIDTH at most) or as COLUMNS says."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    made = Console(file=stream, highlight=False, soft_wrap=False)
    made.width = _columns() or (min(made.width, WIDTH) if stream.isatty() else WIDTH)
    return made


def piped() -> bool:
    """Whether a program reads what is printed: then rows are whole, one a line, with tabs between the cells."""
    return not sys.stdout.isatty() and _columns() is None


def _columns() -> int | None:
    text = os.environ.get("COLUMNS", "")
    return max(20, int(text)) if text.isascii() and text.isdigit() and len(text) < 6 and int(text) else None


def say(text: str, style: str = "") -> None:
    """One line for people, whole: it is the terminal that breaks it."""
    from rich.text import Text

    console().print(Text(printable(text), style=style), soft_wrap=True)


def hint(text: str) -> None:
    """One line of advice for people; not among what a program reads."""
    if piped():
        sys.stdout.flush()  # where both go to one file, advice comes after what it is about
        print(text, file=sys.stderr)
    else:
        say(text, style="dim")


def hint_dead_letters(projections: Iterable[Mapping[str, Any]]) -> None:
    """Say so when events of these could not be folded: what is equal or live may still lack them."""
    found = sum(one["dead_letters"] for one in projections)
    if found:
        say(f"{found:,} dead letter{'' if found == 1 else 's'}: see `refold deadletters list`", style="yellow")


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
    """A table, or rows with tabs where a program reads it.

    ``name#`` is right-aligned; ``name~`` shares with its like what width is left, on one line, cut where it must be.
    All else is shown whole and unbroken, however long, so that it can be copied.
    """
    values = [list(row) for row in rows]
    if piped():
        _print_plain(columns, values)
    elif values:
        _print_drawn(columns, [[_cell(value) for value in row] for row in values], title)
    else:
        console().print(f"[dim]{empty}[/dim]")


def print_entries(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, below: Sequence[str], empty: str = "none"
) -> None:
    """As ``print_table``; but people see what the columns ``below`` hold under its row, LINES lines at most."""
    values = [list(row) for row in rows]
    if piped() or not values:
        print_table(columns, values, empty=empty)
        return
    beside = [index for index, column in enumerate(columns) if column not in below]
    names = [columns[index].rstrip("#") for index in beside]
    cells = [[printable(one_line(readable(row[index]))) for index in beside] for row in values]
    heads = _aligned([names, *cells], [columns[index].endswith("#") for index in beside])
    out = console()
    out.print(heads[0], style="dim", markup=False, soft_wrap=True)
    for head, row in zip(heads[1:], values, strict=True):
        out.print(head, style="bold", markup=False, soft_wrap=True)
        for index in map(columns.index, below):
            _print_below(out, str(row[index]))


def _aligned(rows: Sequence[Sequence[str]], right: Sequence[bool]) -> list[str]:
    """Rows as lines whose cells stand below each other."""
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        blanks = [" " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        cells = [blank + cell if to else cell + blank for cell, blank, to in zip(row, blanks, right, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return lines


def _print_below(out: Console, text: str) -> None:
    from rich.text import Text

    lines = list(Text(printable(text)).wrap(out, out.width - INDENT)) if text else []
    kept = lines if len(lines) <= LINES else lines[: LINES - 1]
    for line in kept:
        out.print(" " * INDENT + line.plain, markup=False, soft_wrap=True)
    if len(lines) > len(kept):
        out.print(f"{' ' * INDENT}… {len(lines) - len(kept)} more lines", style="dim", markup=False)


def _print_plain(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A line of names, then a line a row; nothing cut, no space but single ones within a cell."""
    for row in [[column.rstrip("#~") for column in columns], *rows]:
        print("\t".join(_plain(value) for value in row))


def _print_drawn(columns: Sequence[str], cells: list[list[str]], title: str) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    def width(index: int) -> int:
        lines = [len(columns[index].rstrip("#~"))]
        lines += [line.cell_len for row in cells for line in Text.from_markup(row[index]).split("\n")]
        return max(lines)

    out = console()
    widths = _widths([width(index) for index in range(len(columns))], columns, out.width - 3 * len(columns))
    table = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left", title_style="bold", pad_edge=False)
    for index, column in enumerate(columns):
        right: Literal["left", "right"] = "right" if column.endswith("#") else "left"
        table.add_column(column.rstrip("#~"), justify=right, no_wrap=True, overflow="ellipsis", width=widths[index])
    for row in cells:
        table.add_row(*row)
    # what does not fit is left to the terminal, which breaks lines without a word being lost
    out.width = max(out.width, sum(widths) + 3 * len(columns))
    out.print(table, soft_wrap=False, crop=False)


def _widths(natural: list[int], columns: Sequence[str], room: int) -> list[int]:
    """Width of each column: its natural one; those that may be cut share what the others leave, the narrow first."""
    left = room - sum(width for width, column in zip(natural, columns, strict=True) if not column.endswith("~"))
    widths = list(natural)
    flexible = sorted((natural[index], index) for index, column in enumerate(columns) if column.endswith("~"))
    for position, (width, index) in enumerate(flexible):
        share = max(LEAST, left // (len(flexible) - position))
        widths[index] = min(width, share)
        left -= widths[index]
    return widths


def print_fields(title: str, fields: Iterable[tuple[str, Any]]) -> None:
    """A title and names with values, those without a value left out; where a program reads it, with a tab between."""
    from rich.table import Table

    given = [(name, value) for name, value in fields if value not in (None, "", [], {})]
    if piped():
        if title:
            print(_plain(title))
        for name, value in given:
            print(f"{name}\t{_plain(value)}")
        return
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in given:
        grid.add_row(name, _cell(value))
    out = console()
    if title:
        out.print(f"[bold]{_escape(title)}[/bold]")
    out.print(grid)


def progress(unit: str) -> Progress:
    """A progress bar over ``unit`` on stderr, with the field ``rate`` and the remaining time.

    It shows nothing where stderr is no terminal.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn(unit),
        TextColumn("{task.fields[rate]} events/s"),
        TimeRemainingColumn(),
        console=console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    )


def one_line(value: Any, limit: int | None = None) -> str:
    """A value as one line of text, cut at ``limit`` characters, if one is given."""
    import orjson

    text = value if isinstance(value, str) else "" if value is None else orjson.dumps(value).decode()
    text = " ".join(text.split())
    return text if limit is None or len(text) <= limit else f"{text[: limit - 1]}…"


def duration(seconds: float | None) -> str:
    """Seconds for people."""
    if seconds is None:
        return "-"
    if seconds < 90:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def readable(value: Any) -> str:
    """A value for people: an object as ``name: value``, a list as its items, a line for each where they are objects."""
    if isinstance(value, dict):
        return ", ".join(f"{name}: {readable(item)}" for name, item in value.items() if item not in (None, "", [], {}))
    if isinstance(value, (list, tuple)):
        return ("\n" if any(isinstance(item, dict) for item in value) else ", ").join(readable(item) for item in value)
    return _word(value)


def _word(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _cell(value: Any) -> str:
    """A cell of a table: markup for the console."""
    if isinstance(value, (list, tuple)):
        return "\n".join(_cell(item) for item in value)
    text = readable(value)
    style = STATE_STYLES.get(text)
    return f"[{style}]{text}[/{style}]" if style else _escape(printable(text))


def _plain(value: Any) -> str:
    """A cell for a program: one line, numbers without separators."""
    if isinstance(value, (list, tuple)):
        return "; ".join(_plain(item) for item in value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    return printable(" ".join(("" if value is None else readable(value)).split()))


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def printable(text: str) -> str:
    """Control characters of recorded data must not reach the terminal."""
    return "".join(char if char.isprintable() or char == "\n" else "�" for char in text)
