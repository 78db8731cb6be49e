"""Reading one statement about a person by rules, in English and Chinese: who, which attribute, which value. Pure.

>>> read("I prefer aisle seats.").slot, read("用户更喜欢靠窗的座位").slot
(('user', 'seat'), ('user', 'seat'))
>>> read("The user lives in Oslo").value, read("我现在住在上海").value
('oslo', '上海')
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import NamedTuple

import regex

from services.curation import patterns as p
from services.curation.lexicon import ATTRIBUTES, MANY, STOP, SYNONYMS, VALUES
from services.curation.typed import has_one_value, type_of
from services.lazy_patterns import lazily

USER = "user"
MAX_READ = 600
"""Characters that are read; a longer text is no statement."""


class Statement(NamedTuple):
    """What a text says. ``attribute`` is empty where no rule knows it; ``words`` always tell what it is about.

    ``value`` is in its normal form. ``negative``: it says that this is not, or no longer, so. ``condition``: what it
    holds under, a part of the attribute. ``directive``: it asks for something to be done so from now on.
    """

    entity: str
    attribute: str
    value: str
    negative: bool
    condition: str
    words: frozenset[str]
    directive: bool = False
    personal: bool = False

    @property
    def slot(self) -> tuple[str, str] | None:
        """Entity and attribute, where both are known: what can have one value at a time."""
        if not self.attribute:
            return None
        return self.entity, f"{self.attribute}@{self.condition}" if self.condition else self.attribute

    @property
    def single(self) -> bool:
        """Whether another value of the slot contradicts this one."""
        return bool(self.attribute) and self.attribute not in MANY


def gist(text: str) -> str:
    """The text as an embedding model is asked about it: whoever it is about is "I", whoever tells it is left out.

    Who says a thing is no part of its meaning, but a fifth of its likeness.
    """
    plain = " ".join(unicodedata.normalize("NFKC", text[:MAX_READ]).split())
    if p.CJK.match(plain):
        return str(p.ZH_SUBJECT.sub("我", p.ZH_LEAD.sub("", plain)))
    folded: str = p.LEAD.sub("", plain.casefold())
    for pattern, into in p.SUBJECT:
        if into is not None and (found := pattern.match(folded)):
            return f"{into}{folded[found.end() :]}"
    return folded


@lru_cache(maxsize=4_096)
def read(text: str) -> Statement:
    """What a text says, as far as rules can tell."""
    plain = " ".join(unicodedata.normalize("NFKC", text[: MAX_READ + 1]).casefold().replace("’", "'").split())
    if len(plain) > MAX_READ or not plain:
        return Statement(USER, "", "", False, "", words_of(plain))
    chinese = p.CJK.match(plain) or len(p.CJK.findall(plain)) * 3 > len(plain.replace(" ", ""))
    return _read_chinese(plain) if chinese else _read_english(plain)


_WORDS = lazily(r"[\p{Han}]+|[\p{L}\p{M}\p{N}][\p{L}\p{M}\p{N}+#'._]*")


@lru_cache(maxsize=4_096)
def words_of(text: str) -> frozenset[str]:
    """The words that carry meaning, each standing for its synonyms; of Chinese pairs of characters."""
    words = _WORDS.findall(text.casefold())
    found: set[str] = set()
    for word in words:
        if p.CJK.match(word):
            for one, stands in _ZH_SYNONYMS:
                word = word.replace(one, stands)
            word = p.ZH_SUBJECT.sub("", word)
            found.update(word[i : i + 2] for i in range(max(1, len(word) - 1)))
        elif word.rstrip(".'_-") not in STOP:
            found.add(_stem(word.rstrip(".'_-")))
    return frozenset(found - {""})


_ZH_SYNONYMS = tuple((word, stands) for word, stands in SYNONYMS.items() if p.CJK.match(word) and len(word) > 1)


def _stem(word: str) -> str:
    word = SYNONYMS.get(word, word.removesuffix("'s"))
    if len(word) > 5 and word.endswith("ing"):
        word = word[:-4] if word[-4] == word[-5] and word[-4] not in "ls" else word[:-3]
    elif len(word) > 4 and word.endswith("ies"):
        word = word[:-3] + "y"
    elif len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    if len(word) > 8 and word.endswith("ment"):
        word = word[:-4]
    word = SYNONYMS.get(word, word)
    return word[:-1] if len(word) > 4 and word.endswith("e") else word


def _read_english(plain: str) -> Statement:
    text = p.INVERTED.sub(r"i prefer \g<v>", _as_told_by_me(plain))
    words, personal = words_of(text), text.startswith(("i ", "my ", "call me ")) or " my " in text
    if found := p.NO_LONGER_MINE.match(text):
        return _attributed(found, "", words, True, "", personal)
    condition, core = _condition(text)
    if found := p.CALLED.match(core):
        return _attributed(found, "name", words, False, condition, True)
    directive = p.DIRECTIVE.match(core) is not None
    if directive and (thing := _of_a_thing(core, words, p.USE)):
        return thing._replace(directive=True)
    negative = False
    if denied := p.NOT_SO.match(core):
        negative, core = True, f"i is {denied['rest']}"
        if found := p.IDENTITY.match(core):
            return _attributed(found, "identity", words, True, condition, personal)
    elif no := p.DENIED.match(core):
        negative, core = True, f"i {no['rest']}"
    if negative:
        for pattern, attribute in p.EN:
            if attribute not in ("owns", "uses", "identity", "habit") and (found := pattern.match(core)):
                return _attributed(found, attribute, words, True, condition, personal)
    liked = p.LIKED.match(core)
    if negative and not liked and not p.TASTED.match(core) and not p.TAKEN_BACK.match(text):
        return Statement(USER, "", "", True, condition, words, directive, personal)
    if liked or directive or negative:
        chosen = liked["v"] if liked else core.removeprefix("i ")
        return _choice(chosen, words, negative, condition, directive, personal, wished=liked is not None)
    for pattern, attribute in p.EN:
        if found := pattern.match(core):
            return _attributed(found, attribute, words, negative, condition, personal)
    known = _only(_values(core))
    if known and known[0] in (_PLAIN_CHOICES if core.startswith("i ") else _STYLES if len(words) <= _FEW else ()):
        negative = negative or (known[0] in _STYLES and p.DOING_WITHOUT.search(core) is not None)
        return Statement(USER, *known, negative, condition, words, directive or known[0] in _STYLES, personal)
    return _of_a_thing(text, words, p.SET, p.THING) or Statement(USER, "", "", negative, "", words, directive, personal)


def _of_a_thing(text: str, words: frozenset[str], *patterns: regex.Pattern[str]) -> Statement | None:
    """A value of something that has one at a time: by what it is called, or as long as values are of one type."""
    for pattern in patterns:
        if found := pattern.match(text):
            value = p.WHEN_EN.sub("", found["v"].strip(" .,，。'\"“”"))
            thing, kind = found["attr"].strip().removeprefix("the "), type_of(value)
            if not (kind or has_one_value(thing)) or not words_of(thing):
                return None
            attribute = " ".join(filter(None, (ATTRIBUTES.get(thing, thing), found.groupdict().get("does"))))
            return Statement(
                USER, attribute if has_one_value(attribute) else f"{attribute}: {kind}", value, False, "", words
            )
    return None


def _as_told_by_me(plain: str) -> str:
    """Whoever it is about is `i`, whatever was shortened is long, and what only hedges is left out."""
    text = p.LEAD.sub("", p.PUNCT.sub("", plain))
    for pattern, long in p.CONTRACTED:
        text = pattern.sub(long, text)
    for pattern, into in p.SUBJECT:
        found = pattern.match(text)
        if found:
            text = f"i {text}" if into is None else into + text[found.end() :]
            break
    for pattern, short in p.SHORT:
        text = pattern.sub(short, text)
    return " ".join(text.split())


def _condition(text: str) -> tuple[str, str]:
    """What it holds under, and the rest."""
    found = p.CONDITION.search(text)
    if found is None or _values(found[0]):
        return "", text
    what = found["what"] or found["first"] or ""
    return " ".join(sorted(words_of(what))), (text[: found.start()] + text[found.end() :]).strip(" ,")


def _values(text: str) -> dict[str, set[str]]:
    """Attribute -> the values of it that a text names; what is part of a longer word of the lexicon is not counted."""
    found: dict[str, set[str]] = {}
    for match in _LEXICON.finditer(text):
        attribute, value = VALUES[match[0]]
        found.setdefault(attribute, set()).add(value)
    if "answer length" not in found and p.ANSWERS.search(text):
        lengths = {length for length, pattern in p.LENGTHS.items() if pattern.search(text)}
        found |= {"answer length": lengths} if lengths else {}
    if "seat" not in found and p.SEATED.search(text):
        sides = {side for side, pattern in p.SIDES.items() if pattern.search(text)}
        found |= {"seat": sides} if sides else {}
    return found


_PLAIN_CHOICES = frozenset(
    ("cabin", "seat", "diet", "smoking", "payment", "theme", "shell", "editor", "marital status")
)
"""Attributes whose values say all, whatever the verb: who flies economy has chosen it."""

_STYLES = frozenset(("answer length", "tone", "units", "temperature", "time format", "format", "theme", "language"))
_FEW = 4
"""How answers are to be: said in a few words, a value of it is a wish ("short answers, please")."""

_LIKED = frozenset(("prefer", "喜欢"))


def _only(values: dict[str, set[str]]) -> tuple[str, str] | None:
    """The one attribute and its one value, where a text names no other."""
    if len(values) != 1:
        return None
    ((attribute, found),) = values.items()
    return (attribute, next(iter(found))) if len(found) == 1 else None


_LEXICON = lazily(
    "|".join(
        regex.escape(word) if p.CJK.match(word) else rf"(?<![\p{{L}}\p{{N}}]){regex.escape(word)}(?![\p{{L}}\p{{N}}])"
        for word in sorted(VALUES, key=len, reverse=True)
    )
)


def _choice(
    chosen: str, words: frozenset[str], negative: bool, condition: str, directive: bool, personal: bool, *, wished: bool
) -> Statement:
    """A wish for something, or for something over something else."""
    compared = (p.ZH_THAN if p.CJK.search(chosen) else p.COMPARED).match(chosen)
    first = compared["a"] if compared and (wished or directive) else chosen
    values = _values(first)
    if known := _only(values):
        return Statement(USER, *known, negative, condition, words, directive, personal)
    if values:
        return Statement(USER, "", "", negative, condition, words, directive, personal)
    if compared and wished:
        a, b = (" ".join(sorted(words_of(compared[name]) - _LIKED)) for name in "ab")
        return Statement(USER, " or ".join(sorted((a, b))), a, negative, condition, words, directive, personal)
    attribute = "dislikes" if negative else "likes" if wished else ""
    value = " ".join(sorted(words_of(first) - _LIKED)) if attribute else ""
    return Statement(USER, attribute if value else "", value, negative, condition, words, directive, personal)


def _attributed(
    found: regex.Match[str], attribute: str, words: frozenset[str], negative: bool, condition: str, personal: bool
) -> Statement:
    value = found["v"].strip(" .,，。'\"“”")
    if not attribute:
        called = found["attr"].strip().removeprefix("的")
        called = called.removeprefix("新") if called.removeprefix("新") in ATTRIBUTES else called
        attribute = ATTRIBUTES.get(called, called)
        if called not in ATTRIBUTES and not has_one_value(called) and (kind := type_of(value)):
            attribute = f"{called}: {'age' if kind in _AGES else kind}"
    known = _values(value)
    if attribute == "habit":
        known.pop("time of day", None)
    if attribute in ("identity", "uses", "owns", "habit", "language") or attribute in known:
        of = attribute if attribute in known else next(iter(known)) if len(known) == 1 else ""
        of = "" if of == "language" != attribute else of
        if of and len(known[of]) == 1:
            return Statement(USER, of, next(iter(known[of])), negative, condition, words, False, personal)
    if attribute in ("name", "residence", "employer", "occupation"):
        value = p.TAIL.split(value, maxsplit=1)[0]
    value = p.WHEN_EN.sub("", value)
    plain = value.removeprefix("the ").removeprefix("a ").removeprefix("an ")
    return Statement(USER, attribute, plain, negative, condition, words, False, personal)


def _read_chinese(plain: str) -> Statement:
    text = p.SPACES.sub("", p.PUNCT.sub("", plain))
    while (shorter := p.ZH_LEAD.sub("", text)) != text:
        text = shorter
    words = words_of(text)
    condition = ""
    if (found := p.ZH_IF.match(p.ZH_SUBJECT.sub("", text))) and not _values(found[0]):
        condition = " ".join(sorted(words_of(found["what"])))
        text = p.ZH_SUBJECT.sub("", text)[found.end() :]
    elif found := p.ZH_TOPIC.match(text):
        condition, text = " ".join(sorted(words_of(found["what"]))), text[found.end() :]
    personal = p.ZH_SUBJECT.match(text) is not None or bool(condition)
    core = p.ZH_FILL.sub("", p.WHEN_ZH.sub("", p.ZH_SUBJECT.sub("", text))).removesuffix("了")
    directive = core.startswith(("请", "用", "使用", "别", "不要", "给我", "叫我"))
    if no := p.ZH_NOT.match(core):
        rest = no["v"] if _only(_values(no["v"])) else p.ZH_DENIED_VERB.sub("", no["v"])
        for pattern, attribute in p.ZH[:7]:
            if attribute and (found := pattern.match(no["v"])):
                return _attributed(found, attribute, words, True, condition, personal)
        return _choice(rest or no["v"], words, True, condition, directive, personal, wished=True)
    if core.startswith(("叫我", "请叫我")):
        return Statement(
            USER, "name", core.removeprefix("请").removeprefix("叫我"), False, condition, words, True, True
        )
    for pattern, attribute in p.ZH[:1] if directive else p.ZH:
        if (found := pattern.match(core)) and (
            found.groupdict().get("attr", "").startswith("最") or not p.ZH_LIKE.match(core)
        ):
            return _attributed(found, attribute, words, False, condition, personal)
    if liked := p.ZH_LIKE.match(core):
        chosen = liked["v"] or liked["d"] or liked["u"]
        chosen = p.ZH_CHOSEN_VERB.sub("", chosen) or chosen
        return _choice(chosen, words, False, condition, directive, personal, wished=liked["v"] is not None)
    if (known := _only(_values(core))) and known[0] in _PLAIN_CHOICES:
        return Statement(USER, *known, False, condition, words, directive, personal)
    if known and known[0] in _STYLES and len(core) <= _FEW_HAN:
        return Statement(USER, *known, False, condition, words, True, personal)
    return _of_a_thing(core, words, p.ZH_THING) or Statement(USER, "", "", False, condition, words, directive, personal)


_FEW_HAN = 8
_AGES = frozenset(("number", "number year", "number 岁"))
"""What a daughter is, when she is a number."""


def replaced(text: str) -> str:
    """What a text says to be over, in its normal form: the Subaru that was sold, the tool that another one replaced."""
    plain = " ".join(unicodedata.normalize("NFKC", text[:MAX_READ]).casefold().replace("’", "'").split())
    if p.CJK.search(plain):
        found = p.ZH_LEFT.search(plain)
        return next((one for one in found.groups() if one), "") if found else ""
    found = p.LEFT.match(_as_told_by_me(plain))
    return (found["old"] or found["from"] or "").strip(" .,") if found else ""


def clauses(text: str) -> list[str]:
    """The parts of a text that say something of their own, each with its subject; none when it is one statement."""
    plain = unicodedata.normalize("NFKC", text[:MAX_READ]).strip(" .。!！")
    parts = [part.strip() for part in p.CLAUSE.split(plain) if part and part.strip()]
    if len(parts) < 2:
        return []
    told_by_me = _as_told_by_me(parts[0].casefold()).startswith("i ")
    return [f"I {part}" if told_by_me and p.BARE.match(part) else part for part in parts]
