"""Duplicates and contradictions: what the scope says already, and what it says otherwise."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import regex

from projections.memory.normal import normal_form
from services.curation.lexicon import VALUES
from services.curation.patterns import SWITCHED
from services.curation.proposal import AUTOMATIC, WEIGHTS, Candidate, Known, Memory, Rejected
from services.curation.statements import Statement, clauses, read, replaced, words_of

LEAST_LIKENESS = 0.85
"""Cosine of two texts of one kind from which on they say the same, if nothing in their words speaks against it."""

LEAST_SHARED = 0.8
"""Share of the words, of both together, from which on two texts say the same without a model."""

_COUNTS = {
    word: str(n) for n, word in enumerate(("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"), 2)
}
_NUMBER = regex.compile(rf"\d+(?:[.,:]\d+)*|\b(?:{'|'.join(_COUNTS)})\b", regex.IGNORECASE)
_HEAD = 2
"""Characters of a Chinese word that says what a thing is."""
_HAN = regex.compile(r"\p{Han}")
_TOWN = regex.compile(r"(?<=\p{Han}{2})[市省]$")
_NOT = regex.compile(
    r"\b(?:not|no|never|n't|without|cannot|stop|avoid|hate|dislike)\b|n't\b|不|没|别|无|讨厌|避免", regex.IGNORECASE
)


def not_copied(candidate: Candidate, known: Known) -> Candidate | Rejected:
    """No exact copy, in the normal form; and nothing automatic brings back what was deleted."""
    if holder := known.holder(candidate.content):
        return Rejected("duplicate", "the same words", duplicate_of=holder)
    if candidate.proposed.source in AUTOMATIC and known.was_deleted(candidate.content):
        return Rejected("deleted", "a memory that said this was deleted")
    return candidate


def not_repeated(candidate: Candidate, known: Known) -> Candidate | Rejected:
    """Nothing that is said already in other words: the same value of a slot, the same words, the same meaning."""
    for memory in known.like(candidate):
        if why := _same(candidate, memory):
            return Rejected("duplicate", why, duplicate_of=memory.memory)
    for memory, likeness in known.alike(candidate):
        if likeness >= LEAST_LIKENESS and not _differ(candidate, memory):
            return Rejected("duplicate", f"likeness {likeness:.2f}", duplicate_of=memory.memory)
    return candidate


def settle_contradictions(candidate: Candidate, known: Known) -> Candidate | Rejected:
    """What says otherwise gives way to what is said later, unless its source weighs more."""
    beaten = []
    for memory in known.like(candidate):
        why = contradicts(candidate, memory) or _replaces(candidate, memory) or _by_a_clause(candidate, memory)
        if not why:
            continue
        if WEIGHTS[candidate.proposed.source] < WEIGHTS.get(memory.source, 0):
            return Rejected("contradicted", f"{memory.memory} says otherwise, and its source weighs more")
        beaten.append((memory.memory, why))
    if not beaten:
        return candidate
    notes = "; ".join(f"{why}: {name}" for name, why in beaten)
    return candidate.with_note(notes, supersedes=tuple(beaten))


def _same(candidate: Candidate, memory: Memory) -> str:
    """Why both say the same; empty: they do not, as far as words tell."""
    one, other = candidate.statement, memory.statement
    if candidate.slot is not None and candidate.slot == memory.slot and one.negative == other.negative:
        if one.attribute and other.attribute:
            return "the same value" if _equal(one.value, other.value) else ""
        # the slot was named by its proposer: what is left of the words is the value
        return "the same value" if one.words == other.words else ""
    if {one.attribute, other.attribute} == {"identity", "occupation"}:
        return "the same value" if _equal(one.value, other.value) and one.negative == other.negative else ""
    if candidate.slot is not None and memory.slot is not None:
        return ""
    shared = len(one.words & other.words)
    if (
        shared < (1 if one.words == other.words and one.personal == other.personal else 2)
        or shared < LEAST_SHARED * len(one.words | other.words)
        or _differ(candidate, memory)
    ):
        return ""
    return "the same words"


def _equal(one: str, other: str) -> bool:
    plain, its = normal_form(one), normal_form(other)
    if plain == its or (_HAN.search(plain + its) and _TOWN.sub("", plain) == _TOWN.sub("", its)):
        return True
    words, others = words_of(one), words_of(other)
    return bool(words) and words == others


def _differ(candidate: Candidate, memory: Memory) -> bool:
    """Whether words speak against saying the same: other numbers, a denial, another value of one slot."""
    one, other = candidate.statement, memory.statement
    if _numbers(candidate.content) != _numbers(memory.content):
        return True
    if bool(_NOT.search(candidate.content)) != bool(_NOT.search(memory.content)):
        return True
    if candidate.slot is None or memory.slot is None:
        return False
    return candidate.slot != memory.slot or not _equal(one.value, other.value)


def speaks_against(fuller: str, covered: str) -> bool:
    """Whether a text with more words does not say all that one with fewer says: a number or a denial differs."""
    if Counter(_numbers(covered)) - Counter(_numbers(fuller)):
        return True
    return bool(_NOT.search(fuller)) != bool(_NOT.search(covered))


def _numbers(text: str) -> list[str]:
    return [_COUNTS.get(found.casefold(), found) for found in _NUMBER.findall(text)]


def contradicts(candidate: Candidate, memory: Memory) -> str:
    """Why a memory no longer holds once the candidate does; empty: both hold."""
    proposed, one, other = candidate.proposed, candidate.statement, memory.statement
    if proposed.corrects and proposed.corrects == memory.memory:
        return "corrected"
    if proposed.corrects and _names(memory.content, proposed.corrects):
        same_slot = candidate.slot is None or memory.slot is None or candidate.slot == memory.slot
        return "corrected" if same_slot else ""
    if candidate.slot is not None and candidate.slot == memory.slot:
        return _otherwise(candidate, memory)
    if one.attribute == other.attribute == "uses" and _switched(candidate.content, one, other):
        return "another value"
    if {one.attribute, other.attribute} <= {"likes", "dislikes", "uses", "owns", "speaks", "habit"}:
        taken_back = one.negative != other.negative and _about_the_same(one, other)
        return "taken back" if taken_back else ""
    return ""


def _replaces(candidate: Candidate, memory: Memory) -> str:
    """Whether what the candidate says to be over is what the memory tells: its value, or the end of its sentence."""
    old, other = replaced(candidate.content), memory.statement
    if not old or other.negative:
        return ""
    if other.attribute:
        return "replaced" if _equal(old, other.value) or VALUES.get(old, ("", ""))[1] == other.value else ""
    plain = normal_form(memory.content)
    ends = plain.endswith(normal_form(old)) if _HAN.search(old) else f" {plain}".endswith(f" {normal_form(old)}")
    return "replaced" if ends and not other.personal and words_of(old) else ""


def _by_a_clause(candidate: Candidate, memory: Memory) -> str:
    """Whether one of several things that the candidate says contradicts the memory."""
    if candidate.statement.attribute or candidate.proposed.attribute:
        return ""
    for clause in clauses(candidate.content):
        said = read(clause)
        one = replace(candidate, content=clause, statement=said) if said.attribute else None
        if one is not None and (why := contradicts(one, memory)):
            return why
    return ""


def _otherwise(candidate: Candidate, memory: Memory) -> str:
    """Of two values of one slot: why the older does not hold."""
    one, other = candidate.statement, memory.statement
    if one.negative != other.negative:
        return "taken back" if _equal(one.value, other.value) or _about_the_same(one, other) else ""
    if one.attribute and other.attribute:
        return "another value" if one.single and not one.negative and not _equal(one.value, other.value) else ""
    return "another value"


def _switched(content: str, one: Statement, other: Statement) -> bool:
    """Whether somebody went over to another one of the same things: both values end with what they are."""
    if one.negative or other.negative or one.value == other.value or not SWITCHED.search(content.casefold()):
        return False
    if _HAN.search(one.value):
        return len(one.value) > _HEAD and one.value[-_HEAD:] == other.value[-_HEAD:]
    return one.value.rpartition(" ")[2] == other.value.rpartition(" ")[2]


def _about_the_same(one: Statement, other: Statement) -> bool:
    plain, its = normal_form(one.value), normal_form(other.value)
    if _HAN.search(plain + its):
        return bool(plain and its) and (plain in its or its in plain)
    # a value may be made of stems already
    forms = [(words_of(said.value), frozenset(said.value.split())) for said in (one, other)]
    return any(mine and its and (mine <= its or its <= mine) for mine in forms[0] for its in forms[1])


def _names(content: str, value: str) -> bool:
    found = normal_form(value)
    return (bool(found) and f" {found} " in f" {normal_form(content)} ") or (
        _HAN.search(found) is not None and found in normal_form(content)
    )
