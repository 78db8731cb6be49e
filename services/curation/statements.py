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

from services.curation.lexicon import ATTRIBUTES, MANY, STOP, SYNONYMS, VALUES

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


_CJK = regex.compile(r"[\p{Han}]")
_LEAD = regex.compile(
    r"^(?:(?:please |pls )?(?:remember|note|keep in mind|be aware|know)(?: that)?[:,]? |fyi[:,]? |"
    r"(?:by the way|btw)[,:]? "
    r"|actually[,:]? |no[,:] |sorry[,:] |correction[:,]? |for the record[,:]? |just so you know[,:]? |"
    r"from now on[,:]? "
    r"|going forward[,:]? |in (?:the )?future[,:]? |(?:the )?(?:user|customer) (?:said|says|mentioned|stated|noted|"
    r"told us|confirmed|explained)(?: that)? |update[:,] |also[,:]? |well[,:]? |hi[,!.] |hello[,!.] |so[,:]? |and "
    r"|you should know(?: that)? |i should mention(?: that)? |as i said[,:]? |i(?:'d| would) like you to |wait[,:]? )+"
)
_SUBJECT = (
    (regex.compile(r"^(?:the )?(?:user|customer|client)(?:'s|s') |^(?:his|her|their) "), "my "),
    (regex.compile(r"^(?:the )?(?:user|customer|client|he|she|they) "), "i "),
    (
        regex.compile(
            r"^(?:prefers|likes|loves|wants|lives|works|uses|speaks|hates|dislikes|has|is|owns|enjoys|avoids) "
        ),
        None,
    ),
)
_SHORT = tuple(
    (regex.compile(pattern), short)
    for pattern, short in (
        (r"\bi'm\b|\bi am\b", "i is"),
        (r"\bi've\b", "i have"),
        (r"\bi'd (?=rather|like|prefer)", "i "),
        (r"\b(do|does|did|is|are|was|can|could|wo|would|should)n't\b", r"\1 not"),
        (r"\b(?:am|are)\b", "is"),
        (r"\bcannot\b|\bcan't\b", "can not"),
        (r"\bwould (?=rather|like|prefer)", ""),
        (
            r"\b(?:now|currently|actually|these days|anymore|any more|really|nowadays|at the moment|always|usually|"
            r"generally|still|already) ",
            "",
        ),
        (
            r",? ?(?:now|currently|these days|anymore|any more|nowadays|at the moment|please|always|already|"
            r"from now on)$",
            "",
        ),
    )
)
_VERB = r"(?:prefer|like|love|want|need|favou?r|enjoy|wish for|choose|pick|go for|rather have|rather use)s?(?:ed)?"
_NEGATED = (
    r"(?:(?:do|does|did) (?:not|no longer)|no longer|never|stopped|quit|gave up|hates?|dislikes?|"
    r"avoids?|can not|can't stand)"
)
_CONDITION = regex.compile(
    r",? ?\b(?:when(?:ever)?|if|for|during|while|on|in case of|unless|except)\b (?P<what>[^,;]+)$|"
    r"^(?:when(?:ever)?|if|for|during|on) (?P<first>[^,]+), "
)
_COMPARED = regex.compile(r"^(?P<a>.+?) (?:over|rather than|instead of|more than|to|and not|not) (?P<b>.+)$")
_DIRECTIVE = regex.compile(
    r"^(?:always |never |do not |only |please )*(?:answer|reply|respond|write|speak|talk|use|call|format|show|"
    r"keep|give|send|"
    r"contact|book|address|include|avoid|stop|explain|summari[sz]e|quote|display|express|report)\b"
)
_EN = tuple(
    (regex.compile(pattern), attribute)
    for pattern, attribute in (
        (
            r"^my (?:(?:new|current|preferred|actual) )*(?P<attr>[\p{L}\- ]{2,40}?)(?:'s name)? (?:is|"
            r"was changed to|changed to|has changed to|will be)(?: now)? (?P<v>.+)$", ""),
        (r"^(?:i is called|i is named|call me|address me as|i go by) (?P<v>.+)$", "name"),
        (
            r"^i (?:live|lives|reside|resides|is based|is located|is living|settled|stay) (?:in|at|"
            r"near) (?P<v>.+)$", "residence"),
        (r"^i (?:have |has |just |recently )*(?:moved|relocated)(?: from .+?)? to (?P<v>.+)$", "residence"),
        (r"^i (?:work|works|is working|is employed) (?:at|for|with|by) (?P<v>.+)$", "employer"),
        (
            r"^i (?:have |has |just |recently )*(?:joined|started at|started working (?:at|for)|"
            r"switched jobs to) (?P<v>.+)$", "employer"),
        (r"^i (?:work|works|is working) as (?:an? |the )?(?P<v>.+)$", "occupation"),
        (r"^i (?:is|has become|became|is now) (?:an? )(?P<v>.+)$", "identity"),
        (
            r"^i (?:is|have|has) (?:an? )?(?:severe(?:ly)? |strongly )?(?:allergic to|allergy to|"
            r"allergies to) (?P<v>.+)$", "allergy"),
        (r"^i (?:speak|speaks) (?P<v>.+)$", "speaks"),
        (r"^i (?:have|has|own|owns) (?:an? |the |two |three )?(?P<v>.+)$", "owns"),
        (
            r"^i (?:use|uses|drive|drives|run|runs|switched to|have switched to|has switched to|migrated to|"
            r"moved over to) (?P<v>.+)$", "uses"),
        (
            r"^i (?P<v>(?:drink|eat|play|read|watch|study|collect|run|cycle|smoke|exercise|practi[sc]e|cook|"
            r"travel)s? .+)$", "habit"),
    )
)  # fmt: skip
_CALLED = regex.compile(r"^(?:call|address) me (?:as )?(?P<v>[\p{L}' -]{1,40})$")
_ZH_LEAD = regex.compile(
    r"^(?:请(?:你)?(?:务必)?(?:记住|注意)|记住|记一下|注意|另外|其实|对了|顺便说一下|更正(?:一下)?|补充一下|"
    r"不对|不是的|抱歉|你好|还有|实际上|从现在起|从今以后|以后|今后|用户(?:说|表示|提到|告知|"
    r"指出)(?:过)?)[,，:：。!！ ]*"
)
_ZH_SUBJECT = regex.compile(r"^(?:我|用户|本人|客户|他|她|您)(?:们)?")
_ZH_FILL = regex.compile(r"(?:现在|目前|如今|已经|一直|通常|一般|平时|总是|始终|一律|最近|刚刚|刚|都|还是|其实)")
_ZH = tuple(
    (regex.compile(pattern), attribute)
    for pattern, attribute in (
        (r"^(?:叫我|叫做|叫|名叫|名字(?:是|叫))(?P<v>.+)$", "name"),
        (r"^(?:住在|居住在|搬到了?|搬去了?|搬家到了?|定居在?|家在|生活在)(?P<v>.+)$", "residence"),
        (r"^在(?P<v>.+?)(?:工作|上班|任职|就职)(?:了)?$", "employer"),
        (r"^(?:跳槽到|加入|入职)了?(?P<v>.+)$", "employer"),
        (r"^对(?P<v>.+?)(?:严重)?过敏$", "allergy"),
        (r"^(?:会说|会讲|说|讲)(?P<v>.+语)$", "speaks"),
        (
            r"^(?:的)?(?P<attr>最喜欢的\p{Han}{1,8}?|最爱的\p{Han}{1,8}?|[\p{Han}a-zA-Z]{1,10}?)(?:是|为|改成了?|"
            r"改为了?|换成了?|变成了?)(?P<v>.+)$", ""),
        (r"^(?:是|成了)(?:一名|一个|一位|个)?(?P<v>.+)$", "identity"),
        (r"^(?:有|养了?)(?:一只|一条|一辆|一个|两个|两只)?(?P<v>.+)$", "owns"),
        (r"^(?:改用了?|换成了?|换用|转用)(?P<v>.+)$", "uses"),
    )
)  # fmt: skip
_ZH_LIKE = regex.compile(
    r"^(?:请(?:你)?)?(?:更|比较|最|很|非常)?(?:喜欢|偏好|偏爱|想要|希望|倾向于?|习惯|需要|爱)(?P<v>.+)$|"
    r"^(?:请(?:你)?)(?:用|使用|以|给|把)?(?P<d>.+)$|^(?:用|使用)(?P<u>.+)$"
)
_ZH_NOT = regex.compile(r"^(?:再也)?(?:不再|不|没|别|讨厌|戒了?|避免)(?P<v>.+)$")
_ZH_THAN = regex.compile(r"^(?P<a>.+?)(?:而不是|胜过|多于|，不要|,不要|不要)(?P<b>.+)$")
_ZH_IF = regex.compile(r"^(?:如果|当|在)?(?P<what>.{1,16}?)(?:的时候|时|的话)[,，]?")
_PUNCT = regex.compile(r"[\s.!。！;；~～]+$")


