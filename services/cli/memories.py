"""``refold memories``, ``memory``, ``remember``, ``forget``: long-term memory of a user, an agent, the organisation."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from services.cli.client import Client, connected, segment
from services.cli.errors import NO, USAGE, CliError
from services.cli.options import AsJson, Data, Limit, OfAgent, OfOrg, OfUser, Url, one_scope
from services.cli.output import hint, one_line, print_entries, print_fields, print_json, print_lines, print_table, say
from services.cli.read import read_note, second

_KINDS = "Of a user: preference, fact, correction; of an agent: learning, procedure; of the organisation: convention"
STATES = ("active", "superseded", "invalidated", "expired", "deleted", "any")
By = Annotated[str, typer.Option("--by", metavar="NAME", help="Who says so; shown in the history.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command("memories")(memories)
    app.command("memory")(memory)
    app.command("remember")(remember)
    app.command("forget")(forget)


def memories(
    user: OfUser = None,
    agent: OfAgent = None,
    org: Annotated[bool, typer.Option("--org", help="Those of the organisation too.")] = False,
    query: Annotated[str, typer.Option("--query", "-q", metavar="WORDS", help="Those that fit, the best first.")] = "",
    kind: Annotated[str | None, typer.Option(metavar="KIND", help="preference, fact, correction, learning ...")] = None,
    tag: Annotated[str | None, typer.Option(metavar="TAG", help="With this tag.")] = None,
    status: Annotated[str, typer.Option("--status", metavar="STATE", help=f"One of {', '.join(STATES)}.")] = "active",
    proposals: Annotated[
        bool, typer.Option("--proposals", help="Instead: all that was proposed, and what became of it.")
    ] = False,
    limit: Limit = None,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List what is remembered of a user, an agent, or both.

    The most important first; with neither, what the organisation remembers.
    """
    if status not in STATES:
        raise CliError(f"--status {status}: it is one of {', '.join(STATES)}", USAGE)
    whose = {"user": user, "agent": agent, "org": True if org else None}
    with connected(data, url) as client:
        if proposals:
            found = list(client.items("/v1/memories/proposals", limit, **one_scope(user, agent, org)))
        elif query:
            found = client.get("/v1/memories/search", q=query, top_k=min(limit or 20, 200), **whose)["items"]
        else:
            found = list(client.items("/v1/memories", limit, kind=kind, tag=tag, status=status, **whose))
    if as_json:
        print_lines(found)
    elif proposals:
        shown = ("status", "reason", "proposal", "memory", "detail")
        rows = [tuple(one.get(name) for name in shown) for one in found]
        print_table(("status", "reason", "proposal", "memory", "detail~"), rows, empty="nothing was proposed yet")
    else:
        _print_memories(found, every=status == "any")


def _print_memories(found: list[dict[str, Any]], *, every: bool) -> None:
    rows = [
        (f"{one['importance']:.2f}", one["kind"], one["memory"], *((one["status"],) if every else ()),
         f"{'(untrusted) ' if one.get('trust') == 'data' else ''}{one_line(one.get('content', ''))}")
        for one in found
    ]  # fmt: skip
    columns = ("importance#", "kind", "memory", *(("status",) if every else ()), "content")
    print_entries(columns, rows, below=("content",), empty="no memories yet")


