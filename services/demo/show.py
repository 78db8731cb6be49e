"""How the demo's findings look: panels and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

_WIDTH = 100
_STYLES = {"completed": "green", "interrupted": "yellow", "in_progress": "cyan", "failed": "red", "planned": "dim"}
_MARKS = {"completed": "✓", "in_progress": "▸", "failed": "✗", "skipped": "–"}


def make_console() -> Console:
    """A console of at most 100 columns; plain text where it is no terminal."""
    console = Console(highlight=False)
    console.width = min(console.width, _WIDTH) if console.is_terminal else _WIDTH
    return console


def progress(console: Console) -> Progress:
    """A progress bar that counts events."""
    columns = (TextColumn("  {task.description}"), BarColumn(30), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, TextColumn("[dim]{task.fields[note]}"), console=console)


def task_panel(task: Mapping[str, Any]) -> Panel:
    """A task's state: status, plan, calls under way."""
    status = task["status"]
    lines = [Text.assemble("status ", (status, _STYLES.get(status, "")), f"   attempt {task['attempt']}")]
    lines += [_step(step) for step in task["plan"]]
    calls = task.get("in_flight") or task.get("calls_in_flight") or ()
    for call in calls:
        arguments = ", ".join(f"{name}={value}" for name, value in (call.get("arguments") or {}).items())
        lines.append(Text(f"in flight: {call['name']}({arguments}): {call['status']}", style="yellow"))
    return Panel(Group(*lines), title=f"task state: {task['task']}", title_align="left", border_style="blue")


def _step(step: Mapping[str, Any]) -> Text:
    said = step.get("summary") or ""
    text = f"{_MARKS.get(step['status'], ' ')} {step.get('title') or step['step']}"
    return Text(text + (f": {said}" if said else ""), style=_STYLES.get(step["status"], ""), overflow="ellipsis")


def cards_table(cards: Iterable[Mapping[str, Any]], limit: int = 6) -> Table:
    """The most valuable memory cards."""
    table = _table("memory cards, the most valuable first")
    table.add_column("value", justify="right")
    table.add_column("from")
    table.add_column("card", ratio=1, no_wrap=True, overflow="ellipsis")
    table.add_column("used", justify="right")
    for card in list(cards)[:limit]:
        summary = " ".join(str(card.get("summary", "")).split())
        table.add_row(f"{card['value']:g}", str(card.get("tool") or card["source"]), summary, str(card.get("uses", 0)))
    return table


def settlement_panel(settlement: Mapping[str, Any]) -> Panel:
    """What a run left behind."""
    state = settlement.get("session_state") or {}
    lines = [f"by the {settlement.get('by', '?')}, after {settlement.get('reason', '?')}"]
    lines += [f"did: {done.get('path', '')}: {done.get('summary', '')}" for done in state.get("completed_actions", ())]
    lines += [f"decided: {decision}" for decision in state.get("key_decisions", ())]
    lines += [f"next: {item}" for item in state.get("action_items", ())]
    lines += [f"proposes to remember: {_content(memory)}" for memory in settlement.get("memories", ())]
    lines += [f"learned: {_content(learning)}" for learning in settlement.get("learnings", ())]
    title = f"settlement of run {str(settlement.get('run', ''))[:13]}…"
    return Panel(Text("\n".join(lines)), title=title, title_align="left", border_style="magenta")


def _content(value: Any) -> str:
    return str(value.get("content", value)) if isinstance(value, Mapping) else str(value)


def beliefs_table(beliefs: Iterable[Mapping[str, Any]], title: str) -> Table:
    """What the agent has learned to expect, the most confident first."""
    table = _table(title)
    table.add_column("confidence", justify="right")
    table.add_column("status")
    table.add_column("belief", ratio=1)
    table.add_column("for : against", justify="right")
    for belief in beliefs:
        votes = f"{belief['supports']:g} : {belief['against']:g}"
        table.add_row(f"{belief['confidence']:.2f}", belief["status"], belief["statement"] or belief["belief"], votes)
    return table


def checksums_table(projections: Iterable[Mapping[str, Any]]) -> Table:
    """How each read model compares with a fold of the whole log from its start."""
    table = _table("every read model against a fresh fold of the whole log")
    table.add_column("read model")
    table.add_column("generation")
    table.add_column("checksum")
    table.add_column("")
    for one in projections:
        checksum = str(one["checksum"])[:24] + "…"
        verdict = "[green]equal" if one["equal"] else "[red]UNEQUAL"
        table.add_row(one["name"], str(one["generation"]), checksum, verdict)
    return table


def _table(title: str) -> Table:
    return Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False, expand=True
    )
