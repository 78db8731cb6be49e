"""What a user says that is worth proposing, by rules and without a model: conversations in, proposals out. Pure.

It is careful: what a user wants done now is no memory. Proposed are facts about the user of a kind that lasts, tastes,
wishes for how to be served, and corrections, each in the user's own words, but for wishes that have one wording.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import regex

from projections.cards.reading.prose import sentences
from services.curation.lexicon import ATTRIBUTES, VALUES
from services.curation.quality import is_own_output, objections
from services.curation.safety import is_order
from services.curation.statements import Statement, read
from services.wishes.reading import slot_of, statement_of, wishes_of

MOST = 16
"""Proposals from one message, at most."""
MOST_CHARS = 8_000
"""Of a message that are read: who says more pastes a document."""
LONGEST = 300
"""Characters of a sentence that is read; a longer one is no statement about oneself."""

_CODE = regex.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", regex.DOTALL)
_NOW = regex.compile(
    r"\bi(?:'d| would)\b|\b(?:want|need|would like|wish|i'd like|looking (?:to|for)|trying to|going to|"
    r"can you|could you|"
    r"would you|will you|"
    r"hope to|plan to|planning|help me|is it possible|let's|i'll|i will|this (?:one|time|order|flight|trip|"
    r"task|file))\b"
    r"|(?:我想(?!来)|我要(?!求)|需要你|帮我|帮忙|麻烦|能不能|可以.{0,6}吗|这次|这个|打算|准备)",
    regex.IGNORECASE,
)
_LASTING = regex.compile(
    r"\b(?:always|never|from now on|in (?:the )?future|going forward|remember(?: that|:|,)|"
    r"(?<!'d )(?<!would )prefer|every time|by default|"
    r"keep in mind|"
    r"whenever|any ?more|no longer)\b|以后|今后|总是|始终|一律|一直|记住|每次|默认|不再|更喜欢|偏好|从现在起",
    regex.IGNORECASE,
)
_LIKED = regex.compile(
    r"\b(?:prefer|like|love|enjoy|favou?r|hate|dislike|can't stand|avoid|fond)s?\b|喜欢|偏好|偏爱|讨厌|"
    r"爱(?:吃|喝|看|好)",
    regex.IGNORECASE,
)
_CORRECTED = regex.compile(
    r"^(?:actually|no[,，]|correction|sorry|wait|that(?:'s| is) (?:wrong|not right|incorrect)|i meant|"
    r"not quite|update)\b?"
    r"|更正|纠正|不对|说错|搞错|其实|不是.{1,20}[,，]?(?:而)?是|\b(?:instead of|not) [\w ]{1,30}(?:any ?more)?$",
    regex.IGNORECASE,
)
_NOT_BUT = regex.compile(
    r"(?:not (?P<old>[\p{L}\p{N} '-]{1,40}?)[,;]? but (?P<new>.+)|"
    r"(?P<n2>.+?),? (?:and )?not (?P<o2>[\p{L}\p{N} '-]{1,40})"
    r"|不是(?P<zo>.{1,20}?)[,，]?(?:而)?是(?P<zn>.+))[.!。！]*$",
    regex.IGNORECASE,
)
_DIRECT = regex.compile(
    r"^[\W]*(?:please )?(?:remember|note|keep in mind|fyi|just so you know|for the record)\b[ ,:]*(?:that )?|"
    r"^请?(?:记住|注意|记一下)[，,：: ]*",
    regex.IGNORECASE,
)
_MEANT = regex.compile(
    r"^(?:no|sorry|wait|actually|correction)?[,.]? ?i (?:meant|said) (?:to say )?(?:that )?(?=[^ ]+ )(?!i |"
    r"my )",
    regex.IGNORECASE,
)
_AT_HAND = regex.compile(
    r"\b(?:the|this|that|these|those|your) (?:[\w-]+ ){0,2}(?:options?|ones?|flights?|orders?|items?|"
    r"versions?|ideas?|plans?|"
    r"suggestions?|answers?|choices?|results?|times?|hotels?|colou?rs?|sizes?|first|second|third|last|latter|former)\b"
    r"|\b(?:first|second|third|last) (?:one|option)\b|第[一二三四]个|那个|这个",
    regex.IGNORECASE,
)
_JOINTS = regex.compile(
    r"(?:;|,| and| but|, and|, but) (?=(?:I|i|my|My)\b(?! mean)|(?:please )?remember that)|"
    r"[，；,](?=我(?:的|叫|住|在|对|喜欢|不|是|更|讨厌))"
)
_OWNED = regex.compile(
    r"\b(?:dogs?|cats?|pets?|kids?|child(?:ren)?|son|daughter|wife|husband|partner|twins|brother|sister|car|"
    r"bike|diabetes|asthma|"
    r"allerg\w+|condition)\b|狗|猫|孩子|儿子|女儿|妻子|丈夫|车|糖尿病|哮喘"
)
_STYLE = frozenset(
    (
        "answer length",
        "tone",
        "language",
        "format",
        "units",
        "temperature",
        "time format",
        "theme",
        "indentation",
        "name",
    )
)
_FACTS = frozenset(
    (*ATTRIBUTES.values(), "allergy", "diet", "occupation", "speaks", "system", "editor", "database", "shell",
     "programming language")
)  # fmt: skip
_PREFERENCES = frozenset(attribute for attribute, _ in VALUES.values()) - {"diet", "system"} | {"likes", "dislikes"}


def proposals_of(content: Any) -> list[dict[str, Any]]:
    """Data of ``memory.proposed`` for what a user's message says. ``content`` is a text, or a list of content parts."""
    found: dict[str, dict[str, Any]] = {}
    text = _CODE.sub("\n", text_of(content)[:MOST_CHARS])
    if is_own_output(text):
        return []
    for sentence in sentences(text):
        for clause in _clauses(sentence):
            proposal = _proposal(clause)
            if proposal is not None:
                found.setdefault(proposal["content"], proposal)
    return list(found.values())[:MOST]


