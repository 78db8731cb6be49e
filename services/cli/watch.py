"""The live view of ``refold status --watch``: drawn in place, as wide as the terminal, on a narrow one with less."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from services.cli.output import STATE_STYLES, console, duration, printable
from services.cli.status import doing, headline, left, notes, pace

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

Document = Mapping[str, Any]

HISTORY = 16
"""Samples of a lag that are drawn."""
_BARS = "▁▂▃▄▅▆▇█"
BAR = 20
"""Cells of a rebuild's bar."""
_NARROW, _WIDE = 64, 100
"""Widths from which on a table has more columns."""


@dataclass
class History:
    """The lags of each projection, the latest last."""

    lags: dict[str, deque[int]] = field(default_factory=dict)

    def note(self, document: Document) -> None:
        """Remember what this document tells."""
        for one in document.get("projections", ()):
            self.lags.setdefault(one["name"], deque(maxlen=HISTORY)).append(one["lag_events"])

    def drawn(self, name: str) -> str:
        """The lags of a projection as bars."""
        return sparkline(list(self.lags.get(name, ())))


def sparkline(values: list[int]) -> str:
    """Bars from 0 to the greatest value; nothing while all are 0.

    >>> sparkline([0, 5, 10])
    '▁▅█'
    """
    top = max(values, default=0)
    return "".join(_BARS[round(value * (len(_BARS) - 1) / top)] for value in values) if top else ""


def live_view(first: dict[str, Any], again: Callable[[], dict[str, Any]]) -> None:
    """Show ``first``, then what ``again`` answers, which waits a moment each time. Until KeyboardInterrupt."""
    from rich.live import Live

    history, shown, document = History(), first, first
    out = console()
    with Live(console=out, auto_refresh=False, transient=False) as live:
        while True:
            error = document.get("error", "")
            shown = shown if error else document
            history.note(shown)
            # the terminal may have been made wider or narrower
            out.width = console().width
            live.update(view(shown, history, out.width, error), refresh=True)
            document = again()


def view(document: Document, history: History, width: int, error: str = "") -> Group:
    """What is drawn, at most ``width`` columns wide. ``error``: why the document is an old one."""
    from rich.console import Group
    from rich.text import Text

    lines = [Text(printable(headline(dict(document))), style="bold", overflow="fold")]
    if error:
        lines.append(Text(f"{printable(error)} (trying again)", style="red", overflow="fold"))
    parts: list[Any] = [*lines, _projections(document, history, width)]
    if any(one.get("partitions") for one in document["projections"]):
        parts.append(_partitions(document, width))
    parts += _rebuilds(document, width)
    troubled = _troubled_services(document)
    if troubled is not None:
        parts.append(troubled)
    dead = sum(one["dead_letters"] for one in document["projections"])
    told = [*notes(dict(document)), *([f"dead letters: {dead:,}, see `refold deadletters list`"] if dead else [])]
    parts += [Text(printable(note), style="yellow", overflow="fold") for note in told]
    parts.append(Text("Ctrl-C ends this view", style="dim"))
    return Group(*parts)


def _table(*columns: tuple[str, bool]) -> Table:
    """Columns by name, and whether they are right-aligned. Where there is no room, it is the first that is cut."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, (name, right) in enumerate(columns):
        table.add_column(name, justify="right" if right else "left", no_wrap=index > 0, overflow="ellipsis")
    return table


def _cut(text: str, style: str = "") -> Text:
    """On one line, however narrow its column."""
    from rich.text import Text

    return Text(printable(text), style=style, no_wrap=True, overflow="ellipsis")


def _state(one: Mapping[str, Any]) -> Text:
    return _cut(one["state"], STATE_STYLES.get(one["state"], ""))


def _projections(document: Document, history: History, width: int) -> Table:
    columns = [("projection", False), ("behind", True), ("state", False)]
    if width >= _NARROW:
        columns[2:2] = [("for", True), ("events/s", True), ("left", True)]
    if width >= _WIDE:
        columns += [("workers", True), ("behind, lately", False)]
    table = _table(*columns)
    for one in document["projections"]:
        cells: list[Any] = [_cut(one["name"]), f"{one['lag_events']:,}", _state(one)]
        if width >= _NARROW:
            cells[2:2] = [_age(one), pace(one), left(one)]
        if width >= _WIDE:
            cells += [str(one["workers"]), history.drawn(one["name"])]
        table.add_row(*cells)
    for one in document["reactors"]:
        cells = [_cut(f"reactor {one['name']}"), f"{one['lag_events']:,}", ""]
        if width >= _NARROW:
            cells[2:2] = [_age(one), "", ""]
        table.add_row(*cells, *([str(one["workers"])] if width >= _WIDE else []), style="dim")
    return table


def _age(one: Mapping[str, Any]) -> str:
    return duration(one["lag_s"]) if one["lag_events"] else ""


def _rebuilds(document: Document, width: int) -> list[Text]:
    """A line for each rebuild: how far it is."""
    lines = []
    for one in document["projections"]:
        told = one.get("rebuild") or {}
        if doing(one):
            share = told.get("done", 0) / told["total"] if told.get("total") else 0.0
            drawn = "█" * round(share * BAR) + "░" * (BAR - round(share * BAR)) if width >= _NARROW else ""
            lines.append(_cut(f"{drawn} {share:.0%} {one['name']} {doing(one)}".strip(), "cyan"))
    return lines


def _partitions(document: Document, width: int) -> Table:
    wide = width >= _NARROW
    columns = [("projection", False), ("p", True), ("behind", True), ("state", False), ("worker", False)]
    table = _table(*(columns if wide else columns[:4]))
    for one in document["projections"]:
        for each in one.get("partitions", ()):
            cells: list[Any] = [_cut(one["name"]), str(each["partition"]), f"{each['lag_events']:,}", _state(each)]
            table.add_row(*cells, *([_cut(each["worker"] or "-")] if wide else []))
    return table


def _troubled_services(document: Document) -> Table | None:
    """The services that do not run as they should."""
    troubled = {n: one for n, one in document["services"].items() if one["state"] != "running" or one["restarts"]}
    if not troubled:
        return None
    table = _table(("service", False), ("state", False), ("restarts", True), ("last error", False))
    for name, one in sorted(troubled.items()):
        table.add_row(name, one["state"], str(one["restarts"]), printable(one["error"]))
    return table