def memory(
    name: Annotated[str, typer.Argument(metavar="ID", help="The memory.")],
    user: OfUser = None,
    agent: OfAgent = None,
    edit: Annotated[str | None, typer.Option("--edit", metavar="WORDS", help="Change what it says.")] = None,
    version: Annotated[
        int | None, typer.Option("--version", metavar="N", help="Only if it is at this version.")
    ] = None,
    invalidate: Annotated[str | None, typer.Option("--invalidate", metavar="WHY", help="It holds no more.")] = None,
    restore: Annotated[bool, typer.Option("--restore", help="It holds again.")] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Remove its words for good.")] = False,
    by: By = "",
    yes: Yes = False,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show a memory with its history, or change it."""
    if sum((edit is not None, invalidate is not None, restore, delete)) > 1:
        raise CliError("give one of --edit, --invalidate, --restore and --delete", USAGE)
    path, whose = f"/v1/memories/{segment(name)}", {"user": user, "agent": agent}
    with connected(data, url) as client:
        if delete and not yes:
            typer.confirm(f"Delete {name}? Nothing brings it back.", abort=True)
        found = _changed(client, path, whose, edit, version, invalidate, by, restore=restore, delete=delete)
        after = found.get("token")
        history = list(client.items(f"{path}/history", None, after=after, **whose))
    if as_json:
        print_json({**found, "history": history})
        return
    fields = [(field.replace("_", " "), found.get(field)) for field in _SHOWN]
    print_fields(name, [*fields, ("note", read_note(found["read"]))])
    rows = [
        (one["version"], one["change"], second(one["time"]), one.get("by"),
         one_line(" ".join(filter(None, (one.get("content"), one.get("because"), one.get("other"))))))
        for one in history
    ]  # fmt: skip
    print_table(("version#", "change", "time", "by", "what~"), rows)


_SHOWN = (
    "status", "content", "kind", "memory_type", "scope", "entity", "attribute", "importance", "score", "confidence",
    "tags", "source", "trust", "superseded_by", "because", "said", "hits", "version", "run", "session", "expires",
)  # fmt: skip


def _changed(
    client: Client, path: str, whose: dict[str, str | None], edit: str | None, version: int | None,
    invalidate: str | None, by: str, *, restore: bool, delete: bool,
) -> dict[str, Any]:  # fmt: skip
    """The memory, after the change that was asked for."""
    params = {name: value for name, value in {**whose, "by": by}.items() if value}
    if edit is not None:
        body = {"content": edit, "by": by} | ({} if version is None else {"expected_version": version})
        names = {name: value for name, value in whose.items() if value}
        found: dict[str, Any] = client.document(client.request("PATCH", path, params=names, json=body))
    elif invalidate is not None:
        found = client.post(f"{path}/invalidate", reason=invalidate, **params)
    elif restore:
        found = client.post(f"{path}/restore", **params)
    elif delete:
        found = client.document(client.request("DELETE", path, params=params))
    else:
        found = client.get(path, **whose)
    return found


def remember(
    content: Annotated[str, typer.Argument(metavar="WORDS", help="What to remember.")],
    user: OfUser = None,
    agent: OfAgent = None,
    org: OfOrg = False,
    kind: Annotated[
        str | None, typer.Option(metavar="KIND", help=f"{_KINDS}. Default: fact, with --org convention.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="A tag; may be repeated.")] = None,
    ttl: Annotated[float | None, typer.Option("--ttl", metavar="SECONDS", help="How long it holds.")] = None,
    verbatim: Annotated[bool, typer.Option("--verbatim", help="Keep it as it is; only secrets are refused.")] = False,
    key: Annotated[str, typer.Option("--id", metavar="ID", help="The same again changes nothing.")] = "",
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Propose something to long-term memory.

    Says what became of it, and ends with 1 when it did not enter.
    """
    named = {**one_scope(user, agent, org), "ttl_s": ttl, "id": key or None}
    kind = kind or ("convention" if org else "fact")
    body = {"content": content, "kind": kind, "tags": tag or [], "infer": not verbatim}
    with connected(data, url) as client:
        given = {name: value for name, value in named.items() if value is not None}
        found = client.post("/v1/memories", {**body, **given})
    (fate,) = found["items"]
    if as_json:
        print_json(fate)
    elif fate["status"] == "admitted":
        say(f"remembered as {fate['memory']}", "green")
    elif fate["status"] == "pending":
        hint(f"not decided yet: refold memories --proposals shows {fate['proposal']}")
    else:
        other = f" ({fate['memory']})" if fate.get("memory") else ""
        say(f"not remembered: {fate['reason']}{': ' + fate['detail'] if fate.get('detail') else ''}{other}", "yellow")
    if fate["status"] == "rejected":
        raise typer.Exit(NO)


def forget(
    user: OfUser = None,
    agent: OfAgent = None,
    org: OfOrg = False,
    below: Annotated[float, typer.Option("--below", metavar="N", min=0, max=1, help="Importance, 0 to 1.")] = 0.0,
    everything: Annotated[bool, typer.Option("--everything", help="Delete all of theirs, for good.")] = False,
    do: Annotated[bool, typer.Option("--do", help="Really: without it, only shows what would be forgotten.")] = False,
    by: By = "",
    yes: Yes = False,
    data: Data = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Invalidate memories that have expired or faded.

    They can be restored; with neither --user nor --agent, those of the organisation.
    Or delete everything of a user or an agent, for good.
    """
    whose = {name: value for name, value in one_scope(user, agent, org).items() if value}
    with connected(data, url) as client:
        if everything:
            if not whose:
                raise CliError("--everything needs --user or --agent", USAGE)
            if not yes:
                typer.confirm(f"Delete every memory of {' and '.join(whose.values())}?", abort=True)
            answer = client.request("DELETE", "/v1/memories", params={**whose, **({"by": by} if by else {})})
            found = client.document(answer)
            if as_json:
                print_json(found)
            else:
                say(f"deleted {found['deleted']}, took back {found['cancelled']} proposals")
            return
        found = client.post("/v1/memories/forget", {**whose, "below": below, "dry_run": not do, "by": by})
    if as_json:
        print_json(found)
        return
    rows = [(f"{one['importance']:.2f}", one["memory"], one["why"], one_line(one["content"])) for one in found["items"]]
    print_table(("importance#", "memory", "why", "content~"), rows, empty="nothing to forget")
    if not do and found["items"]:
        hint("nothing was changed: add --do")
