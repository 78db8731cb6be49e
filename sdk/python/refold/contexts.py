"""What a context is asked for with: the options of ``context`` of clients and runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

CONTEXT_PATH = "/v1/context"


class ContextOptions(TypedDict, total=False):
    """``max_tokens`` of the whole; ``parts`` of it (all unless told); ``mode`` of work; ``focus``: words of what is to
    be decided; ``originals``: cards, by id or by the position that a context shows (``#1-42``), that are wanted whole.
    """

    max_tokens: int
    parts: Sequence[str]
    mode: str
    focus: str
    originals: Sequence[str]


def context_params(task: str, query: str, options: ContextOptions) -> dict[str, Any]:
    """The parameters of a request. Raises TypeError for an option that there is not: it would be left out unseen."""
    if unknown := sorted(options.keys() - ContextOptions.__annotations__.keys()):
        known = ", ".join(ContextOptions.__annotations__)
        raise TypeError(f"a context has no option {', '.join(unknown)}; there are {known}")
    lists = {name: ",".join(value) for name, value in options.items() if isinstance(value, (list, tuple))}
    given = {"task": task, "query": query, **options, **lists}
    return {name: value for name, value in given.items() if value not in (None, "")}
