"""Recorded dialogues with questions about them, as benches of retrieval read them.

``locomo``: a JSON list (or one) of ``{conversation: {session_N: [{speaker, dia_id, text, ...}], session_N_date_time},
qa: [{question, evidence: [dia_id, ...]}]}``. A passage is a turn, and a question's evidence the turns that it names.

``memorybank``: a folder with ``memory_bank_*.json`` (``{user: {history: {day: [{query, response}]}}}``) and
``probing_questions_*.jsonl`` (``{user: [question, ...]}``), which name no evidence. A passage is a turn. Evidence comes

* from a file of one's own, ``{place of the user: [[day#turn, ...] for each question]}``, all counted from 0;
* or else from the days that questions name: any turn of that user on that day counts. The date itself is taken out of
  the question, and passages bear none, so that it is the rest of the question that must find it.

A question is looked for among the turns of every user, since one user has so few that almost anything would be found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from events.errors import Refused

FORMATS = ("locomo", "memorybank")


class Passage(NamedTuple):
    """``time`` is RFC 3339, or empty where none counts; ``session``: the conversation that it is a turn of."""

    name: str
    text: str
    time: str = ""
    session: str = ""


class Question(NamedTuple):
    """``evidence``: names of passages. ``user``: whose question it is, so that users can be held out whole."""

    text: str
    evidence: frozenset[str]
    user: str


class Dialogue(NamedTuple):
    """Passages that are searched together. ``all_of_evidence``: finding one piece of it is not enough."""

    name: str
    passages: list[Passage]
    questions: list[Question]
    all_of_evidence: bool


def read_dialogues(path: Path, format_: str, evidence: Path | None = None) -> list[Dialogue]:
    """The dialogues of a file or folder, with the evidence of a file where it is given (memorybank).

    Raises Refused, naming what was expected, for one that is of another kind.
    """
    try:
        if format_ == "locomo":
            return [_locomo(one, place) for place, one in enumerate(_one_or_many(_json(path)))]
        told = _json(evidence) if evidence is not None else None
        return [_memorybank(folder, told) for folder in _memorybank_folders(path)]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise Refused(
            f"{path} is not of the form {format_!r}: {type(error).__name__} {error}", code="bad_data"
        ) from error


def _json(path: Path) -> Any:
    try:
        return orjson.loads(path.read_bytes())
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}", code="bad_data") from error


def _one_or_many(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


# --- LoCoMo ----------------------------------------------------------------------------------------------------------

_SESSION = re.compile(r"session_(\d+)")
_TURN = re.compile(r"D\d+:\d+")


def _locomo(one: Mapping[str, Any], place: int) -> Dialogue:
    conversation = one["conversation"]
    name = str(one.get("sample_id", place))
    sessions = sorted((int(found[1]), key) for key in conversation if (found := _SESSION.fullmatch(key)))
    passages = [
        Passage(turn["dia_id"], _turn_text(turn), _moment(conversation.get(f"{key}_date_time", "")), key)
        for _, key in sessions
        for turn in conversation[key]
    ]
    there = {passage.name for passage in passages}
    questions = []
    for asked in one["qa"]:
        told = frozenset(id_ for text in asked.get("evidence") or () for id_ in _TURN.findall(str(text))) & there
        if told:
            questions.append(Question(asked["question"], told, name))
    return Dialogue(name, passages, questions, all_of_evidence=True)


def _turn_text(turn: Mapping[str, Any]) -> str:
    caption = f" (shares a picture: {turn['blip_caption']})" if turn.get("blip_caption") else ""
    return f"{turn['speaker']}: {turn['text']}{caption}"


def _moment(text: str) -> str:
    """``1:56 pm on 8 May, 2023`` as RFC 3339; empty for what is no such time."""
    try:
        return datetime.strptime(text.strip(), "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC).isoformat()
    except ValueError:
        return ""


# --- MemoryBank ------------------------------------------------------------------------------------------------------

_MONTHS = {"january": 1, "february": 2, "march": 3, "april": 4, "may": 5, "june": 6, "july": 7, "august": 8,
           "september": 9, "october": 10, "november": 11, "december": 12}  # fmt: skip
_DAY = re.compile(
    rf"(?:在\s*)?(\d{{1,2}})\s*月\s*(\d{{1,2}})\s*[日号](?:这天|那天)?|"
    rf"(?:\bon\s+)?\b({'|'.join(_MONTHS)})\s+(\d{{1,2}})(?:st|nd|rd|th)?\b",
    re.IGNORECASE,
)


def _memorybank_folders(path: Path) -> Iterator[Path]:
    folders = (
        [path]
        if list(path.glob("memory_bank_*.json"))
        else sorted(one.parent for one in path.rglob("memory_bank_*.json"))
    )
    if not folders:
        raise Refused(f"{path} has no memory_bank_*.json in it", code="bad_data")
    yield from folders


def _memorybank(folder: Path, told: Mapping[str, Any] | None) -> Dialogue:
    (bank,) = folder.glob("memory_bank_*.json")
    (asked,) = folder.glob("probing_questions_*.jsonl")
    passages: list[Passage] = []
    turns: dict[str, list[str]] = {}  # of a user: names, in order
    for user, known in _json(bank).items():
        mine = turns.setdefault(user.strip(), [])
        for day, spoken in known["history"].items():
            for number, turn in enumerate(spoken):
                session = f"{user.strip()}/{day}"
                mine.append(f"{session}#{number}")
                passages.append(Passage(mine[-1], f"{turn['query']}\n{turn['response']}", session=session))
    lines = [orjson.loads(line) for line in asked.read_text(encoding="utf-8").splitlines() if line.strip()]
    asking = [(user.strip(), texts) for line in lines for user, texts in line.items()]
    questions = [
        question
        for place, (user, texts) in enumerate(asking)
        for number, text in enumerate(texts)
        if (question := _question(user, text, turns.get(user, []), _named(told, place, number))) is not None
    ]
    return Dialogue(folder.name, passages, questions, all_of_evidence=told is not None)


def _named(told: Mapping[str, Any] | None, place: int, number: int) -> list[str] | None:
    """The evidence that a file names for a question; None without a file."""
    if told is None:
        return None
    of_user = told.get(str(place), [])
    return list(of_user[number]) if number < len(of_user) else []


def _question(user: str, text: str, turns: list[str], named: list[str] | None) -> Question | None:
    if named is not None:
        evidence = frozenset(turns) & {f"{user}/{one}" for one in named}
    else:
        days = [_day(match) for match in _DAY.finditer(text)]
        evidence = frozenset(turn for turn in turns if any(f"-{month:02}-{day:02}#" in turn for month, day in days))
        text = " ".join(_DAY.sub(" ", text).split())
    return Question(text, frozenset(evidence), user) if evidence else None


def _day(match: re.Match[str]) -> tuple[int, int]:
    month, day, name, day_of_name = match.groups()
    return (int(month), int(day)) if month else (_MONTHS[name.casefold()], int(day_of_name))