def text_of(content: Any) -> str:
    """The text of a message: its own, or that of its parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(
            part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)
        )
    return ""


def _clauses(sentence: str) -> Iterator[str]:
    """A sentence, or its parts where each of several begins with a subject of its own."""
    if len(sentence) > LONGEST or sentence.startswith((">", "|", "#", "{", "[", "<")):
        return
    parts = _JOINTS.split(sentence)
    yield from (part.strip(" ,，;；") for part in parts if part.strip())


def _proposal(clause: str) -> dict[str, Any] | None:
    clause = clause.replace("’", "'").strip()
    said = _DIRECT.sub("", clause).strip()
    told = said != clause
    if len(said) < 3 or said.endswith(("?", "？")) or is_order(said):
        return None
    old = _NOT_BUT.search(said)
    meant = _MEANT.match(said)
    if meant is not None:
        said = "I prefer " + said[meant.end() :]
        old = _NOT_BUT.search(said)
    statement = read(said)
    if old is not None and not statement.attribute:
        statement = read(_reworded(said, old))
    if not _lasts(said, statement, told=told) or objections(said, "preference", known=True):
        lasts = told or _LASTING.search(said) or (statement.personal and not _NOW.search(said))
        return _conduct(said) if lasts else None
    kind = "preference" if statement.attribute.partition("@")[0] in _PREFERENCES or statement.directive else "fact"
    if " or " in statement.attribute:
        kind = "preference"
    corrected = meant is not None or _CORRECTED.search(clause) is not None
    data: dict[str, Any] = {"content": said, "kind": "correction" if corrected else kind, "source": "conversation"}
    if corrected and old is not None:
        data["corrects"] = (old["old"] or old["o2"] or old["zo"] or "").strip()
    if statement.slot is not None:
        data["entity"], data["attribute"] = statement.slot
    data["confidence"] = 0.9 if told or corrected or _LASTING.search(clause) else 0.75
    return data


def _conduct(said: str) -> dict[str, Any] | None:
    """A wish for how to be served that no statement holds, in the one wording that all ways to say it have.

    One that does not say that it lasts is no memory: said in several sessions it becomes a rule (the promoter's).
    """
    wishes = [wish for wish in wishes_of(said) if not wish.once]
    if len(wishes) != 1 or wishes[0].when:
        return None
    (wish,) = wishes
    data = {"content": statement_of(wish.what, wish.words), "kind": "preference", "source": "conversation"}
    sure = 0.9 if _LASTING.search(said) else 0.75
    return {**data, "entity": "user", "attribute": slot_of(wish.what), "confidence": sure}


def _reworded(said: str, old: regex.Match[str]) -> str:
    """The sentence without the value that it takes back."""
    new = old["new"] or old["n2"] or old["zn"] or ""
    return said[: old.start()] + new


def _lasts(said: str, statement: Statement, *, told: bool) -> bool:
    """Whether it is about the user, and of a kind that lasts."""
    attribute = statement.attribute
    if told and (attribute or statement.personal):
        return True
    if not attribute:
        return statement.directive and _LASTING.search(said) is not None
    if attribute in _STYLE and (statement.directive or statement.personal):
        return True
    if _NOW.search(said) and not _LASTING.search(said):
        return False
    if statement.directive:
        return _LASTING.search(said) is not None
    if attribute in ("likes", "dislikes") and _AT_HAND.search(said):
        return False
    if attribute in _PREFERENCES or " or " in attribute:
        return _LIKED.search(said) is not None or _LASTING.search(said) is not None or attribute in _FACTS
    if attribute == "owns":
        return _OWNED.search(said) is not None
    return attribute in _FACTS or attribute.startswith(("favorite ", "favourite ", "最喜欢", "最爱"))
