"""What may still be asked for: parameters of the declared tools, and the words of plan steps that are open.

A result's field is needed ahead when its name (or that of the object around it and its own) is a parameter's, or when
all words of its name stand in the title of an open step. ``userId``, ``user_id`` and ``users.id`` are one name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from projections.bounds import clip

MAX_PARAMETERS = 256
MAX_STEPS = 64
MAX_MATCHES = 8
"""Of one card, so many fields that may be asked for are told."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_SCHEMAS = ("parameters", "input_schema", "inputSchema", "args_schema")
SAYS_NOTHING = frozenset(
    ("name", "type", "status", "value", "number", "date", "time", "result", "data", "item", "text")
)
_MARKS = frozenset(("id", "no", "nr", "number", "code", "key", "ref"))
"""Last words of a parameter that say that it names a thing."""
_NAME = 120
_TITLE = 400


@lru_cache(maxsize=8_192)
def words(name: str) -> tuple[str, ...]:
    """The words of a name, in lower case and singular."""
    return tuple(_singular(word.casefold()) for word in _WORD.findall(name))


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


@lru_cache(maxsize=8_192)
def readings(field: str) -> tuple[str, ...]:
    """How a field may be called as a parameter: by its own name, and with that of the object around it."""
    *around, own = [part for part in field.split(".") if part != "*"] or [""]
    plain = words(own)
    if not plain:
        return ()
    longer = (*words(around[-1]), *plain) if around else ()
    return tuple(dict.fromkeys("_".join(name) for name in (plain, longer) if name))


@lru_cache(maxsize=8_192)
def callings(parameter: str) -> frozenset[str]:
    """How a field may call what a parameter (in the form of ``readings``) asks for.

    ``new_item_id`` is ``item_id``, ``item`` and ``new_item``, too; a word that says nothing alone is none.
    """
    words_of = parameter.split("_")
    named = words_of[:-1] if words_of[-1] in _MARKS else words_of
    forms = {parameter, "_".join(named)}
    if named is not words_of and len(words_of) > 2:
        forms |= {"_".join(words_of[1:]), "_".join(named[1:])}
    return frozenset(forms - SAYS_NOTHING - {""} | {parameter})


def parameters(tools: Any) -> dict[str, list[str]]:
    """Parameter in the words of its name -> [tool, parameter], of declared tools in any of the usual forms."""
    found: dict[str, list[str]] = {}
    for tool, schema in _schemas(tools, 4):
        for name in _properties(schema, 6):
            key = "_".join(words(name))
            if key and key not in found:
                found[key] = [clip(tool, _NAME), clip(name, _NAME)]
            if len(found) >= MAX_PARAMETERS:
                return found
    return found


def declared(tools: Any) -> list[str]:
    """Names of declared tools, in any of the usual forms."""
    return list(dict.fromkeys(name for name, _ in _schemas(tools, 4)))


def _schemas(value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list) and depth:
        for item in value:
            yield from _schemas(item, depth - 1)
    elif isinstance(value, dict) and depth:
        name = value.get("name")
        schema = next((value[key] for key in _SCHEMAS if key in value), None)
        if isinstance(name, str) and schema is not None:
            yield name, schema
        else:
            for item in value.values():
                yield from _schemas(item, depth - 1)


def _properties(schema: Any, depth: int) -> Iterator[str]:
    if not isinstance(schema, dict) or not depth:
        return
    members = schema.get("properties")
    if isinstance(members, dict):
        for name, inner in members.items():
            yield name
            yield from _properties(inner, depth - 1)
    yield from _properties(schema.get("items"), depth - 1)


def open_steps(steps: Mapping[str, list[str]], titles: Mapping[str, str]) -> dict[str, list[str]]:
    """Open step -> the words of its title, with those of ``titles`` added; the first ``MAX_STEPS`` are kept."""
    more = {clip(step, _NAME): sorted(set(words(title[:_TITLE]))) for step, title in titles.items()}
    return dict(list({**steps, **more}.items())[:MAX_STEPS])


def ahead(fields: Iterable[str], needs: Mapping[str, Any] | None) -> list[list[str]]:
    """``[field, tool or step, parameter]`` for each field that may still be asked for; a step has no parameter."""
    if needs is None:
        return []
    wanted, steps = needs["parameters"] or {}, needs["steps"] or {}
    if not wanted and not steps:
        return []
    found: list[list[str]] = []
    for field in fields:
        match = next((wanted[name] for name in readings(field) if name in wanted), None)
        if match is None and steps:
            step = _step(field, steps)
            match = [step, ""] if step else None
        if match is not None:
            found.append([field, *match])
            if len(found) >= MAX_MATCHES:
                break
    return found


def _step(field: str, steps: Mapping[str, list[str]]) -> str:
    """The first open step whose title has all words of the field's name; ``""`` when there is none."""
    for name in readings(field):
        of_name = set(name.split("_"))
        if len(of_name) == 1 and (name in SAYS_NOTHING or len(name) < 4):
            continue
        for step, title in steps.items():
            if of_name <= set(title):
                return step
    return ""
