"""Secrets never become part of a card: keys, tokens and passwords are masked in what cards are made of.

Masked are values named like a secret (``api_key: ...``, ``"password": "..."``, ``密码：...``, columns and elements with
such a name, all of a list or an object below it), passwords told in words, cookies, tokens of known make (``sk-``,
``ghp_``, ``AKIA``, a JWT, a private key, a password in an address), and long tokens that look drawn at random,
hexadecimal ones and mixed ones of letters and digits, unless they are called ids or digests (``id_names``). The
original is in the archive all the same. The rules are our own, since a fold must mean the same with whatever libraries
it runs.

Most events hold nothing of the kind: ``among`` says so at the cost of a glance at their facts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

from projections.cards.reading.columns import named_by_sibling
from projections.cards.reading.facts import opened
from projections.cards.reading.forms import MASK
from projections.cards.secrecy.id_names import PLAIN_TOKEN, names_id, told_id, told_plain
from projections.cards.secrecy.secret_columns import without_columns

_PASS = (
    r"passw(?:or)?d|passwort|passphrase|passcode|passwd|pwd|kennwort|contrase(?:ñ|n\u0303|n)a|senha|mot\ de\ passe"
    r"|пароль|密码|口令|パスワード|暗証番号|비밀번호"
)
_LABEL = (
    rf"{_PASS}|api[\ _-]?keys?|access[\ _-]?key(?:[\ _-]?id)?|secret(?:[\ _-]?(?:access)?[\ _-]?key)?"
    r"|client[\ _-]?secret|private[\ _-]?key|credentials?"
    r"|(?:access|auth|refresh|bearer|session|id|csrf|oauth|api|bot)[\ _-]?tokens?|authorization|密钥|令牌"
)
_NAMED = re.compile(
    rf"(?!.*{PLAIN_TOKEN}$)(?:(?i:.*(?:{_LABEL})|.*passw(?:or)?ds|(?:.*[._-])?token|(?:.*_)(?:pass|pat))|.*[a-z]Token)"
)
_ASSIGNED = re.compile(
    rf"(?i:(?:(?<![A-Za-z])(?:{_LABEL}|\btoken)|passw(?:or)?d|_pass|_pat)"
    r"[\"'\\]*\s*(?:[:=：]|=>)\s*(?:[|>]-?\s+)?(?:(?:bearer|basic|token)\s+)?+)"
    r"(?:(?P<quote>\\{0,8}[\"'])(?P<quoted>(?!\[masked\])(?:(?!(?P=quote))[^\n]){4,200})(?=(?P=quote))"
    r"|[\"'\\]*(?:(?:bearer|basic|token)\s+)?+"
    r"(?P<value>(?!\[masked\]|[,;])(?:[^\s\"'\\,;}\]<>]|[,;](?=[^\s\"'\\,;}\]<>])(?![\w.-]{0,64}[:=])){4,}))"
)
"""A value within quotes ends with them, and may have spaces; any other ends with the word."""

_SPOKEN = re.compile(
    r"(?i:\b(?:passw(?:or)?d|passcode|passphrase|pwd|pin(?:\ code)?|api\ key|(?:access|secret|private)\ key|token)"
    r"\s+(?:is|was)\s+[\"'`]?)(?P<value>(?!\[masked\])(?=[^\s]{0,128}\d)[^\s\"'`,;]{4,})"
)
_BARE = re.compile(
    r"(?i:(?:\b(?:password|passcode|passphrase|pwd)|(?<!\w)--?(?:password|pwd|token|api-key|secret))\s+)"
    r"(?P<value>(?!\[masked\])(?=[^\s]{0,128}\d)(?=[^\s]{0,128}[A-Za-z])[^\s\"'`,;]{6,})"
)
_SPOKEN_CJK = re.compile(
    r"(?:密码|口令|密钥|令牌|パスワード|暗証番号|비밀번호)\s?(?:是|为|改为|は|는)\s?(?P<value>(?!\[masked\])[\x21-\x7e]{4,})"
)
_ELEMENT = re.compile(
    rf"(?i:<(?:[\w.-]{{1,40}}:)?(?:{_LABEL}|token)(?:\s[^<>]{{0,200}})?>\s*)"
    r"(?P<value>(?!\[masked\])[^<>\s][^<>]{3,500})(?=</)"
)
_COOKIE = re.compile(
    r"(?i:\bcookie[\"'\\]*\s*[:=]\s*[\"'\\]*)(?P<value>(?!\[masked\])[^\s\"'\\=;]{1,100}=[^\r\n\"'\\]{4,})"
)
_QUERY = re.compile(
    r"(?i:[?&](?:key|code|(?P<short>sig|[\w-]{0,20}signature|auth))=)"
    r"(?P<value>(?!\[masked\])[^\s&\"'\\<>#]{8,}(?(short)|[^\s&\"'\\<>#]{8}))"
)
_LOGIN = re.compile(
    r"(?<!\S)(?:-u|--user)[\ =]\s?[\"']?[^\s:\"']{1,64}:(?P<value>(?!\[masked\])(?!\d+(?!\S))[^\s\"']{3,})"
)
_BEARER = re.compile(r"(?i:\b(?:bearer|basic)\s+)(?P<value>[A-Za-z0-9._~+/=-]{16,})")
_KNOWN = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|(?<![A-Za-z0-9])(?:sk|pk|rk)[-_](?=[A-Za-z0-9_.-]{0,64}\d)[A-Za-z0-9_.-]{16,}"
    r"|(?<![A-Za-z0-9])(?:gh[pousr]_|github_pat_|glpat-|xox[a-z]-|dop_v1_|whsec_|ya29\.)[A-Za-z0-9_-]{10,}"
    r"|(?<![A-Za-z0-9])(?:npm_|hf_)[A-Za-z0-9]{30,}|(?<![A-Za-z0-9])pypi-[A-Za-z0-9_-]{40,}"
    r"|(?<=AccountKey=)[A-Za-z0-9+/]{40,}={0,2}"
    r"|(?<![A-Za-z0-9])(?:AKIA|ASIA)[0-9A-Z]{16}"
    r"|(?<![A-Za-z0-9])AIza[A-Za-z0-9_-]{30,}"
    r"|(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"
    r"|(?<=hooks\.slack\.com/services/)[A-Za-z0-9/_-]{8,}"
    r"|(?<=discord\.com/api/webhooks/)[A-Za-z0-9/_-]{8,}",
    re.DOTALL,
)
_USERINFO = re.compile(r"(?<=://)[^\s/:@\"'\\]{0,64}:(?P<value>(?!\[masked\])[^\s/\"'\\]{1,128})(?=@)")
_TELLING = (_COOKIE, _ASSIGNED, _SPOKEN, _BARE, _SPOKEN_CJK, _ELEMENT, _QUERY, _LOGIN, _BEARER, _USERINFO)
_LONG = re.compile(r"(?<![A-Za-z0-9_-])(?P<value>[A-Za-z0-9]{24,512}+)(?![A-Za-z0-9_-])")
_HEX = re.compile(r"(?:[0-9a-f]{32,}|[0-9A-F]{32,})")

_HINTS = (
    "pwd", "secret", "token", "credential", "authorization", "bearer", "private", "xox", "eyj", "_pat:", "kennwort",
    "contrase", "senha", "cookie",
)  # fmt: skip
_HINTS_WITHIN = (
    ("pass", ("passw", "passphrase", "passcode", "_pass=", "_pass:", "mot de passe")),
    ("k-", ("sk-", "pk-", "rk-")),
    ("k_", ("sk_", "pk_", "rk_")),
    ("=", ("_pat=", "?key=", "&key=", "code=", "sig=", "signature=", "auth=")),
    ("-u", ("-u ", "--user")),
    ("hooks", ("webhooks/", "hooks.slack")),
)
"""What is looked for only where the part that all of them have is there."""
_HINTS_WIDE = ("密", "口令", "令牌", "パスワード", "暗証番号", "비밀번호", "пароль")
_LONG_ENOUGH = 20
_SHORTEST = 6
"""No secret is found in less: a label, a sign and a value, in code points."""
_ALNUM = bytes(c if chr(c).isalnum() and c < 128 else 32 for c in range(256))


def among(fields: tuple[str, ...], texts: Sequence[str]) -> bool:
    """Whether facts with these fields and texts may hold a secret. False is sure."""
    if _any_telling(fields) or _hints("\n".join(texts)):
        return True
    # what is left to tell is a long token, and most facts are too short for one
    return _long_token("\n".join([text for text in texts if len(text) >= _LONG_ENOUGH]))


@lru_cache(maxsize=2_048)
def _any_telling(fields: tuple[str, ...]) -> bool:
    """Results of one tool have the same fields, mostly."""
    return any(map(_telling, fields))


@lru_cache(maxsize=16_384)
def _telling(field: str) -> bool:
    return suspicious(field) or _NAMED.fullmatch(field) is not None or _PASSWORD.fullmatch(field) is not None


def suspicious(text: str) -> bool:
    """Whether a text may hold a secret. False is sure."""
    return len(text) >= _SHORTEST and (_hints(text) or _long_token(text))


def _long_token(text: str) -> bool:
    tokens = text.encode(errors="replace").translate(_ALNUM).split()
    return max(map(len, tokens), default=0) >= _LONG_ENOUGH


def _hints(text: str) -> bool:
    """Whether a text has a part of a label or of a known make, or an address that may hold a password."""
    lowered = text.lower()
    for hint in _HINTS:  # a loop, since a generator would cost more than all that it asks
        if hint in lowered:
            return True
    for part, hints in _HINTS_WITHIN:
        if part in lowered and any(hint in lowered for hint in hints):
            return True
    if "key" in lowered and ("api" in lowered or "access" in lowered):
        return True
    return ("://" in text and "@" in text) or (not text.isascii() and any(hint in lowered for hint in _HINTS_WIDE))


def masked(value: Any) -> Any:
    """A JSON value with its secrets masked; the value itself is not changed.

    A text that is read as records becomes JSON where only so it is seen that it holds a secret.
    """
    if isinstance(value, str):
        return _within(masked_text(value))
    if isinstance(value, list):
        names = value[0] if value and isinstance(value[0], list) else ()
        return [masked(item) for item in value[:1]] + [_row(names, item) for item in value[1:]]
    if isinstance(value, dict):
        return _object(value)
    return value


def _within(text: str) -> str:
    held = opened(text) if "\\" in text or "&" in text or suspicious(text) else text  # escapes hide what is looked for
    said = text if isinstance(held, str) else masked(held)
    return text if isinstance(held, str) or said == held else json.dumps(said, ensure_ascii=False)


def _object(value: dict[str, Any]) -> dict[str, Any]:
    said = {masked_text(key): _member(key, item) for key, item in value.items()}
    told = [item for name, item in value.items() if isinstance(item, str) and name.casefold() in _NAMES]
    values = [name for name in value if name.casefold() in _VALUES and name in said]
    if any(map(names_id, told)):
        said |= {name: _identified(value[name]) for name in values}  # {"name": "trace_id", "value": ..}
    if any(_NAMED.fullmatch(name) for name in told):
        said |= {name: _hidden(said[name]) for name in values}  # {"name": "PASSWORD", "value": ...}
    for name, rows in value.items():
        if name in said and isinstance(rows, list) and rows and (cells := named_by_sibling(value, rows)):
            said[name] = [_row(cells, row) for row in rows]
    names = next((said[name] for name in _COLUMNS if isinstance(said.get(name), list)), ())
    for name in _ROWS:
        if names and isinstance(said.get(name), list):
            said[name] = [_row(names, item) for item in said[name]]
    return said


def _row(names: Sequence[Any], row: Any) -> Any:
    """A row of a table whose columns have these names; anything else as it is without them."""
    if not isinstance(row, list) or len(row) != len(names) or not all(isinstance(name, str) for name in names):
        return masked(row)
    return [_member(name, item) for name, item in zip(names, row, strict=True)]


def _member(key: str, item: Any) -> Any:
    if isinstance(item, (str, list)) and _NAMED.fullmatch(key):
        return item if _counts(key, item) else _hidden(item)
    if isinstance(item, int) and not isinstance(item, bool) and _PASSWORD.fullmatch(key):
        return MASK
    if isinstance(item, dict) and _NAMED.fullmatch(key) and _PASSWORD.fullmatch(key):
        return _hidden(item)
    if isinstance(item, str) and _COOKIES.fullmatch(key) and "=" in item:
        return MASK
    return _identified(item) if isinstance(item, (str, list)) and names_id(key) else masked(item)


def _counts(name: str, item: Any) -> bool:
    """Whether a field tells how many tokens there are."""
    return isinstance(item, str) and item.isdigit() and name.casefold().endswith("tokens")


def _identified(item: Any) -> Any:
    """What a field named for an id holds: one token is one, however random it looks."""
    if isinstance(item, list):
        return [_identified(one) for one in item]
    return masked_text(item, named=len(item.split(None, 1)) == 1) if isinstance(item, str) else masked(item)


def _hidden(item: Any) -> Any:
    """What a field named for a secret holds."""
    if isinstance(item, str):
        return MASK if len(item) >= 4 and item.casefold() not in _PLAIN else item
    if isinstance(item, list):
        return [_hidden(one) for one in item]
    if isinstance(item, dict):
        return {name: _hidden(one) for name, one in _object(item).items()}
    return MASK if isinstance(item, int) and not isinstance(item, bool) else item


_NAMES = frozenset(("name", "key", "field", "variable", "label", "id"))
_VALUES = frozenset(("value", "val", "content", "default", "text"))
_COLUMNS, _ROWS = ("columns", "headers", "header", "fields"), ("rows", "data", "values", "records")
_COOKIES = re.compile(r"(?i:(?:set-)?cookie)")
_PASSWORD = re.compile(rf"(?i:(?:.*[._-])?(?:pin|secret)|.*(?:{_PASS})|.*passw(?:or)?ds)")
_PLAIN = frozenset(("none", "null", "true", "false", "required", "optional", "string", "missing", "invalid", "expired"))


def masked_text(text: str, *, named: bool = False) -> str:
    """A text with its secrets masked. ``named``: it is known to be an id or a digest, unless it has a secret's form."""
    if not suspicious(text):
        return text
    text = _KNOWN.sub(MASK, text)
    for pattern in _TELLING:
        text = pattern.sub(_without, text)
    if not named:
        text = _LONG.sub(lambda match: MASK if _drawn(match) else match[0], text)
    return without_columns(text, lambda name: _NAMED.fullmatch(name) is not None)


def _without(match: re.Match[str]) -> str:
    group = "value" if match["value"] is not None else "quoted"
    if match[group].casefold() in _PLAIN:
        return match[0]
    label = match[0][: match.start(group) - match.start()]
    if _counts(label.rstrip("\"'\\ :=："), match[group]):
        return label + match[group]
    if label[:5].casefold() == "token" and told_plain(match.string, match.start()):
        return match[0]
    return label + MASK


def _drawn(match: re.Match[str]) -> bool:
    """Whether a long token looks drawn at random, and is not called an id or a digest by what stands before it."""
    token = match[0]
    if _HEX.fullmatch(token):
        return not (token.isdigit() or told_id(match.string, match.start()))
    kinds = [("0" if c.isdigit() else "a" if c.islower() else "A") for c in token]
    turns = sum(one != other for one, other in pairwise(kinds))
    random = len(set(kinds)) == 3 and turns >= len(token) // 3 and kinds.count("0") >= 3
    return random and not told_id(match.string, match.start())
