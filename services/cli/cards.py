"""``refold cards`` and ``card``: what later decisions depend on; why one is kept, what used it, and its original."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from services.cli.client import Client, connected, segment
from services.cli.errors import USAGE, CliError
from services.cli.options import AsJson, Data, Limit, Url
from services.cli.output import (
    one_line,
    piped,
    print_entries,
    print_fields,
    print_json,
    print_lines,
    print_table,
    say,
)
from services.cli.read import read_note, second

STATES = ("active", "superseded", "invalidated", "expired", "any")
_LINE = 60


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command("cards")(cards)
    app.command("card")(card)


def cards(
    task: Annotated[str, typer.Option("--task", metavar="ID", help="The task.")],
    status: Annotated[str, typer.Option("--status", metavar="STATE", help=f"One of {', '.join(STATES)}.")] = "active",
    every: Annotated[bool, typer.Option("--all", help="The same as --status any.")] = False,
    limit: Limit = None,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List the memory cards of a task, the most valuable first."""
    if status not in (*STATES, "all"):
        raise CliError(f"--status {status}: it is one of {', '.join(STATES)}", USAGE)
    every = every or status in ("any", "all")
    with connected(data, url) as client:
        found = list(client.items("/v1/cards", limit, task=task, status="" if every else status))
        if not found:
            client.get(f"/v1/tasks/{segment(task)}")  # no cards is an answer, no such task is none
    if as_json:
        print_lines(found)
        return
    shown = [
        (
            one["value"],
            one["uses"],
            one["card"],
            _from(one),
            *((one["status"],) if every else ()),
            one["summary"],
        )
        for one in found
    ]
    columns = ("value#", "used#", "card", "from", *(("status",) if every else ()), "summary")
    print_entries(columns, shown, below=("summary",), empty=f"task {task} has no {'' if every else status + ' '}cards")


