"""Names and words that tell what a long token is: an id, a digest, the way to the next page. None of them is a secret.

``trace_id``, ``spanId``, ``commit``, ``etag``, ``nextPageToken``: later calls need what such fields hold, and it looks
drawn at random by its nature. What has the form of a known kind of secret stays one under any name (``secrets``).
"""

from __future__ import annotations

import re
from functools import lru_cache

_PLAIN = (
    "page|next|previous|prev|continuation|sync|resume|skip|start|end|cursor|scroll"
    "|total|prompt|completion|input|output|cached|reasoning|max|min|num|bos|eos|pad|unk|sep|cls|mask|special"
)
"""What stands before ``token`` where it is a place in a list, a count, or a mark in a text."""

PLAIN_TOKEN = (
    rf"(?:(?<![A-Za-z])(?i:{_PLAIN})[\ ._-]?(?i:tokens?)"
    rf"|(?<=[a-z0-9])(?:{_PLAIN.title()})Tokens?)"
)
"""A name of tokens that are no secrets, as a part of a pattern."""

_PLAIN_BEFORE = re.compile(rf"(?i:(?<![A-Za-z])(?:{_PLAIN})[\ ._-]?)$")

_DIGEST = (
    r"commit|sha\d*|sha\d*sum|digest|hash|md5|md5sum|crc\d*|checksum|etag|revision|index|tree|blob|parents?|integrity"
    r"|fingerprint|thumbprint"
)
_COMPACT = (
    r"(?:sys|trace|span|request|correlation|message|transaction|run|task|job|build|user|order|event|object|record)ids?"
)
_LAST = rf"u?u?ids?|guids?|oid|{_DIGEST}|head|base|rev|cursor|marker|{_COMPACT}"
_NAME = re.compile(
    rf"(?i:(?:.*[^A-Za-z])?(?:{_LAST})(?:[._-](?:value|hex|sum|before|after|from|to|sha\d*|\d+))?)"
    rf"|.*{PLAIN_TOKEN}"
    r"|.*[a-z0-9](?:I[dD]s?|U[uU][iI][dD]s?|G[uU][iI][dD]|Commit|Sha\d*|SHA\d*|Digest|Hash|Md5|MD5|Checksum|E[tT]ag"
    r"|Revision|Fingerprint|Thumbprint|Cursor|Marker)",
    re.DOTALL,
)
_OF_SECRET = re.compile(r"(?i:passw|passphrase|passcode|pwd|secret|credential|api[\ ._-]?hash)")
"""The digest of a password is as good as one, and so are some ids of secrets."""

_BEFORE = re.compile(
    rf"(?i:{_DIGEST}|cursor|marker)|{PLAIN_TOKEN}"
    rf"|(?:(?i:(?<![A-Za-z])(?:u?u?ids?|guid|oid|{_COMPACT}))|[a-z0-9](?:I[dD]s?|U[uU][iI][dD]))(?i:[\"'\\`*]*\s*(?:[:=#/]|is|was)?[\s\"'\\`(<\[]*$)"
)
_EARLIER = re.compile(r"(?:[0-9A-Fa-f]{32,64}[\s,;\"'\\|]{1,6})+$")
_WINDOW, _NEAR = 160, 24


@lru_cache(maxsize=8_192)
def names_id(name: str) -> bool:
    """Whether a field with this name holds an id, a digest or the way to a page."""
    return len(name) <= 64 and _NAME.fullmatch(name) is not None and not _OF_SECRET.search(name)


def told_id(text: str, at: int) -> bool:
    """Whether the words before a place in a text tell that an id or a digest stands there; also one of several."""
    before = _EARLIER.sub("", text[max(0, at - _WINDOW) : at])[-_NEAR:]
    return _BEFORE.search(before) is not None and not _OF_SECRET.search(before)


def told_plain(text: str, at: int) -> bool:
    """Whether the words before ``token`` at a place in a text tell of a token that is no secret: ``next-token``."""
    return _PLAIN_BEFORE.search(text[max(0, at - _NEAR) : at]) is not None
