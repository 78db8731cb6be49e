"""Lines that name a value in other ways than with a colon, written anew with one, so that ``records`` reads them.

    Name .......: Ada        Name = Ada        Name      Ada        * Name: Ada

Two columns without a colon may be a table just as well: they name values only where the first column has words that
forms have (``Name``, ``Email``), in the first line and in another one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_NAME = r"(?P<indent>[ ]*)(?P<name>[^\W\d_][^:：=\t\"'{}\[\]|<>(#]{0,39}?)"
_DOTTED = re.compile(rf"{_NAME}[ ]?\.{{3,}}+[ ]?[:：]?[ ]*+(?P<value>\S.*)")
_EQUALS = re.compile(rf"{_NAME}[ ]*+=(?![=>])[ ]*+(?P<value>[^=\s(].*)?")
_ALIGNED = re.compile(rf"{_NAME}(?:[ ]*+\t[ \t]*+|[ ]{{2,}}+)(?P<value>\S(?:[ ]?[^ \t])*+)[ \t]*+")
_BULLET = re.compile(r"\A(?P<indent>[ ]*+)[*•·][ ]+(?=\S)")
_CODE = ("{", "(", "[", ";", "\\", "&&")
_PAIRS = re.compile(r"\s[\w.-]+=")
_OF_FORMS = frozenset((
    "name", "first name", "last name", "full name", "username", "email", "e-mail", "phone", "mobile", "address",
    "street", "city", "state", "zip", "country", "company", "title", "role", "birthday", "age", "id", "status", "type",
    "date", "created", "updated", "due", "total", "price", "currency", "quantity", "order", "customer", "description",
    "location", "url", "website", "version", "owner", "author", "priority", "category", "start", "end", "subject",
    "姓名", "名称", "电话", "邮箱", "地址", "城市", "状态", "日期",
))  # fmt: skip


def with_colons(lines: Sequence[str]) -> list[str] | None:
    """The lines with a colon behind each name; None when they are not all of one other way to name values."""
    first = next((line for line in lines if line.strip()), "")
    if "..." in first:
        return _rewritten(lines, _DOTTED)
    if "=" in first:
        rewritten = _rewritten(lines, _EQUALS)
        return None if rewritten is None or any(map(_is_code, lines)) else rewritten
    if "\t" in first or "  " in first.strip():
        rewritten = _rewritten(lines, _ALIGNED)
        return rewritten if rewritten is not None and _names_of_forms(rewritten) else None
    return None


def bulleted(lines: Sequence[str]) -> list[str]:
    """The lines with the ``-`` of YAML for each other bullet."""
    return [_BULLET.sub(r"\g<indent>- ", line, count=1) for line in lines]


def _rewritten(lines: Sequence[str], way: re.Pattern[str]) -> list[str] | None:
    rewritten: list[str] = []
    for line in lines:
        match = way.fullmatch(line.rstrip()) if line.strip() else None
        if match is None and line.strip():
            return None
        rewritten.append(f"{match['indent']}{match['name'].rstrip()}: {match['value'] or ''}" if match else "")
    return rewritten


def _is_code(line: str) -> bool:
    """Whether a line reads as a statement of a program, or tells more than one pair."""
    return line.rstrip().endswith(_CODE) or _PAIRS.search(line.partition("=")[2]) is not None


def _names_of_forms(lines: Sequence[str]) -> bool:
    names = [line.partition(":")[0].strip().casefold() for line in lines if line]
    return names[0] in _OF_FORMS and sum(name in _OF_FORMS for name in names) > 1
