"""``python -m services.embedding``: one model in a process of its own, asked over standard input and output.

It ends when its standard input does, so whoever started it takes it along, even by kill -9.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import BinaryIO

import orjson

from events.errors import RefoldError, SetupError, Transient
from services.embedding import wire
from services.embedding.choice import FORMS, Choice
from services.embedding.model import Embedder
from services.embedding.models import load


def serve(choice: Choice, questions: BinaryIO, answers: BinaryIO) -> None:
    """Load a model and answer until the questions end."""
    try:
        model = load(choice)
    except (SetupError, Transient) as error:
        answers.write(wire.failure(error))
        answers.flush()
        return
    answers.write(wire.told({"name": model.name, "dimension": model.dimension}))
    answers.flush()
    while len(head := questions.read(wire.LENGTH.size)) == wire.LENGTH.size:
        answers.write(_answer(model, questions.read(wire.LENGTH.unpack(head)[0])))
        answers.flush()


def _answer(model: Embedder, body: bytes) -> bytes:
    question = orjson.loads(body)
    try:
        rows = model.embed(question["texts"], query=question["query"])
    except RefoldError as error:
        return wire.failure(error)
    return wire.told({"rows": len(rows)}) + wire.packed(rows)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m services.embedding", description="Embed texts for one process.")
    parser.add_argument("--model", required=True)
    parser.add_argument("--url", default="")
    parser.add_argument("--form", choices=FORMS, default="auto")
    parser.add_argument("--nice", type=int, default=0, help="give way to other processes so much")
    given = parser.parse_args()
    os.nice(given.nice)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no answer
    serve(Choice(given.model, given.url, given.form), sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
