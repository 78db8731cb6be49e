"""``refold bench``: how well contexts and searches do on recorded data of yours."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from services.cli.errors import USAGE, CliError
from services.cli.options import AsJson
from services.cli.output import console, hint, print_json, print_table

bench = typer.Typer(no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.add_typer(bench, name="bench", help="Measure contexts, searches and beliefs on recorded data.")


@bench.command("retrieval")
def retrieval(
    data: Annotated[Path, typer.Option("--data", metavar="FILE|DIR", help="The dialogues.", exists=True)],
    format_: Annotated[str, typer.Option("--format", metavar="FORM", help="locomo or memorybank.")] = "locomo",
    evidence: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Evidence of MemoryBank's questions, by your reading.")
    ] = None,
    model: Annotated[str, typer.Option(metavar="NAME", help="The embedding model.")] = "use-multilingual",
    as_json: AsJson = False,
) -> None:
    """Measure searches: how much of it is found.

    Of the evidence of each question, the share that is among the first 1, 5, 10 and 25 that are found: by keywords
    (BM25), by vectors (dense), and by the fusion of both that `refold search` ranks by.
    """
    from events.errors import RefoldError
    from services.bench.dialogues import FORMATS, read_dialogues

    if format_ not in FORMATS:
        raise CliError(f"--format is {format_!r}: it must be one of {', '.join(FORMATS)}", USAGE)
    try:
        dialogues = read_dialogues(data, format_, evidence)
        told = _measured(dialogues, model)
    except RefoldError as error:
        raise CliError(str(error), USAGE) from error
    if as_json:
        print_json(told)
        return
    rows = [
        (name, part["questions"], way, *(f"{figure:.3f}" for figure in recall.values()))
        for name, part in told["parts"].items()
        for way, recall in part["recall"].items()
    ]
    print_table(("data", "questions#", "way", "recall@1#", "recall@5#", "recall@10#", "recall@25#"), rows)
    hint(f"model {told['model']}; a passage is a turn of a dialogue")


def _measured(dialogues: list[Any], model: str) -> dict[str, Any]:
    from rich.progress import Progress

    from services.bench import retrieval as measuring
    from services.embedding.choice import Choice
    from services.embedding.models import load

    embedder = load(Choice(model, form="light"))
    parts: dict[str, Any] = {}
    everything: list[measuring.Found] = []
    with Progress(console=console(stderr=True), transient=True) as shown:
        for dialogue in dialogues:
            bar = shown.add_task(dialogue.name, total=measuring.texts_of(dialogue))
            found = measuring.measure(dialogue, embedder, partial(shown.advance, bar))
            everything += found
            parts[dialogue.name] = _part(len(dialogue.passages), found)
            away = measuring.held_out(found)
            if len(away) > 1:
                parts[f"{dialogue.name}, users held out"] = _part(
                    len(dialogue.passages), [one for one in found if one.user in away]
                )
    if len(dialogues) > 1:
        parts["all"] = _part(sum(len(dialogue.passages) for dialogue in dialogues), everything)
    return {"model": embedder.name, "parts": parts}


def _part(passages: int, found: list[Any]) -> dict[str, Any]:
    from services.bench.retrieval import figures

    return {"passages": passages, "questions": len(found), "recall": figures(found)}
