"""Templates: how the results of a tool read, what they are about, and how long they hold. One place for all tools.

A deployment adds its own by a file (``REFOLD_CARD_TEMPLATES``); they come before the shipped ones. Since a fold
depends on them, their text is part of the read model's fingerprint.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Literal

import msgspec
import regex

from projections.cards.reading.facts import Fact

_BRACES = regex.compile(r"\{([^{}]+)\}")


class Template(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the results of a tool become cards.

    ``tool``: its name, or a pattern with ``*`` and ``?``. ``title``: the summary's first line, with fields in braces;
    left out when the result has not all of them. ``fields``: the fields that are shown, in this order, ``flights``
    meaning all below it; none: all. ``leave_out``: fields that are not shown. A value that was used later is shown in
    any case. ``names``: how a field reads. ``entity``: the field whose value says what the result is about;
    ``attribute``: which side of it the result tells. ``ttl_s``: seconds for which it holds; 0: no limit.
    ``refresh``: what to do before relying on it, in words. ``prose``: which sentences of a long text are kept.
    """

    tool: Annotated[str, msgspec.Meta(min_length=1)]
    title: str = ""
    fields: tuple[str, ...] = ()
    leave_out: tuple[str, ...] = ()
    names: dict[str, str] = {}
    entity: str = ""
    attribute: str = ""
    ttl_s: Annotated[int, msgspec.Meta(ge=0, le=10**9)] = 0
    refresh: str = ""
    prose: Literal["telling", "head", "tail"] = "telling"

    def shows(self, field: str) -> bool:
        """Whether values of a field are shown though nothing used them."""
        wanted = not self.fields or any(_below(field, name) for name in self.fields)
        return wanted and not any(_below(field, name) for name in self.leave_out)

    def place(self, field: str) -> int:
        """Where the field stands in the template's order; after all others when it names none."""
        return next((at for at, name in enumerate(self.fields) if _below(field, name)), len(self.fields))

    def titled(self, facts: Sequence[Fact]) -> str:
        """The title with values for the fields in it; ``""`` when there is none, or a field is missing."""
        if not self.title:
            return ""
        values: dict[str, str] = {}
        for fact in facts:
            values.setdefault(fact.field, fact.text)
        wanted = _BRACES.findall(self.title)
        return _BRACES.sub(lambda match: values[match[1]], self.title) if values.keys() >= set(wanted) else ""

    def about(self, facts: Iterable[Fact]) -> tuple[str, str] | None:
        """Field and value of what a result is about; None when no field is named, or the result has none of it."""
        if not self.entity:
            return None
        return next(((fact.field, fact.text) for fact in facts if fact.field == self.entity), None)


PLAIN = Template(tool="*")
"""For tools without a template: everything is shown, in order."""


_SHELLS = (
    "bash", "Bash", "shell", "sh", "terminal", "exec", "execute_bash", "execute_command", "run_command", "run_shell",
    "run_terminal_cmd", "run_tests", "run_program", "python", "execute_python",
)  # fmt: skip

SHIPPED_TEMPLATES = (
    # what a program wrote last is how it ended
    *(Template(tool=tool, prose="tail") for tool in _SHELLS),
)


class Templates:
    """The templates in force: a deployment's own, the first that fits wins, then those that are shipped."""

    __slots__ = ("_exact", "_own", "_patterns")

    def __init__(self, own: Sequence[Template] = ()) -> None:
        self._own = tuple(own)
        all_of_them = (*self._own, *SHIPPED_TEMPLATES)
        self._patterns = [one for one in all_of_them if _is_pattern(one.tool)]
        self._exact = {one.tool: one for one in reversed(all_of_them) if not _is_pattern(one.tool)}

    def of(self, tool: str) -> Template:
        """The template of a tool: one that names it, else the first whose pattern fits, else the plain one."""
        found = self._exact.get(tool)
        if found is None and tool and self._patterns:
            found = next((one for one in self._patterns if fnmatchcase(tool, one.tool)), None)
        return PLAIN if found is None else found

    def parameters(self) -> str:
        """The deployment's own templates as text, equal for equal templates; ``""`` when there are none."""
        return msgspec.json.encode(self._own, order="deterministic").decode() if self._own else ""


def _is_pattern(tool: str) -> bool:
    return any(sign in tool for sign in "*?[")


def _below(field: str, name: str) -> bool:
    return field == name or field.startswith(f"{name}.")


SHIPPED = Templates()
"""The shipped templates alone."""
