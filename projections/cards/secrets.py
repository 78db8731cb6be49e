"""Secrets never become part of a card: keys, tokens and passwords are masked in what cards are made of.

Masked are values named like a secret (``api_key: ...``, ``"password": "..."``, ``密码：...``), tokens of known make
(``sk-``, ``ghp_``, ``AKIA``, a JWT, a private key, a password in an address), and long tokens that look drawn at
random: hexadecimal ones that are not called a digest or a commit, and mixed ones of letters and digits. The original is
in the archive all the same. The rules are our own, since a fold must mean the same with whatever libraries it runs.

Most events hold nothing of the kind: ``among`` says so at the cost of a glance at their facts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

from projections.cards.facts import Fact
from projections.cards.forms import MASK

_LABEL = (
    r"api[\ _-]?keys?|access[\ _-]?key(?:[\ _-]?id)?|secret(?:[\ _-]?(?:access)?[\ _-]?key)?|client[\ _-]?secret"
    r"|passw(?:or)?d|passphrase|passwd|pwd|private[\ _-]?key|credentials?"
    r"|(?:access|auth|refresh|bearer|session|id|csrf|oauth|api|bot)[\ _-]?tokens?|authorization|密码|密钥|口令|令牌"
)
_NAMED = re.compile(rf"(?:.*[._-])?(?:{_LABEL}|token)", re.IGNORECASE)
_ASSIGNED = re.compile(
    rf"(?i:(?<![A-Za-z])(?:{_LABEL}|\btoken)[\"'\\]*\s*(?:[:=：]|=>)\s*[\"'\\]*(?:(?:bearer|basic|token)\s+)?+)"
    r"(?P<value>(?!\[masked\])[^\s\"'\\,;}\]<>]{4,})"
)
_BEARER = re.compile(r"(?i:\b(?:bearer|basic)\s+)(?P<value>[A-Za-z0-9._~+/=-]{16,})")
_KNOWN = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|(?<![A-Za-z0-9])(?:sk|pk|rk)[-_][A-Za-z0-9_.-]{16,}"
    r"|(?<![A-Za-z0-9])(?:gh[pousr]_|github_pat_|glpat-|xox[a-z]-|npm_|hf_|pypi-|dop_v1_)[A-Za-z0-9_-]{10,}"
    r"|(?<![A-Za-z0-9])(?:AKIA|ASIA)[0-9A-Z]{16}"
    r"|(?<![A-Za-z0-9])AIza[A-Za-z0-9_-]{30,}"
    r"|(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?",
    re.DOTALL,
)
_USERINFO = re.compile(r"(?<=://)[^\s/:@\"'\\]{1,64}:(?P<value>[^\s/@\"'\\]{1,128})(?=@)")
_LONG = re.compile(r"(?<![A-Za-z0-9_-])(?P<value>[A-Za-z0-9]{24,512}+)(?![A-Za-z0-9_-])")
_HEX = re.compile(r"(?:[0-9a-f]{32,}|[0-9A-F]{32,})")
_DIGEST = re.compile(r"(?i:commit|sha\d*|digest|hash|md5|checksum|etag|revision|index|tree|blob|parent|integrity)")
_NEAR = 24

_HINTS = (
    "passw", "passphrase", "pwd", "secret", "token", "credential", "authorization", "bearer", "private",
    "sk-", "sk_", "pk-", "pk_", "rk-", "rk_", "xox", "eyj",
)  # fmt: skip
_HINTS_CJK = ("密", "口令", "令牌")
_LONG_ENOUGH = 20
_SHORTEST = 6
"""No secret is found in less: a label, a sign and a value, in code points."""
_ALNUM = bytes(c if chr(c).isalnum() and c < 128 else 32 for c in range(256))


def among(facts: Sequence[Fact], fields: Iterable[str]) -> bool:
    """Whether one of these facts may hold a secret, by its text or by one of ``fields``. False is sure."""
    texts = [text for _, _, text in facts]
    if _hints("\n".join(texts)) or any(map(_telling, fields)):
        return True
    # what is left to tell is a long token, and most facts are too short for one
    return _long_token("\n".join([text for text in texts if len(text) >= _LONG_ENOUGH]))


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
    if "key" in lowered and ("api" in lowered or "access" in lowered):
        return True
    return ("://" in text and "@" in text) or (not text.isascii() and any(hint in text for hint in _HINTS_CJK))


def masked(value: Any) -> Any:
    """A JSON value with its secrets masked; the value itself is not changed."""
    if isinstance(value, str):
        return masked_text(value)
    if isinstance(value, list):
        return [masked(item) for item in value]
    if isinstance(value, dict):
        return {masked_text(key): _member(key, item) for key, item in value.items()}
    return value


def _member(key: str, item: Any) -> Any:
    if isinstance(item, str) and len(item) >= 4 and _NAMED.fullmatch(key):
        return MASK if item.casefold() not in _PLAIN else item
    if isinstance(item, int) and not isinstance(item, bool) and _PASSWORD.fullmatch(key):
        return MASK
    if isinstance(item, str) and _DIGEST.search(key):
        return masked_text(item, digest=True)
    return masked(item)


_PASSWORD = re.compile(r"(?i:(?:.*[._-])?(?:passw(?:or)?d|pwd|passphrase|pin|secret|密码|口令))")
_PLAIN = frozenset(("none", "null", "true", "false", "required", "optional", "string", "missing", "invalid", "expired"))


def masked_text(text: str, *, digest: bool = False) -> str:
    """A text with its secrets masked. ``digest``: long hexadecimal tokens in it are known to be digests."""
    if not suspicious(text):
        return text
    text = _KNOWN.sub(MASK, text)
    text = _ASSIGNED.sub(_without, text)
    text = _BEARER.sub(_without, text)
    text = _USERINFO.sub(_without, text)
    return _LONG.sub(lambda match: MASK if _drawn(match, digest) else match[0], text)


def _without(match: re.Match[str]) -> str:
    value = match["value"]
    if value.casefold() in _PLAIN:
        return match[0]
    return match[0][: match.start("value") - match.start()] + MASK


def _drawn(match: re.Match[str], digest: bool) -> bool:
    """Whether a long token looks drawn at random, and is not called a digest by what stands before it."""
    token = match[0]
    if _HEX.fullmatch(token):
        before = match.string[max(0, match.start() - _NEAR) : match.start()]
        return not (digest or token.isdigit() or _DIGEST.search(before))
    kinds = [("0" if c.isdigit() else "a" if c.islower() else "A") for c in token]
    turns = sum(one != other for one, other in pairwise(kinds))
    return len(set(kinds)) == 3 and turns >= len(token) // 3 and kinds.count("0") >= 3