@lru_cache(maxsize=4_096)
def read(text: str) -> Statement:
    """What a text says, as far as rules can tell."""
    plain = " ".join(unicodedata.normalize("NFKC", text[: MAX_READ + 1]).casefold().replace("’", "'").split())
    if len(plain) > MAX_READ or not plain:
        return Statement(USER, "", "", False, "", words_of(plain))
    return _read_chinese(plain) if len(_CJK.findall(plain)) * 3 > len(plain.replace(" ", "")) else _read_english(plain)


def words_of(text: str) -> frozenset[str]:
    """The words that carry meaning, each standing for its synonyms; of Chinese pairs of characters."""
    words = regex.findall(r"[\p{Han}]+|[\p{L}\p{M}\p{N}][\p{L}\p{M}\p{N}+#'._-]*", text.casefold())
    found: set[str] = set()
    for word in words:
        if _CJK.match(word):
            for one, stands in _ZH_SYNONYMS:
                word = word.replace(one, stands)
            word = _ZH_SUBJECT.sub("", word)
            found.update(word[i : i + 2] for i in range(max(1, len(word) - 1)))
        elif word.rstrip(".'_-") not in STOP:
            found.add(_stem(word.rstrip(".'_-")))
    return frozenset(found - {""})


_ZH_SYNONYMS = tuple((word, stands) for word, stands in SYNONYMS.items() if _CJK.match(word) and len(word) > 1)


