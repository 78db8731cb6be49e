"""Names of beliefs: what a belief is about, so that the same thing is one belief however it was written.

    tool/<tool>         how well a tool works
    plan/<digest>       how well a way of doing things works: the tools in their order
    feedback/<digest>   what a person asked for, word for word

All other names are their proposers' own. Names are compared in Unicode's NFKC form: composed or not, full width or not.
"""

from __future__ import annotations

from unicodedata import normalize

from projections.bounds import digest
from projections.memory.normal import normal_form

_KINDS = {"tool/": "tool_reliability", "plan/": "plan_pattern", "feedback/": "user_preference"}


def belief_name(text: str) -> str:
    """The one form of a belief's name.

    >>> belief_name("cafe\u0301") == belief_name("café") == belief_name("ｃａｆé")
    True
    """
    return text if text.isascii() else normalize("NFKC", text)


def kind_of(name: str) -> str:
    """The kind of a belief that nobody has proposed: by its name, else a learning."""
    return next((kind for prefix, kind in _KINDS.items() if name.startswith(prefix)), "learning")


def tool_belief(tool: str) -> str:
    """The belief about a tool."""
    return belief_name(f"tool/{tool}")


def plan_belief(path: str) -> str:
    """The belief about a path: tools in their order."""
    return f"plan/{digest(belief_name(path))}"


def feedback_belief(words: str) -> str:
    """The belief that one should do as these words say, whatever their case, spaces and punctuation."""
    return f"feedback/{digest(normal_form(words))}"
