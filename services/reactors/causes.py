"""What a failure and the situation it happened in are called once every value is taken out of them. Pure.

**Causal pattern**: the tool and what went wrong in normal form (``normal_form``): two failures have one pattern when
they differ only in values. Values are numbers, ids, dates, paths, addresses, whatever stands in quotes, and whatever
the failed call was given as an argument; codes (HTTP 429, exit 2) are causes, and stay. Of several lines the one
counts that names an error, the last of them: that is where a traceback ends.

**Context**: the goal, the step and the mode, in normal form, as a fingerprint of 16 hexadecimal digits
(``context_of``). Two contexts are distinct when one of the three differs in more than its values; names that the run's
calls were given as arguments (``names_in``) are values, too. The user, the model, the time and what was called before
do not tell contexts apart: an attempt that is repeated, or that takes another route to the same goal, is the same one.

What travels beyond its user holds neither: ``value_free`` leaves a kind of cause from a closed list, and a digest.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any

from projections.cards.secrecy import secrets

PATTERN_CHARS = 160
LOOKED_AT = 4_000
"""Characters of a text that are looked at."""
MAX_VALUES = 200
VALUE_CHARS = 200

_ERROR_WORD = re.compile(
    r"error|exception|fail|denied|refused|错误|失败|异常|拒绝|エラー|失敗|오류|실패", re.IGNORECASE
)
_CODE = re.compile(
    r"(?:\b(?:http(?:/[\d.]+)?|status|code|exit|error|errno|returncode)|状态码|错误码|错误代码|代码|退出码)"
    r"[\s:=#(]{0,3}(?:code[\s:=#]{0,3})?(\d{1,3})\b|^\W*([45]\d\d)\b"
)
_VALUES = (
    re.compile(r"\b[a-z][a-z0-9+.-]*://\S+"),
    re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+", re.ASCII),
    re.compile(r"\"[^\"\n]{1,300}\"|`[^`\n]{1,300}`|(?<!\w)'[^'\n]{1,300}'(?!\w)"),
    re.compile(r"[“«「『《‘][^”»」』》’\n]{1,300}[”»」』》’]"),
    re.compile(r"(?:\b[a-z]:|\.{1,2}|~)?[\\/][\w.\\/-]+|\b[\w.-]+(?:/[\w.-]+)+", re.ASCII),
    re.compile(r"[\w.:-]*\d[\w.:-]*", re.ASCII),
    re.compile(r"\d+"),
)
_WORDS = re.compile(r"#|[^\W_]+")

KINDS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(words))
    for kind, words in (
        (
            "unavailable",
            r"econnrefused|connection (?:was |has been )?refused|refused (?:to connect|the connection|"
            r"connection)|连接(?:已?被|遭)?.{0,4}拒绝|拒绝.{0,2}连接|接続.{0,3}拒否",
        ),
        ("timeout", r"\b(?:408|504)\b|timed? ?-?out|deadline exceeded|超时|タイムアウト"),
        ("rate_limit", r"\b429\b|rate.?limit|too many requests|slow down|throttl|quota|限流|频率|过于频繁|配额"),
        (
            "forbidden",
            r"\b(?:401|403)\b|forbidden|unauthori[sz]ed|permission|not allowed|access denied|权限|未授权|禁止",
        ),
        (
            "not_found",
            r"\b(?:404|410)\b|not found|no such|does ?n[o']t exist|unknown|missing|不存在|未找到|找不到|没有找到",
        ),
        ("conflict", r"\b409\b|conflict|already exists|duplicate|locked|冲突|已存在|重复|锁定"),
        ("declined", r"\b402\b|declined|insufficient|not enough|rejected|refused|余额不足|不足|被拒|拒绝"),
        ("sold_out", r"sold out|out of stock|unavailable seat|售罄|缺货|无票"),
        (
            "invalid_input",
            r"\b(?:400|422)\b|invalid|malformed|bad request|validation|must be|required|无效|格式错误|参数",
        ),
        ("unavailable", r"\b5\d\d\b|unavailable|connection|unreachable|network|offline|down\b|不可用|网络|连接|宕机"),
        ("no_space", r"no space|disk full|out of memory|oom|空间不足|内存不足"),
        ("crashed", r"\bexit\b|segfault|killed|traceback|exception|panic|崩溃|异常|退出"),
    )
)
"""Kinds of causes, in the order in which they are tried: the first whose words or codes are there."""


def normal_form(text: str, values: Iterable[str] = ()) -> str:
    """Words in lower case, codes first, with every value taken out; at most ``PATTERN_CHARS`` characters."""
    line = _folded(_telling_line(secrets.masked_text(text[:LOOKED_AT])))
    codes = dict.fromkeys(f"code {first or second}" for first, second in _CODE.findall(line))
    line = _CODE.sub(" ", line)
    for value in sorted({_folded(value) for value in values}, key=lambda value: (-len(value), value)):
        line = _standing(value).sub(" # ", line)
    for pattern in _VALUES:
        line = pattern.sub(" # ", line)
    words: list[str] = list(codes)
    for word in _WORDS.findall(line):
        if word != "#" or words[-1:] != ["#"]:
            words.append(word)
    return " ".join(words)[:PATTERN_CHARS].strip()


def pattern_of(tool: str, cause: str, arguments: Any = None) -> str:
    """The causal pattern of a failure; ``arguments`` are those of the call that failed."""
    form = normal_form(cause, _texts(arguments))
    return f"{tool}: {form}" if tool else form


def kind_of(cause: str) -> str:
    """What kind of cause it is: one of ``KINDS``, or ``other``."""
    text = _folded(cause[:LOOKED_AT])
    return next((kind for kind, words in KINDS if words.search(text)), "other")


def value_free(pattern: str, cause: str) -> str:
    """A causal pattern for readers beyond the user: its kind, and eight digits of its digest."""
    return f"{kind_of(cause)}~{blake2b(pattern.encode(), digest_size=4).hexdigest()}"


def names_in(arguments: Iterable[Any]) -> list[str]:
    """What arguments name: the first ``MAX_VALUES`` texts that look like names of things."""
    return [text for text in _texts(list(arguments)) if _is_name(text)]


def context_of(goal: str, step: str, mode: str, names: Iterable[str] = ()) -> str:
    """The fingerprint of a situation; ``names`` are values that stand in its goal and step."""
    names = list(names)
    parts = (normal_form(goal, names), normal_form(step, names), mode)
    return blake2b("\x1f".join(parts).encode(), digest_size=8).hexdigest()


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _telling_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 2:
        return text
    return next((line for line in reversed(lines) if _ERROR_WORD.search(line)), lines[0])


def _standing(value: str) -> re.Pattern[str]:
    """Where a value stands: as a word in a script that puts spaces between words, anywhere in others."""
    before = "(?<![a-z0-9_])" if value[:1].isascii() else ""
    after = "(?![a-z0-9_])" if value[-1:].isascii() else ""
    return re.compile(before + re.escape(value) + after)


def _is_name(text: str) -> bool:
    """Whether a text names a thing rather than says what to do: ``Ana``, ``A-7``, ``a@b.c``; not ``refund``."""
    return not text.isascii() or text[:1].isupper() or any(char.isdigit() or char == "@" for char in text)


def _texts(value: Any) -> list[str]:
    """Short texts of a JSON value, the first ``MAX_VALUES``."""
    found: dict[str, None] = {}
    for text in _leaves(value):
        if 2 <= len(text) <= VALUE_CHARS:
            found[text] = None
            if len(found) == MAX_VALUES:
                break
    return list(found)


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value.strip()
    elif isinstance(value, dict):
        for member in value.values():
            yield from _leaves(member)
    elif isinstance(value, list):
        for member in value:
            yield from _leaves(member)