def card(
    card: Annotated[str, typer.Argument(metavar="ID", help="The card.")],
    original: Annotated[bool, typer.Option("--original", help="The event it was made from, as published.")] = False,
    invalidate: Annotated[
        str | None, typer.Option("--invalidate", metavar="WHY", help="It does not hold; recorded as an event.")
    ] = None,
    restore: Annotated[
        str | None, typer.Option("--restore", metavar="WHY", help="It holds again; recorded as an event.")
    ] = None,
    depth: Annotated[int, typer.Option(metavar="LINKS", help="How far its links are followed.", min=1, max=6)] = 2,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show a memory card: why it exists, and what used it."""
    if sum((original, invalidate is not None, restore is not None)) > 1:
        raise CliError("give one of --original, --invalidate and --restore", USAGE)
    path = f"/v1/cards/{segment(card)}"
    with connected(data, url) as client:
        if original:
            _print_original(client.get(f"{path}/raw"), as_json or piped())
            return
        token = None
        if invalidate is not None:
            token = client.post(f"{path}/invalidate", {"reason": invalidate})["token"]
        elif restore is not None:
            token = client.post(f"{path}/restore", {"reason": restore})["token"]
        found = client.get(path, after=token)
        graph = client.get(f"{path}/graph", depth=depth, after=token)
        declared = None if as_json else _declared(client, found)
    if as_json:
        print_json({**found, "graph": {name: graph[name] for name in ("nodes", "edges", "more")}})
        return
    _print_card(found, declared)
    text = "\n".join((found["summary"], *(fact[-1] for fact in found["facts"])))
    uses = [(one["kind"], one["name"], second(one["time"]), _went(one["links"], text)) for one in found["used_by"]]
    print_table(("used by", "name", "time", "what went where~"), uses, title="Uses", empty="nothing used it yet")
    lines = list(_tree(card, graph))
    if lines:
        say("")
        for line in lines:
            say(line)


def _declared(client: Client, found: Mapping[str, Any]) -> str:
    """Why somebody said that a card does not hold, and who."""
    event = found.get("invalidated_by")
    if not event:
        return ""
    said = client.get(f"/v1/events/{segment(event)}")["items"][0]
    reason, by = said["data"].get("reason"), said["data"].get("by")
    return f"{reason or 'without a reason'}{f', by {by}' if by else ''}, {second(said['time'])}"


def _print_original(event: Mapping[str, Any], as_json: bool) -> None:
    """The event as it is for programs; for people its texts as they were written, line by line."""
    if as_json:
        print_json(event)
        return
    place = [(name, event.get(name)) for name in ("id", "type", "time", "run", "position")]
    print_fields("original", place)
    for name, value in event["data"].items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
        between = "\n" if "\n" in text else " "
        say(f"{name}:{between}{text}")


def _print_card(found: Mapping[str, Any], declared: str | None) -> None:
    replaced = found.get("superseded_by", "")
    place = found["original"]
    print_fields(
        f"card {found['card']}",
        [
            ("status", found["status"] + (f" by {replaced}" if replaced else "")),
            ("because", declared),
            ("why it exists", found["why"]),
            ("value", found["value"]),
            ("from", _from(found)),
            ("trust", "data from outside, never an instruction" if found["trust"] == "data" else found["trust"]),
            ("about", " ".join(found.get("entity") or ())),
            ("attribute", found.get("attribute")),
            ("says", found["summary"]),
            ("by a model", found.get("model_summary")),
            ("told otherwise since", ", ".join(found.get("outdated") or ())),
            ("as of", second(found["as_of"])),
            ("holds for", f"{found['ttl_s']:g} s" if found.get("ttl_s") is not None else ""),
            ("before use", found.get("refresh")),
            ("task", found.get("task")),
            ("original", f"{place['event_id']} at {place['position']}, {place['chars']:,} characters"),
            ("note", read_note(found["read"])),
        ],
    )


def _from(one: Mapping[str, Any]) -> str:
    return str(one.get("tool") or one["source"])


def _went(links: list[Mapping[str, str]], text: str) -> str:
    return "; ".join(_link(_spelled(one["value"], text), one["field"], one["parameter"]) for one in links)


def _spelled(value: str, text: str) -> str:
    """A value, which is compared without case, as the card's text has it."""
    found = re.search(re.escape(value), text, re.IGNORECASE)
    return found[0] if found else value


def _link(value: str, field: str, parameter: str) -> str:
    return f"{field or 'said'}{f' → {parameter}' if parameter else ''}: {value}"


def _tree(root: str, graph: Mapping[str, Any]) -> Iterator[str]:
    """The cards around one as lines: what it was made from, then what came of it; each card is followed once."""
    nodes = {node["card"]: node for node in graph["nodes"]}
    before: dict[str, list[tuple[str, str]]] = {}
    after: dict[str, list[tuple[str, str]]] = {}
    for edge in graph["edges"]:
        to, of = ("", "") if edge["kind"] == "used" else ("gave way to ", "took the place of ")
        after.setdefault(edge["from"], []).append((to, edge["to"]))
        before.setdefault(edge["to"], []).append((of, edge["from"]))
    for title, links in (("made with values of", before), ("led to", after)):
        if links.get(root):
            yield title
            yield from _branch(root, links, nodes, "", {root})


def _branch(
    card: str, links: Mapping[str, list[tuple[str, str]]], nodes: Mapping[str, Any], lead: str, told: set[str]
) -> Iterator[str]:
    ends = [(said, end) for said, end in links.get(card, ()) if end in nodes]
    for place, (said, end) in enumerate(ends):
        last = place == len(ends) - 1
        node = nodes[end]
        state = "" if node["status"] == "active" else f" ({node['status']})"
        yield f"{lead}{'└─ ' if last else '├─ '}{said}{end} {_from(node)}{state}: {one_line(node['summary'], _LINE)}"
        if end not in told:
            told.add(end)
            yield from _branch(end, links, nodes, f"{lead}{'   ' if last else '│  '}", told)
