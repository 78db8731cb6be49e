"""How a JSON result reads: an object as ``name: value`` cells, an array of objects as a table that names columns once.

    reservation: JG7FMM; cabin: business; address (city: Austin, zip: 78750)
    flights (status: available): flight_number | date | prices (economy | business)
    - HAT028 | 2024-05-21 | 152 | 477
    - HAT277 | 2024-05-21 | 103 | 283

What is equal in all rows stands in the head. In an array of arrays each inner array begins with ``-`` and goes on with
``+``. ``…`` stands where something was left out, with how many rows that is; a value stands whole or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from projections.cards.extract import GAP, choose, holds, telling
from projections.cards.reading.facts import MAX_FACTS, Fact
from projections.cards.skeleton import KEY, Row, Table, tables_of
from projections.cards.templates import Template

MAX_CELL = 240
"""Longest cell, in code points: a longer list or text is cut between its values or sentences."""

MAX_ROW = 400
"""Longest row of a table, in code points; of a longer one some cells are left out."""

MOST_COUNTED = 100
"""So many rows that are left out are no longer counted."""

SHARE = 3
"""Rows that every table shows before any shows more."""

_BAR = " | "


class Item(NamedTuple):
    """A cell of an object, or a row of a table. ``parent``: the array of the row, where there are several."""

    text: str
    parent: str = ""
    needed: bool = False


@dataclass(slots=True)
class Block:
    """A table, or the one object there is. Items follow ``head`` on its line (``flat``), or on lines of their own.

    ``rows``: the items are rows, of which there are ``total`` (0: nobody knows); else they are cells of the one object.
    """

    head: str
    items: list[Item]
    flat: bool
    cut: bool = False
    rows: bool = False
    total: int = 0

    def text(self, places: Sequence[int]) -> str:
        """The block with the items at these places only."""
        shown = [self.items[place] for place in places]
        gap = [self._gap(len(shown))] if self.cut or len(shown) < len(self.items) else []
        if self.flat:
            return self.head + "; ".join([item.text for item in shown] + gap)
        lines, parent = [self.head] if self.head else [], ""
        for item in shown:
            lines.append(f"{'+' if parent and item.parent == parent else '-'} {item.text}")
            parent = item.parent
        return "\n".join(lines + gap)

    def _gap(self, shown: int) -> str:
        """What stands for the rest: how much it is, where that is a number that nobody takes for a value."""
        left = self.total - shown
        return f"{GAP} {left} more" if 0 < left < MOST_COUNTED else GAP


class _View(NamedTuple):
    """What blocks are made with.

    ``room``: a block that is longer has parts that cannot be shown in any case. ``complete``: there are no facts beside
    those at hand.
    """

    template: Template
    used: Collection[str]
    most: int
    room: int
    complete: bool

    def name(self, table: str, column: str) -> str:
        """How a column reads: as the template says, else its own name."""
        if self.template.names:
            return self.template.names.get(f"{table}.{column}" if table else column) or _last(column)
        return _last(column)

    def whole(self, table: str, column: str) -> str:
        """The same with the names of the nested objects around it."""
        outer = column.rpartition(".")[0]
        return f"{outer}.{self.name(table, column)}" if outer else self.name(table, column)

    def cell(self, row: Row, column: str) -> str:
        """The values of a column in one text."""
        values = row.cells[column]
        if len(values) == 1:
            return values[0]
        if column in row.prose:
            text = telling(values, MAX_CELL, used=self.used, most=self.most, first=self.template.prose)
            return " / ".join(text.splitlines())
        return listed(values, self.used, MAX_CELL, self.most)

    def labelled(self, row: Row, column: str, table: str) -> str:
        """A cell with its name before it; a key that is a value is its own name."""
        if column == KEY:
            return ": ".join(row.cells[KEY])
        name, cell = self.name(table, column), self.cell(row, column)
        return f"{name}: {cell}" if name else cell

    def uses(self, row: Row, columns: Iterable[str]) -> bool:
        """Whether a value in use stands in one of these columns."""
        return bool(self.used) and any(holds(value, self.used) for column in columns for value in row.cells[column])


def _last(column: str) -> str:
    return column.rpartition(".")[2] if "." in column else column


def listed(values: Sequence[str], used: Collection[str], limit: int, most: int) -> str:
    """Scalars of an array in one line of at most ``limit`` code points, or ``most`` with values in use."""
    sizes = [len(value) + 2 for value in values]
    if sum(sizes) <= limit:
        return ", ".join(values)
    needed = [holds(value, used) for value in values]
    return ", ".join([*(values[place] for place in choose(sizes, needed, range(len(values)), limit - 3, most)), GAP])


def render(facts: Sequence[Fact], template: Template, used: Collection[str], limit: int, most: int) -> str:
    """The facts of a JSON result as text of at most ``limit`` code points, or ``most`` with values in use."""
    title, view = template.titled(facts), _View(template, used, most, most if used else limit, len(facts) < MAX_FACTS)
    blocks = [block for table in tables_of(_shown(facts, template, used)) for block in _blocks(table, view)]
    text = _text(title, blocks, [range(len(block.items)) for block in blocks])
    if len(text) <= limit:
        return text
    room = len(title) + 1
    return _text(title, blocks, _fit(blocks, limit - room, most - room))


def _shown(facts: Sequence[Fact], template: Template, used: Collection[str]) -> Sequence[Fact]:
    """The facts that the template shows, in its order; those in use in any case."""
    if not template.fields and not template.leave_out:
        return facts
    shown = [fact for fact in facts if template.shows(fact.field) or holds(fact.text, used)]
    return sorted(shown, key=lambda fact: template.place(fact.field))


def _text(title: str, blocks: Sequence[Block], kept: Sequence[Sequence[int]]) -> str:
    texts = [block.text(places) for block, places in zip(blocks, kept, strict=True) if places]
    return "\n".join([title, *texts] if title else texts)


def _fit(blocks: Sequence[Block], limit: int, most: int) -> list[list[int]]:
    """Which items to keep: those with values in use, then some of each block, then whatever has room."""
    places = [(number, place) for number, block in enumerate(blocks) for place in range(len(block.items))]
    items = [blocks[number].items[place] for number, place in places]
    # the first of a block pays for its head and for the sign that something is missing
    sizes = [
        len(item.text) + 3 + (len(blocks[number].head) + 4) * (place == 0)
        for item, (number, place) in zip(items, places, strict=True)
    ]
    order = sorted(range(len(items)), key=lambda at: blocks[places[at][0]].rows and places[at][1] >= SHARE)
    kept: list[list[int]] = [[] for _ in blocks]
    for at in choose(sizes, [item.needed for item in items], order, limit, most):
        kept[places[at][0]].append(places[at][1])
    return kept


def _blocks(table: Table, view: _View) -> Iterator[Block]:
    """The blocks of a table: the object that the document itself is stands apart from rows beside it."""
    rows = table.rows
    if not table.name and rows[0].path == "" and len(rows) > 1:
        yield _object(table.name, rows[0], view)
        rows = rows[1:]
    if len(rows) == 1:
        yield _object(table.name, rows[0], view)
    else:
        yield _table(table.name, rows, view)


def _object(name: str, row: Row, view: _View) -> Block:
    items: list[Item] = []
    for outer, columns in groupby(row.cells, key=_outer):
        inner = [(column, view.labelled(row, column, name)) for column in columns]
        if outer and sum(len(text) for _, text in inner) <= MAX_ROW:
            text = f"{outer} ({', '.join([text for _, text in inner])})"
            items.append(Item(text, needed=view.uses(row, [column for column, _ in inner])))
        else:
            items += [Item(f"{outer}.{text}" if outer else text, needed=view.uses(row, (at,))) for at, text in inner]
    label = _label(name)
    return Block(f"{label}: " if label else "", items, flat=True)


def _outer(column: str) -> str:
    return column.rpartition(".")[0] if "." in column else ""


def _table(name: str, rows: Sequence[Row], view: _View) -> Block:
    """Several rows: below one heading when all have the same columns, else each with the names of its own."""
    label, first = _label(name), rows[0].cells
    names = list(first)
    if names == [KEY] or any(list(row.cells) != names and row.cells.keys() != first.keys() for row in rows):
        return _lines(f"{label}:" if label else "", rows, view, lambda row: _named_row(row, name, view))
    columns = _without_repeated_key(rows)
    same = [column for column in columns if [row.cells[column] for row in rows].count(first[column]) == len(rows)]
    columns = [column for column in columns if column not in same] or columns
    fixed = [f"{view.whole(name, column)}: {view.cell(rows[0], column)}" for column in same if column not in columns]
    head = " ".join(filter(None, (label, f"({', '.join(fixed)})" if fixed else "")))
    head = ": ".join(filter(None, (head, _heading(name, columns, view))))
    block = _lines(head, rows, view, lambda row: _line(row, columns, [view.cell(row, c) for c in columns], view, _BAR))
    if len(columns) == 1:
        block.head, block.flat = f"{head}: ", True
    return block


def _named_row(row: Row, table: str, view: _View) -> str:
    """A row whose cells bear their names; its key comes first, and nothing repeats it."""
    key = row.cells.get(KEY, [])
    columns = [column for column, values in row.cells.items() if column != KEY and values != key]
    rest = _line(row, columns, [view.labelled(row, column, table) for column in columns], view, ", ")
    return ": ".join([*key, rest] if rest else key)


def _without_repeated_key(rows: Sequence[Row]) -> list[str]:
    """The columns, without the keys where another column repeats them in every row."""
    columns = list(rows[0].cells)
    if KEY in columns and any(
        all(row.cells[column] == row.cells[KEY] for row in rows) for column in columns if column != KEY
    ):
        columns.remove(KEY)
    return columns


def _lines(head: str, rows: Sequence[Row], view: _View, line: Callable[[Row], str]) -> Block:
    """A line a row. Where no value is in use, those that have no room in any case are not even made."""
    items: list[Item] = []
    size = 0
    for row in rows:
        items.append(Item(line(row), _array_of(row.path), view.uses(row, row.cells)))
        size += len(items[-1].text)
        if size > view.room and not view.used:
            break
    total = len(rows) if view.complete else 0
    return Block(head, items, flat=False, cut=len(items) < len(rows), rows=True, total=total)


def _line(row: Row, columns: Sequence[str], cells: Sequence[str], view: _View, joiner: str) -> str:
    """Cells in one line; of a long one, those in use and as many others as there is room for."""
    text = joiner.join(cells)
    if len(text) <= MAX_ROW:
        return text
    needed = [view.uses(row, (column,)) for column in columns]
    kept = set(choose([len(cell) for cell in cells], needed, range(len(cells)), MAX_ROW, view.most))
    return joiner.join([cell if place in kept else GAP for place, cell in enumerate(cells)])


def _heading(name: str, columns: Sequence[str], view: _View) -> str:
    """The names of the columns; those of a nested object in parentheses behind its name."""
    parts: list[str] = []
    for outer, inner in groupby(columns, key=_outer):
        names = _BAR.join("key" if column == KEY else view.name(name, column) for column in inner)
        parts.append(f"{outer} ({names})" if outer else names)
    return _BAR.join(parts)


def _label(name: str) -> str:
    return ".".join(part for part in name.split(".") if part != KEY) if KEY in name else name


def _array_of(path: str) -> str:
    """Where the array of a row stands, if it is one of several: when the way to it holds an index."""
    parent = path.rpartition(".")[0]
    return parent if parent and any(part.isdigit() for part in parent.split(".")) else ""
