"""Filters of a search: a tree of AND, OR and NOT over conditions, checked before anything is read.

    {"tool": "search_flights"}                                equal; several names in one object must all hold
    {"tool": ["search_flights", "book"]}                      one of these
    {"value": {"gte": 3, "lt": 9}}                            ranges of numbers, and of times for ``as_of``
    {"values": {"has": "HAT-123"}, "not": {"source": "user"}}
    {"or": [{"status": "superseded"}, {"and": [...]}]}

A condition that is wrong is Refused with the way to it in ``field``: ``filter.or[1].value.gte``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from events.errors import Refused
from events.times import check_time, instant
from projections.cards.reading.values import normal
from projections.retrieval.entry import Entry

Holds = Callable[[Entry], bool]

MAX_DEPTH = 16
MAX_CONDITIONS = 256

_TEXTS = ("card", "source", "trust", "tool", "status", "agent", "user", "session", "run", "task", "attribute")
_NUMBERS = ("value", "uses", "seen")
_LISTS = ("entity", "fields", "values")
FIELDS = (*_TEXTS, *_NUMBERS, *_LISTS, "as_of")
"""What can be asked for."""

_RANGES: Mapping[str, Callable[[Any, Any], bool]] = {
    "gt": lambda have, bound: have > bound,
    "gte": lambda have, bound: have >= bound,
    "lt": lambda have, bound: have < bound,
    "lte": lambda have, bound: have <= bound,
}


def compile_filter(tree: Any, where: str = "filter") -> Holds:
    """The test that a filter stands for; None and ``{}`` hold for everything. Raises Refused for a wrong one."""
    return _Compiler().tree({} if tree is None else tree, where, 0)


class _Compiler:
    def __init__(self) -> None:
        self._conditions = 0

    def tree(self, tree: Any, where: str, depth: int) -> Holds:
        if not isinstance(tree, Mapping):
            _refuse(where, 'is no object: write names and conditions, such as {"tool": "search"}')
        if depth > MAX_DEPTH:
            _refuse(where, f"lies more than {MAX_DEPTH} levels deep")
        parts = [self._part(name, item, f"{where}.{name}", depth) for name, item in tree.items()]
        return parts[0] if len(parts) == 1 else lambda entry: all(part(entry) for part in parts)

    def _part(self, name: str, item: Any, where: str, depth: int) -> Holds:
        self._conditions += 1
        if self._conditions > MAX_CONDITIONS:
            _refuse(where, f"is one condition too many: at most {MAX_CONDITIONS}")
        if name == "not":
            inner = self.tree(item, where, depth + 1)
            return lambda entry: not inner(entry)
        if name in ("and", "or"):
            if not isinstance(item, list):
                _refuse(where, "is no list: write a list of filters")
            parts = [self.tree(one, f"{where}[{place}]", depth + 1) for place, one in enumerate(item)]
            together = all if name == "and" else any
            return lambda entry: together(part(entry) for part in parts)
        if name not in FIELDS:
            _refuse(where, f"names no field: there are {', '.join(FIELDS)}, and `and`, `or`, `not`")
        return _condition(name, item, where)


def _condition(name: str, item: Any, where: str) -> Holds:
    operations: Mapping[str, Any]
    if isinstance(item, Mapping):
        operations = item
    else:
        plain = "has" if name in _LISTS else "eq"
        operations = {"in" if isinstance(item, list) else plain: item}
    if not operations:
        _refuse(where, "has no condition")
    parts = [_operation(name, word, value, f"{where}.{word}") for word, value in operations.items()]
    return parts[0] if len(parts) == 1 else lambda entry: all(part(entry) for part in parts)


def _operation(name: str, word: str, value: Any, where: str) -> Holds:
    if word == "exists":
        if not isinstance(value, bool):
            _refuse(where, "is neither true nor false")
        return lambda entry: bool(getattr(entry, name)) is value
    if name in _LISTS:
        return _of_list(name, word, value, where)
    read = _reader(name)
    if word in ("eq", "ne"):
        wanted = _operand(name, value, where)
        return (lambda entry: read(entry) == wanted) if word == "eq" else (lambda entry: read(entry) != wanted)
    if word in ("in", "not_in"):
        several = frozenset(_operand(name, one, f"{where}[{n}]") for n, one in enumerate(_list(value, where)))
        return (lambda entry: read(entry) in several) if word == "in" else (lambda entry: read(entry) not in several)
    if word == "prefix" and name in _TEXTS and isinstance(value, str):
        return lambda entry: str(read(entry)).startswith(value)
    if word in _RANGES and name not in _TEXTS:
        holds, bound = _RANGES[word], _operand(name, value, where)
        return lambda entry: holds(read(entry), bound)
    ways = "eq, ne, in, not_in, exists, " + ("prefix" if name in _TEXTS else "gt, gte, lt, lte")
    return _refuse(where, f"is no condition on `{name}`: there are {ways}")


def _of_list(name: str, word: str, value: Any, where: str) -> Holds:
    """``has`` one, ``in``: any of several; values and entities are compared in their normal form."""
    if word not in ("has", "in"):
        _refuse(where, f"is no condition on `{name}`: there are has, in, exists")
    asked = [value] if word == "has" else _list(value, where)
    if not all(isinstance(one, (str, int, float)) and not isinstance(one, bool) for one in asked):
        _refuse(where, "is neither a text nor a number")
    wanted = frozenset(form for one in asked for form in (str(one), *((normal(str(one)),) if name != "fields" else ())))
    return lambda entry: any(have in wanted for have in getattr(entry, name))


def _reader(name: str) -> Callable[[Entry], Any]:
    attribute = "as_of_s" if name == "as_of" else name
    return lambda entry: getattr(entry, attribute)


def _operand(name: str, value: Any, where: str) -> Any:
    if name == "as_of":
        try:
            return instant(check_time(value if isinstance(value, str) else "")).timestamp()
        except Refused as error:
            _refuse(where, f"is no time: {error}")
    if name in _NUMBERS:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            _refuse(where, f"is no number, as `{name}` is")
        return value
    if not isinstance(value, str):
        _refuse(where, f"is no text, as `{name}` is")
    return value


def _list(value: Any, where: str) -> Iterable[Any]:
    if not isinstance(value, list):
        _refuse(where, "is no list")
    return value


def _refuse(where: str, what: str) -> NoReturn:
    raise Refused(f"`{where}` {what}", code="bad_filter", field=where)