def _stem(word: str) -> str:
    word = SYNONYMS.get(word, word.removesuffix("'s"))
    if len(word) > 4 and word.endswith("ies"):
        word = word[:-3] + "y"
    elif len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    return SYNONYMS.get(word, word)


def _read_english(plain: str) -> Statement:
    text = _LEAD.sub("", _PUNCT.sub("", plain))
    for pattern, into in _SUBJECT:
        found = pattern.match(text)
        if found:
            text = f"i {text}" if into is None else into + text[found.end() :]
            break
    for pattern, short in _SHORT:
        text = pattern.sub(short, text)
    text = " ".join(text.split())
    words, personal = words_of(text), text.startswith(("i ", "my ", "call me ")) or " my " in text
    condition, core = _condition(text)
    if found := _CALLED.match(core):
        return _attributed(found, "name", words, False, condition, True)
    directive = _DIRECTIVE.match(core) is not None
    negative = False
    if no := regex.match(rf"^(?:i )?{_NEGATED} (?P<rest>.+)$", core) or regex.match(
        r"^(?:never|do not|stop) (?P<rest>.+)$", core
    ):
        negative, core = True, f"i {no['rest']}"
    liked = regex.match(
        rf"^i {_VERB} (?:to (?:use|have|get|receive|book|be|take|drink|eat|see|work with) |getting |having |"
        rf"using |your |my )?(?P<v>.+)$",
        core,
    )
    if liked or directive or negative:
        chosen = liked["v"] if liked else core.removeprefix("i ")
        return _choice(chosen, words, negative, condition, directive, personal, wished=liked is not None)
    for pattern, attribute in _EN:
        if found := pattern.match(core):
            return _attributed(found, attribute, words, negative, condition, personal)
    if core.startswith("i is ") and (known := _only(_values(core))):
        return Statement(USER, *known, negative, condition, words, directive, personal)
    return Statement(USER, "", "", negative, "", words, directive, personal)


