"""Words of a text for keyword search, in any script and without a dictionary.

Scripts that put spaces between words give words; those that put none (Han, kana, Thai, Lao, Khmer, Burmese) and Hangul,
whose words carry their particles, give single characters and pairs of neighbours, so that a name of two characters is
found within a sentence. Width, case, composition and accents make no difference: ``Café``, ``CAFE`` and full-width
``ＣＡＦＥ`` are one word. Nothing in a query is an operator: quotes, brackets and stars only end words, like any mark.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

import regex

MAX_TEXT = 131_072
"""Characters of one text that are read; what follows is not searched by words."""

MAX_WORD = 64
"""Characters of a word that count."""

_SPACELESS = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}ー々〆"
_RUN = regex.compile(
    rf"(?P<spaceless>[{_SPACELESS}][{_SPACELESS}\p{{M}}]*)|[[\p{{L}}\p{{N}}\p{{M}}]--[{_SPACELESS}]]+", regex.V1
)
_PLAIN = re.compile("[a-z0-9]+")
_ACCENTS = re.compile("[\u0300-\u036f]+")
_PLURAL = re.compile(r"(?<=[a-z]{3})(?<![suai])s$")


def words(text: str) -> list[str]:
    """The words of a text in order, repeats included."""
    text = text[:MAX_TEXT]
    if text.isascii():
        return [_stem(word[:MAX_WORD]) for word in _PLAIN.findall(text.lower())]
    return list(_of_any_script(plain(text)))


def plain(text: str) -> str:
    """A text as it is compared: compatibility forms unified, no case, no accents on letters that stand without."""
    if text.isascii():
        return text.casefold()
    apart = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text).casefold())
    return unicodedata.normalize("NFC", _ACCENTS.sub("", apart))


def _of_any_script(text: str) -> Iterator[str]:
    for match in _RUN.finditer(text):
        run = match[0]
        if match["spaceless"] is None:
            yield _stem(run[:MAX_WORD])
            continue
        yield from run
        yield from (run[place : place + 2] for place in range(len(run) - 1))


def _stem(word: str) -> str:
    """Without the ``s`` of an English plural or verb: the one ending worth a rule in every text with English in it."""
    return _PLURAL.sub("", word) if word.endswith("s") else word
