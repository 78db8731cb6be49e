"""XML as a result: elements and attributes as names, repeated elements as records, text as leaves, spelled as it is.

    <order id="W-17"><item>lamp</item><item>desk</item></order>    {"order": {"id": "W-17", "item": ["lamp", "desk"]}}

Also several elements side by side, with no element around them. Namespaces are dropped. What declares a document type
(and so could declare entities), is not well-formed, has words between elements, or is a page of HTML stays a text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any
from xml.etree.ElementTree import ParseError, XMLParser

from events.strict_json import MAX_DEPTH

MAX_DEEP = MAX_DEPTH // 2
"""Elements within elements: each may stand in an array, so that the value is at most as deep as JSON may be."""

TEXT = "text"
"""The name of what an element with attributes holds as text."""

_DECLARATION = re.compile(r"<\?xml\s[^<>]{0,200}\?>\s*")
_INSTANCE = "{http://www.w3.org/2001/XMLSchema-instance}"
_HTML = frozenset((
    "html", "head", "body", "div", "span", "p", "a", "b", "i", "em", "strong", "br", "hr", "h1", "h2", "h3", "h4",
    "ul", "ol", "li", "dl", "table", "thead", "tbody", "tr", "td", "th", "form", "img", "section", "article", "nav",
    "main", "header", "footer", "script", "style", "pre", "code", "svg", "details",
))  # fmt: skip


class _Unclear(Exception):
    """The text is no XML that reads as records."""


def elements(text: str) -> dict[str, Any] | None:
    """The elements of a text that is XML as a whole, by name; None for any other text."""
    if text[:1] != "<" or text[-1:] != ">" or "<!DOCTYPE" in text or "<!ENTITY" in text:
        return None
    parser = XMLParser(target=_Reader())
    try:
        parser.feed(f"<_>{_DECLARATION.sub('', text, count=1)}</_>")
        held: Any = parser.close()
    except (ParseError, UnicodeError, _Unclear):
        return None
    return held if isinstance(held, dict) and not any(name.casefold() in _HTML for name in held) else None


@dataclass(slots=True)
class _Element:
    members: dict[str, list[Any]] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    nested: bool = False

    def value(self) -> Any:
        """A text where there is nothing else, an object otherwise. Raises _Unclear where words stand among elements."""
        text = "".join(self.texts).strip()
        if not self.members:
            return text
        if text and (self.nested or TEXT in self.members):
            raise _Unclear
        told = {name: values[0] if len(values) == 1 else values for name, values in self.members.items()}
        return told | {TEXT: text} if text else told


class _Reader:
    """What the parser tells, element by element, as the target that it asks for."""

    def __init__(self) -> None:
        self._open: list[_Element] = []
        self._whole: Any = None

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """An element begins. Raises _Unclear where it stands too deep."""
        if len(self._open) > MAX_DEEP:
            raise _Unclear
        element = _Element()
        for name, value in attributes.items():
            if not name.startswith(_INSTANCE):
                element.members.setdefault(_local(name), []).append(value)
        self._open.append(element)

    def data(self, text: str) -> None:
        """A piece of the text of the element that is open."""
        self._open[-1].texts.append(text)

    def end(self, tag: str) -> None:
        """An element ends: it is a member of the one around it. Raises _Unclear as ``_Element.value`` does."""
        value = self._open.pop().value()
        if not self._open:
            self._whole = value
            return
        self._open[-1].members.setdefault(_local(tag), []).append(value)
        self._open[-1].nested = True

    def close(self) -> Any:
        """The value of the outermost element."""
        return self._whole


def _local(name: str) -> str:
    return name.rpartition("}")[2]