def _condition(text: str) -> tuple[str, str]:
    """What it holds under, and the rest."""
    found = _CONDITION.search(text)
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
    return found


_LIKED = frozenset(("prefer", "喜欢"))


def _only(values: dict[str, set[str]]) -> tuple[str, str] | None:
    """The one attribute and its one value, where a text names no other."""
    if len(values) != 1:
        return None
    ((attribute, found),) = values.items()
    return (attribute, next(iter(found))) if len(found) == 1 else None


_LEXICON = regex.compile(
    "|".join(
        regex.escape(word) if _CJK.match(word) else rf"(?<![\p{{L}}\p{{N}}]){regex.escape(word)}(?![\p{{L}}\p{{N}}])"
        for word in sorted(VALUES, key=len, reverse=True)
    )
)


def _choice(
    chosen: str, words: frozenset[str], negative: bool, condition: str, directive: bool, personal: bool, *, wished: bool
) -> Statement:
    """A wish for something, or for something over something else."""
    compared = (_ZH_THAN if _CJK.search(chosen) else _COMPARED).match(chosen)
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
        attribute = ATTRIBUTES.get(called, called)
    known = _values(value)
    if attribute in ("identity", "uses", "owns", "language") or attribute in known:
        of = attribute if attribute in known else next(iter(known)) if len(known) == 1 else ""
        of = "" if of == "language" != attribute else of
        if of and len(known[of]) == 1:
            return Statement(USER, of, next(iter(known[of])), negative, condition, words, False, personal)
    plain = value.removeprefix("the ").removeprefix("a ").removeprefix("an ")
    return Statement(USER, attribute, plain, negative, condition, words, False, personal)


def _read_chinese(plain: str) -> Statement:
    text = regex.sub(r"\s+", "", _PUNCT.sub("", plain))
    while (shorter := _ZH_LEAD.sub("", text)) != text:
        text = shorter
    words = words_of(text)
    condition = ""
    if (found := _ZH_IF.match(_ZH_SUBJECT.sub("", text))) and not _values(found[0]):
        condition = " ".join(sorted(words_of(found["what"])))
        text = _ZH_SUBJECT.sub("", text)[found.end() :]
    personal = _ZH_SUBJECT.match(text) is not None or bool(condition)
    core = _ZH_FILL.sub("", _ZH_SUBJECT.sub("", text)).removesuffix("了")
    directive = core.startswith(("请", "用", "使用", "别", "不要", "给我", "叫我"))
    if no := _ZH_NOT.match(core):
        rest = regex.sub(r"^(?:要|再|想|会|能)?(?:喜欢|用|使用|吃|喝|坐)?", "", no["v"])
        return _choice(rest or no["v"], words, True, condition, directive, personal, wished=True)
    if core.startswith(("叫我", "请叫我")):
        return Statement(
            USER, "name", core.removeprefix("请").removeprefix("叫我"), False, condition, words, True, True
        )
    for pattern, attribute in _ZH[:1] if directive else _ZH:
        if (found := pattern.match(core)) and (
            found.groupdict().get("attr", "").startswith("最") or not _ZH_LIKE.match(core)
        ):
            return _attributed(found, attribute, words, False, condition, personal)
    if liked := _ZH_LIKE.match(core):
        chosen = liked["v"] or liked["d"] or liked["u"]
        chosen = regex.sub(r"^(?:用|使用|坐|住|喝|吃|穿|看|要|有)", "", chosen) or chosen
        return _choice(chosen, words, False, condition, directive, personal, wished=liked["v"] is not None)
    return Statement(USER, "", "", False, condition, words, directive, personal)
