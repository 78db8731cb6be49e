"""Classes of values, and how much each weighs in the mode that a run works in.

time      a date or a time of day
place     a value in a field named for a place; a path or an address of the web
id        what identifies: digits within letters, an e-mail address, a field that ends in ``id``, ``key``, ``code`` ...
number    an amount
name      a person, a thing, a title: short text
concept   running text, words without a value of their own
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal

Kind = Literal["time", "place", "id", "number", "name", "concept"]

_PLAIN: Mapping[Kind, int] = {"time": 1, "place": 1, "id": 1, "number": 1, "name": 1, "concept": 1}

MODES: Mapping[str, Mapping[Kind, int]] = {
    "default": _PLAIN,
    # times, places and ids decide a plan; mere description does not
    "precise_planning": {**_PLAIN, "time": 2, "place": 2, "id": 2, "concept": 0},
    # whatever is a new thing to look into
    "information_gathering": {**_PLAIN, "name": 2, "id": 2},
    # ideas and their style; identifiers only once they are used
    "creative": {**_PLAIN, "concept": 2, "time": 0, "number": 0, "id": 0},
}
"""Weight of a new value by its class: 0 makes no card by itself, 2 counts twice."""

_TIME = re.compile(r"\d{4}-\d\d-\d\d.*|--\d\d-\d\d|\d\d:\d\d(?::\d\d)?")
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
_PLACE = re.compile(
    r"(?:^|[._])(?:city|town|country|state|region|province|address\d?|street|location|place|airport|station|origin"
    r"|destination|venue|hotel|room|gate|latitude|longitude|zip|postal_code|path|file|folder|directory|url|uri|host)s?$"
    r"|(?:城市|地址|地点|目的地|出发地|机场|车站|国家|省|街道)$",
    re.IGNORECASE,
)
_ID = re.compile(
    r"(?:^|[._])(?:id|uuid|key|code|number|no|sku|isbn|ref|email|phone)s?$|[a-z]I[dD]s?$|(?:编号|单号|号码)$"
)
_MIXED = re.compile(r"(?=.*\d)(?=.*[^\W\d])[\w.:-]+")


@lru_cache(maxsize=32_768)
def kind_of(value: str, field: str) -> Kind:
    """Class of a value in normal form that stands in this field (``""``: in prose)."""
    if _TIME.fullmatch(value):
        return "time"
    if _PLACE.search(field) or "/" in value or "\\" in value:
        return "place"
    if "@" in value or _MIXED.fullmatch(value) or _ID.search(field):
        return "id"
    return "number" if _NUMBER.fullmatch(value) else "name"


def weights(mode: str) -> Mapping[Kind, int]:
    """Weights of a mode; an unknown one is the default."""
    return MODES.get(mode, _PLAIN)


def heaviest(values: Sequence[tuple[str, str]], of: Mapping[Kind, int]) -> int:
    """The greatest weight among (value, field) by these weights; 0 without any."""
    if of is _PLAIN:
        return min(len(values), 1)  # all classes weigh alike, so none needs to be told
    return max((of[kind_of(value, field)] for value, field in values), default=0)
